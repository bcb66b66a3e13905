"""Whole runs in processes of their own, treated badly."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import numpy as np
from scripted_env import FAILING
from training import TESTS, Training, holders, is_gone, left_in_shared_memory, wait_until

CATCH = ("--env", "gunreal/Catch-v0", "--agents", 4, "--agents_per_process", 2, "--metrics_seconds", 0.3)
BATCHES = ("--t_max", 5, "--min_batch", 10)
SMALL = ("--agents", 2, "--agents_per_process", 1, "--hidden", 16, "--metrics_seconds", 0.3, *BATCHES)


def failing(marks: Path, how: str, at: int, times: int) -> tuple:
    """Flags of an environment that fails; `marks` is where it counts."""
    return ("--env", FAILING, "--env_args", f'how="{how}",at={at},times={times},marks="{marks}"')


def test_signals_and_resume(tmp_path):
    """SIGINT stops a run in order; it goes on although its newest checkpoint is damaged; SIGTERM stops it again."""
    flags = (*CATCH, "--tasks", "pc,vr,rp", "--checkpoint_minutes", 0.01)
    others = left_in_shared_memory()
    with Training(tmp_path, *flags) as run:
        run.wait_for(lambda lines: lines[-1]["updates"] >= 3 and len(run.checkpoints()) >= 2)
        agents, memory = run.agents(), run.memory()
        assert len(agents) == len(memory) == 2
        os.killpg(run.popen.pid, signal.SIGINT)  # as a terminal does
        assert run.end() == 0
        assert all(map(is_gone, agents)) and not holders(memory)
        wait_until(lambda: not left_in_shared_memory() - others, what="something is left in /dev/shm")
        *earlier, last = run.lines()
        assert last["stopped_by"] == "SIGINT" and len(last["weights_sha256"]) == 64
        assert last["agents"] == 4 and last["restarts"] == 0
        assert any(line["loss_pc"] is not None for line in earlier)  # the last line may come before another update
        assert run.stderr == ""
    *_, before, newest = run.checkpoints()
    newest.write_bytes(newest.read_bytes()[:-1000])
    kept = int(before.stem.removeprefix("step_"))
    assert newest.stem.endswith(str(last["step"])) and 0 < kept < last["step"]

    with Training(tmp_path, "--resume", "run") as run:
        run.wait_for(lambda lines: lines[-1]["step"] > kept and "stopped_by" not in lines[-1] and len(lines) >= 2)
        agents = run.agents()
        run.wait_for(lambda lines: lines[-1]["trained"] > lines[0]["trained"])
        assert run.signal(signal.SIGTERM) == 0
        assert all(map(is_gone, agents))
        lines = run.lines()
        steps = [line["step"] for line in lines]
        assert steps == sorted(steps) and lines[-1]["stopped_by"] == "SIGTERM"
        assert lines[-1]["updates"] > lines[0]["updates"] and lines[-1]["seconds"] > lines[0]["seconds"]
        assert run.stderr.count("\n") == 1 and f"{newest.name} is damaged" in run.stderr


def test_killed_server(tmp_path):
    """Its agents end with it, also the one that is lost in its environment, with the process that this has started."""
    with Training(tmp_path, *failing(tmp_path, "child", at=30, times=1), *SMALL) as run:
        wait_until((tmp_path / "child").exists)
        run.wait_for(lambda lines: lines[-1]["step"] > 40)
        wait_until(run.checkpoints)  # the first comes long before five minutes have passed
        agents, memory = run.agents(), run.memory()
        assert len(agents) == 3 and len(memory) == 2
        run.popen.kill()
        wait_until(lambda: all(map(is_gone, agents)))
        assert not holders(memory)


def test_failing_environments_are_restarted(tmp_path):
    """Four processes: one raises, one dies, one sleeps, one spins. Training goes on without and then with them."""
    flags = ("--agents", 4, "--env_timeout", 5, *SMALL[2:])
    with Training(tmp_path, *failing(tmp_path, "raise,kill,sleep,spin", at=50, times=4), *flags) as run:
        run.wait_for(lambda lines: lines[-1]["restarts"] == 4, "four restarts")
        step = run.lines()[-1]["step"]
        run.wait_for(lambda lines: lines[-1]["step"] > step + 300)
        assert len(run.agents()) == 4
        assert run.signal(signal.SIGHUP) == 0  # as when the connection to a terminal is lost
        assert run.lines()[-1]["stopped_by"] == "SIGHUP"
        assert run.lines()[-1]["restarts"] == 4 and run.lines()[-1]["skipped"] == 0
        assert run.stderr.count("restarting it with empty replay") == 4
        assert run.stderr.count("RuntimeError: the emulator is on fire") == 1
        assert (
            run.stderr.count("ended with code -11") == 1 and run.stderr.count("did not finish a step within 5 s") == 2
        )


def test_an_environment_that_fails_at_once_again_and_again(tmp_path):
    with Training(tmp_path, *failing(tmp_path, "raise", at=-1, times=1000), *SMALL) as run:
        assert run.end() == 1
        assert "3 times in a row soon after its start" in run.stderr
        assert run.stderr.endswith("RuntimeError: the emulator is on fire\n")
        assert "scripted_env.py" in run.stderr and "gunreal/runtime/parallel.py" not in run.stderr
        assert len(list(tmp_path.glob("[0-9]*"))) <= 6  # two processes, three times each
        assert not run.path.exists()  # nothing was learned, and the name is free again


def test_a_failing_loss(tmp_path):
    """It fails when it is compiled, before the first step: its file is named, and nothing stays."""
    with Training(tmp_path, "--env", "CartPole-v1", "--tasks", "failing_tasks:LossRaises", *SMALL) as run:
        seen: set[int] = set()
        wait_until(lambda: seen.update(run.agents()) or run.popen.poll() is not None)
        assert run.popen.returncode == 2 and seen and all(map(is_gone, seen))
        assert "the loss is at a loss" in run.stderr and str(TESTS / "failing_tasks.py") in run.stderr
        assert "Traceback" not in run.stderr and not run.path.exists()


def test_poisoned_loss_and_full_disk(tmp_path):
    """Updates that are not finite are skipped and counted. What can't be written is said; later it is written again."""
    flags = ("--env", "CartPole-v1", "--tasks", "failing_tasks:Poisoned", "--checkpoint_minutes", 0.01)
    with Training(tmp_path, *flags, *SMALL) as run:
        run.wait_for(lambda lines: lines[-1]["skipped"] >= 3)
        wait_until(lambda: (run.path / "metrics.jsonl").stat().st_size > 4096 and run.checkpoints())
        _, hard = resource.prlimit(run.popen.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(run.popen.pid, resource.RLIMIT_FSIZE, (4096, hard))
        wait_until(lambda: "no checkpoint at step" in run.stderr and "cannot write metrics" in run.stderr)
        last = run.lines()[-1]["step"]
        resource.prlimit(run.popen.pid, resource.RLIMIT_FSIZE, (hard, hard))
        run.wait_for(lambda lines: lines[-1]["step"] > last + 100)
        checkpoints = run.checkpoints()
        wait_until(lambda: run.checkpoints() != checkpoints)
        assert run.signal(signal.SIGTERM) == 0
        assert run.lines()[-1]["skipped"] > 3 and run.lines()[-1]["restarts"] == 0
        assert all(line.startswith("gunreal: ") for line in run.stderr.splitlines())
        assert run.stderr.count("cannot write metrics") == 1
        assert not list((run.path / "checkpoints").glob("*.tmp"))
        with np.load(run.checkpoints()[-1]) as saved:
            weights = [saved[name] for name in saved.files if name.startswith("weights/")]
        assert weights and all(np.isfinite(array).all() for array in weights)


SCRIPT = """
import gunreal

run = gunreal.train(gunreal.Config(
    env="CartPole-v1", name="run", agents=4, agents_per_process=2, steps=300, hidden=16, tasks=("vr",), min_batch=40,
    replay_size=20_000_000, memory_limit=3_300 * 2**20, metrics_seconds=0.3,
), show=False)
assert run.metrics[-1]["stopped_by"] == "steps" and run.step >= 300
"""


def test_script_without_a_guard_and_a_memory_bound(tmp_path):
    """Agent processes don't run the user's script again. Of the rings, 1.3 GiB for two agents, one pair fits. The
    server counts for less if other processes share its libraries."""
    (tmp_path / "script.py").write_text(SCRIPT)
    with Training(tmp_path, program=("script.py",)) as run:
        assert run.end() == 0, run.stderr
        assert run.stderr == "gunreal: started only 2 of 4 agents, because more would exceed the memory limit\n"
        last = run.lines()[-1]
        assert last["agents"] == 2 and last["memory_bytes"] < 0.95 * last["memory_limit"]
