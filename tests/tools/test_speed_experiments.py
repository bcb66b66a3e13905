"""The experiments about speed: measured in rounds, gone on with, and put beside the paper's numbers."""

from __future__ import annotations

import json

import pytest
import reproduce
from experiments import speed, speed_report, speed_rounds
from measuring.machine import machine

from gunreal.config.checks import check
from gunreal.config.schema import ConfigError

MULTIVERSE = "multiverse --settings float32,1,2 --env gunreal/Catch-v0 --rounds 2 --logdir runs"


def row(pps: float = 1000.0, **more) -> dict:
    """What `measure.row` gives without parts, as far as it is shown."""
    known = {"pps": pps, "tps": pps, "agents": 32, "train_batch": 40.0, "update_ms": 8.0, "policy_lag": 3.0}
    known |= {"wait": {"share": 0.25, "mean_ms": 5.0}, "predictions": {"base": {"mean": 7.5}}}
    known |= {"queues": {"train": {"mean": 1.5}}, "bytes": {"to_device": 60_000.0}, "memory": {"bytes": 2e8}}
    return known | {"balanced": True, "gpu": False} | more


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Every measurement asked for, in order; `answers` are given in turn, exceptions are raised."""
    monkeypatch.chdir(tmp_path)
    asked, answers = [], []

    def fake(config, seconds, parts):
        assert not parts
        asked.append(config)
        answer = answers.pop(0) if answers else row()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(speed_rounds.measure, "row", fake)
    fake.asked, fake.answers = asked, answers
    return fake


@pytest.mark.parametrize("experiment", speed.RATES.values(), ids=lambda experiment: experiment.name)
def test_experiments_are_whole(experiment):
    """Every setting is a configuration that exists and differs from every other; columns and references are there."""
    configs, path = speed_rounds.plan(experiment)
    for config in configs.values():
        check(config)
    every = list(configs.values())
    assert list(configs) == list(experiment.settings) and all(a != b for i, a in enumerate(every) for b in every[:i])
    assert len({setting.label for setting in experiment.settings.values()}) == len(every)
    assert {*experiment.columns, *experiment.panels} <= speed.QUANTITIES.keys()
    assert {*experiment.against, *experiment.against.values()} <= configs.keys()
    assert str(path) == f"runs/Pong-v5/{experiment.name}.rounds.json" and "." not in experiment.name
    for key in speed.QUANTITIES:
        assert speed.QUANTITIES[key].of(row()) > 0


def test_flags_override_the_papers_constants_but_not_the_compared_fields():
    experiment = speed.RATES["ga3c-fig3"]
    configs, _ = speed_rounds.plan(experiment, ["--t_max", "20", "--tasks", "pc,vr", "--agents_per_process", "8"])
    config = configs["16-2-1"]
    assert (config.agents, config.predictors, config.trainers, config.agents_per_process) == (16, 2, 1, 8)
    assert (config.t_max, config.tasks, config.min_batch, config.optimizer) == (20, ("pc", "vr"), 40, "rmsprop")
    with pytest.raises(ConfigError, match="setting 1-1-1 of ga3c-fig3 has agents 1"):
        speed_rounds.plan(experiment, ["--agents", "8"])


def test_rounds_alternate_and_go_on(tmp_path, measured, capsys):
    pytest.importorskip("matplotlib")
    words = MULTIVERSE.split()
    measured.answers[:] = [row(), row(), row(), row(), KeyboardInterrupt()]
    assert reproduce.main(words) == 130
    assert "stopped; to continue, run:" in capsys.readouterr().out
    transfers = [(config.transfer, config.agents_per_process, config.agents) for config in measured.asked]
    assert transfers == [("float32", 1, 32), ("uint8", 1, 32), ("uint8", 2, 32), ("float32", 1, 32), ("uint8", 1, 32)]
    saved = json.loads((tmp_path / "runs" / "multiverse.rounds.json").read_text())["settings"]
    assert [len(of["rows"]) for of in saved.values()] == [2, 1, 1] and saved["2"]["rows"] == [row()]
    assert (tmp_path / "runs" / "multiverse.md").exists()  # what is there is shown
    del measured.asked[:]
    assert reproduce.main(words) == 0
    assert [config.agents_per_process for config in measured.asked] == [1, 2]
    assert "6 measurements of 24 s, of which 4 exist already" in capsys.readouterr().out
    assert reproduce.main(words) == 0 and len(measured.asked) == 2
    assert reproduce.main([*words, "--draw"]) == 0 and len(measured.asked) == 2
    words[words.index("float32,1,2")] = "16"
    assert reproduce.main([*words, "--draw"]) == 2
    assert "no setting of multiverse has been measured yet" in capsys.readouterr().err


def test_rows_of_another_configuration_are_rejected(tmp_path, measured, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    words = MULTIVERSE.split()
    monkeypatch.setattr(speed_rounds, "machine", lambda: {**machine(), "gpus": []})
    assert reproduce.main(words) == 0
    asked = len(measured.asked)
    for more, message in (
        (["--seconds", "3"], "was measured with seconds 8, not 3.0; choose another folder with --logdir"),
        (["--", "--t_max", "10"], "was measured with t_max 5, not 10"),
    ):
        assert reproduce.main([*words, *more]) == 2 and message in capsys.readouterr().err
    monkeypatch.setattr(speed_rounds, "machine", lambda: {"processor": "another", "cores": 64, "gpus": []})
    assert reproduce.main(words) == 2 and "'another'; choose" in capsys.readouterr().err
    monkeypatch.setattr(speed_rounds, "machine", lambda: {**machine(), "gpus": ["H100"]})
    assert reproduce.main(words) == 2 and "with gpus [], not ['H100']" in capsys.readouterr().err
    (tmp_path / "runs" / "multiverse.rounds.json").write_text('{"settings"')
    assert reproduce.main(words) == 2 and "is damaged" in capsys.readouterr().err
    assert len(measured.asked) == asked


def test_a_failing_setting_does_not_stop_the_others(tmp_path, measured, capsys):
    pytest.importorskip("matplotlib")
    measured.answers[:] = [row(), speed_rounds.measure.MeasurementFailed("no such layout"), row(agents=20), row()]
    assert reproduce.main(MULTIVERSE.split()) == 1
    out = capsys.readouterr().out
    assert "round 1 of 2, 1: no such layout" in out and "only 20 of 32 agents fit into memory" in out
    assert len(measured.asked) == 5  # what failed is not tried twice in one go
    assert list(json.loads((tmp_path / "runs" / "multiverse.json").read_text())["settings"]) == ["float32", "2"]
    assert reproduce.main(MULTIVERSE.split()) == 0 and len(measured.asked) == 7


def saved_rows(experiment, rows: dict[str, list[dict]]) -> dict:
    """What `speed_rounds.read` gives."""
    configs, _ = speed_rounds.plan(experiment)
    found = {name: {"config": {"env": configs[name].env, "agents": configs[name].agents}, "rows": of}
             for name, of in rows.items()}  # fmt: skip
    return {"seconds": 8.0, "processor": "a machine", "cores": 2, "settings": found}


def test_numbers_beside_the_papers():
    experiment = speed.RATES["fig9"]
    rows = {
        "nhwc": [row(1000.0), row(1200.0), row(9000.0, balanced=False), row(1100.0)],
        "nchw": [row(500.0), row(600.0)],
        "base-nchw": [row(700.0, agents=16)],
    }
    results = speed_report.measure(experiment, saved_rows(experiment, rows))
    nhwc, nchw, alone = (results["settings"][name] for name in ("nhwc", "nchw", "base-nchw"))
    assert (nhwc["values"]["pps"], nhwc["ranges"]["pps"]) == (1100.0, [1000.0, 1200.0])
    assert (nhwc["rounds"], nhwc["balanced"], nhwc["ratios"]) == (4, 3, {})
    assert nchw["values"] == {"pps": 550.0, "updates": 13.75, "update_ms": 8.0}
    assert nchw["ratios"] == {"pps": 0.5, "updates": 0.5}
    assert nchw["paper_ratios"] == {"pps": 1550 / 1477, "updates": 38 / 36} and alone["ratios"] == {}
    text = speed_report.table(experiment, results)
    cells = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert cells[0][1:3] == ["agent steps/s acted (PPS)", "updates/s (TPS)"]
    assert cells[0][-2:] == ["paper: agent steps/s acted (PPS)", "paper: updates/s (TPS)"]
    assert cells[1] == ["no task, NCHW (only 16 of 24 agents fit into memory)", "700", "17.5", "8.0", "1", "-", "-"]
    assert cells[2] == ["pc+vr+rp, NHWC", "1,100", "27.5", "8.0", "4, 1 not balanced", "1,477", "36.0"]
    assert cells[3] == ["pc+vr+rp, NCHW", "550 (0.50)", "13.8 (0.50)", "8.0", "2", "1,550 (1.05)", "38.0 (1.06)"]
    assert (
        "Medians over rounds of 16 s with 24 agents, on 2 cores of a machine and no GPU. The numbers in brackets"
        in text
    )
    assert experiment.shows in text


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    name, experiment = "ga3c-fig3", speed.RATES["ga3c-fig3"]
    path = tmp_path / f"{name}.rounds.json"
    path.write_text(json.dumps(saved_rows(experiment, {setting: [row()] for setting in experiment.settings})))
    speed_report.write(experiment, path)
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert json.loads((tmp_path / f"{name}.json").read_text())["settings"].keys() == experiment.settings.keys()
    assert (tmp_path / f"{name}.md").read_text().startswith(f"**{experiment.title}** on `ALE/Pong-v5`\n\n|")
