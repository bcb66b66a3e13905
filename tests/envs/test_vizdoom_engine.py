"""The engine's process: what it leaves behind, how it dies, and what is said where it is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
from training import is_gone, wait_until

import gunreal.envs  # noqa: F401  (registers the ids)
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.make import describe, make
from gunreal.envs.vizdoom_maze import NavMaze


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    """Neither in the working directory nor in folders for temporary files and shared memory, not even while it runs."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.chdir(tmp_path)
    env = NavMaze()
    before = set(psutil.Process().children())
    for _ in range(2):  # it can be closed and used again
        env.reset(seed=0)
        (engine,) = set(psutil.Process().children()) - before
        name = engine.cmdline()[engine.cmdline().index("+viz_instance_id") + 1]
        env.step(0)
        assert not list(Path("/dev/shm").glob(f"*{name}"))
        assert [entry.name for entry in tmp_path.rglob("*")] == ["scratch"]
        env.close()
        engine.wait(60)
    assert [entry.name for entry in tmp_path.rglob("*")] == ["scratch"]


_OWNER = """
import psutil, time
from gunreal.envs.vizdoom_maze import NavMaze
env = NavMaze()
env.reset(seed=0)
print(psutil.Process().children()[0].pid, flush=True)
while True:
    env.step(0)
"""


def test_a_killed_owner_takes_its_engine_along():
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    engine = psutil.Process(int(owner.stdout.readline()))
    assert os.getpgid(engine.pid) == engine.pid  # Ctrl-C in a terminal is the owner's alone
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until(lambda: is_gone(engine.pid))


def test_an_engine_that_dies_is_an_error():
    env = NavMaze()
    with pytest.raises(RuntimeError, match="has not been reset"):
        env.step(0)
    before = set(psutil.Process().children())
    env.reset(seed=0)
    (engine,) = set(psutil.Process().children()) - before
    engine.kill()
    for attempt in (lambda: env.step(0), lambda: env.step(0), lambda: env.reset(seed=0)):
        with pytest.raises(RuntimeError, match="ViZDoom has stopped"):
            attempt()
    env.close()
    assert env.reset(seed=0)[0].any()
    env.close()


def test_an_engine_that_does_not_start_leaves_no_file_open(monkeypatch):
    def fail(game):
        raise ValueError("no display")

    monkeypatch.setattr("vizdoom.DoomGame.init", fail)
    with pytest.raises(RuntimeError, match="ViZDoom does not start: no display") as error:
        NavMaze().reset(seed=0)
    files = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    assert error.traceback and not any("gunreal-vizdoom" in file for file in files)  # the traceback holds the engine


def test_without_vizdoom_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "vizdoom"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vizdoom", None)
    for name in [name for name in gymnasium.registry if name.startswith("Vizdoom")]:
        monkeypatch.delitem(gymnasium.registry, name)
    for name in ("gunreal/NavMazeStatic-v0", "VizdoomMyWayHome-v1"):
        with pytest.raises(ConfigError, match=r'pip install "gunreal\[vizdoom\]"'):
            describe(Config(env=name))


@pytest.mark.parametrize("name", ["VizdoomMyWayHome-v1", "vizdoom.gymnasium_wrapper:VizdoomDefendCenter-v1"])
def test_the_environments_of_vizdoom_itself(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # these write to it
    config = Config(env=name)
    assert describe(config).frame == (1, 84, 84)
    envs = make(config, 1)
    for t in range(20):
        frame = envs.step(np.full(1, t % envs.num_actions, np.int32), np.array([t == 0]), np.zeros(1, np.int64)).frame
        assert frame.std() > 5
    envs.close()


def end_of_episode(seed, **options):
    """The number of steps, both flags, and the last two frames of an episode of Vizdoom's shooting range."""
    envs = make(Config(env="VizdoomBasic-v1", env_args={"frame_skip": 4, **options}), 1)
    rng, frames = np.random.default_rng(seed), []
    step = envs.step(np.zeros(1, np.int32), np.ones(1, bool), np.full(1, seed))
    while not (step.terminated[0] or step.truncated[0]):
        frames.append(step.frame[0])
        step = envs.step(rng.integers(envs.num_actions, size=1), np.zeros(1, bool), np.full(1, seed))
    envs.close()
    return len(frames), step.terminated[0], step.truncated[0], frames[-1], step.frame[0]


def test_the_time_limit_of_vizdoom_truncates_with_a_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps, terminated, truncated, before, last = end_of_episode(0, episode_timeout=40)
    assert truncated and not terminated
    np.testing.assert_array_equal(last, before)
    assert last.std() > 5
    steps, terminated, truncated, before, last = next(end for end in map(end_of_episode, range(20)) if end[1])
    assert not truncated and last.std() > 5  # no black picture as a change of all pixels


def test_a_time_limit_of_gymnasium_at_the_end_of_a_vizdoom_episode_does_not_truncate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seed, steps = next((seed, end[0]) for seed in range(20) if (end := end_of_episode(seed))[1])
    assert end_of_episode(seed, max_episode_steps=steps)[:3] == (steps, True, False)
    assert end_of_episode(seed, max_episode_steps=steps - 1)[:3] == (steps - 1, False, True)
