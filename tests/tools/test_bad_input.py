"""Command lines that the tools refuse: one line, exit code 2, nothing measured and nothing written."""

from __future__ import annotations

import importlib

import pytest
from wording import MEAN

BAD = {  # the words after a command, and what the line has to say
    "benchmark": [
        ("--env gunreal/Catsh-v0", "unknown environment 'gunreal/Catsh-v0'"),
        ("--agnets 3", f"unknown flag --agnets; {MEAN} --agents?"),
        ("--runner device", "only the parallel runner can be measured here; leave out --runner"),
        ("--seconds 0", "--seconds is 0, but must be positive"),
        ("--tune --lag nan", "--lag is nan"),
        ("--tune --json x.json", "leave out --task_sets and --json"),
        ("--json nowhere/x.json", "can't write nowhere/x.json; choose a file"),
        ("--scheduler queue", "--scheduler can't be measured here"),
        ("--resume x", "run 'x' not found"),
        ("--task_sets pc,pc --env gunreal/Catch-v0", "task pc is named twice"),
        ("rates", "unexpected argument 'rates'"),
    ],
    "cluster_faults": [
        ("--faults node-kiled", f"{MEAN} node-killed?"),
        ("--repeats 0", "--repeats is 0"),
    ],
    "cluster_rounds": [
        ("--nodes 2,0", "--nodes is 0, but must be positive"),
        ("--nodes 1 --quorum 3", "quorum is 3.0, but must be"),
        ("--mbit -3", "--mbit is -3, but must be positive"),
    ],
    "compare_peers": [
        ("--peers sb4", f"{MEAN} sb3?"),
        ("--peers sb3,sb3", "sb3 is listed twice"),
        ("--peers sb3:depth=3", "invalid setting 'depth=3'"),
        ("--peers gunreal:agentz=3", f"{MEAN} --agents?"),
        ("--python sb3=/nowhere/python", "interpreter not found; use --python sb3="),
        ("--python keras=/bin/sh", "unknown system 'keras'"),
        ("--rounds 0", "--rounds must be at least 1"),
        ("--warmup inf", "and all finite"),
        ("--cores 4096", "--cores is 4096, but must be between 1 and"),
        ("--json /nowhere/out.json", "can't write /nowhere/out.json"),
        ("-- --agents 0", "agents is 0"),
    ],
    "device_cost": [
        ("--objective dqn", "dqn cannot be analyzed; use --objective a3c or ppo"),
        ("--tflops 0", "--tflops is 0, but must be positive"),
    ],
    "emulators": [
        ("bench --frames 0", "--frames is 0, but must be positive"),
        ("verify --games nosuch", "unknown game 'nosuch'"),
        ("verify --games pitfall2 --frames 1", "pitfall2"),
    ],
    "gpu": [
        ("", "no CUDA GPU"),
        ("--dry --minutes 0", "--minutes is 0"),
        ("--dry --games pitfall2", "special chip"),
    ],
    "reproduce": [
        ("", "required: EXPERIMENT"),
        ("ga3c-fig31", f"unknown experiment 'ga3c-fig31'; {MEAN} ga3c-fig3?; available: ga3c-fig3, "),
        ("ga3c-fig3 --games Pong", "ga3c-fig3 does not use several games"),
        ("ga3c-fig3 -- --seed 3", "--seed is set by the experiment; leave it out after --"),
        ("ga3c-fig3 -- --agents 3", "of ga3c-fig3 has agents"),
        ("ba3c-fig6 --env ALE/Pong-v5", "ba3c-fig6 has fixed settings; leave out --env and flags after --"),
        ("ba3c-fig6 --rounds 3", "--rounds can't be used with ba3c-fig6, a cluster experiment; leave it out"),
        ("cule-fig2 --games Pongg", "cule-fig2 has no game 'Pongg'; available: Pong, Riverraid, Boxing"),
        ("cule-fig2 --draw", "cule-fig2 has not been measured yet; run the command without --draw"),
        ("fig9 --env CartPole-v1", "layout has no effect on CartPole-v1, which has no images; leave it out"),
        ("fig9 --tiny", "--tiny can't be used with fig9, a speed experiment; leave it out"),
        ("fig9 --rounds 0", "--rounds is 0, but must be at least 1"),
        ("fig9 --settings nhcw", "fig9 has no setting 'nhcw'; available: base-nhwc, base-nchw"),
        ("fig9 --draw", "runs/Pong-v5/fig9.rounds.json does not exist"),
        ("fig9 -- --layout nchw", "of fig9 has layout"),
        ("multiverse --env gunreal/Catch-v0 --logdir file", "can't write to file"),
    ],
    "soak": [
        ("--minutes 0", "must be positive"),
        ("--runner device", "leave out --runner"),
    ],
    "task_gradients": [
        ("nothing", "run 'nothing' not found"),
        ("x --updates 0", "--updates is 0"),
    ],
}
NEEDS = {"device_cost": "jax", "gpu": "jax"}


@pytest.mark.parametrize(("tool", "words", "message"), [(tool, *line) for tool, lines in BAD.items() for line in lines])
def test_bad_input(tmp_path, monkeypatch, capsys, tool, words, message):
    if tool in NEEDS:
        pytest.importorskip(NEEDS[tool])
    module = importlib.import_module(tool)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert module.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"{tool}.py: ") and err.count("\n") == 1 and message in err and out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
