"""A device run that does not fit into the memory, or whose rewards are not finite, ends in one line."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scripted_functional import ScriptedFunctional

pytest.importorskip("jax")
import jax  # noqa: E402
from device_runs import KnownLearner, configure, interface  # noqa: E402

from gunreal.config.objective import load_objective  # noqa: E402
from gunreal.config.schema import ConfigError  # noqa: E402
from gunreal.device import runner  # noqa: E402
from gunreal.envs.step import AgentFailure  # noqa: E402

SHAPES = [jax.ShapeDtypeStruct((2**18, 3), "float32"), jax.ShapeDtypeStruct((2**20,), "uint8")]  # 4 MiB


def test_the_memory_is_that_of_all_devices(monkeypatch):
    device = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 2**21})
    monkeypatch.setattr(runner.jax, "local_devices", lambda: [device, device])
    runner._check_memory(SHAPES, SimpleNamespace(count=2), 2**20)
    with pytest.raises(ConfigError, match="of the devices' 0.0 GiB"):
        runner._check_memory(SHAPES, SimpleNamespace(count=1), 2**30)


def test_a_device_that_is_full_after_the_start_is_one_line():
    """Other errors are not hidden."""
    message = "^the memory of the device is full; use more or larger devices.*$"
    with pytest.raises(ConfigError, match=message), runner._enough_memory():
        jax.numpy.zeros(2**50, "uint8")
    with pytest.raises(jax.errors.JaxRuntimeError), runner._enough_memory():
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")


class Broken(ScriptedFunctional):
    """The third reward of every episode is not a number."""

    def step(self, state, actions):
        state, observation, reward, *ends = super().step(state, actions)
        return state, observation, jax.numpy.where(state["t"] == 3, np.nan, reward), *ends


@pytest.fixture
def make(monkeypatch):
    """Makes a device run with a known learner."""

    def make(**options):
        config = configure(**options)
        learner = KnownLearner(interface(config), load_objective(config))
        monkeypatch.setattr(runner, "JaxLearner", KnownLearner)
        monkeypatch.setattr(runner, "build_learner", lambda *_: learner)
        return runner.DeviceRunner(config, interface(config), (), None)

    return make


def test_steps_that_do_not_fit_are_refused(make):
    with pytest.raises(
        ConfigError, match="the agents take 0.0 GiB of the devices' 0.0 GiB; use more or larger devices"
    ):
        make(memory_limit=1000)


@pytest.mark.parametrize("script", ["---T", "~"])
def test_a_reward_that_is_not_finite_ends_the_run(make, script):
    made = make(env=f"{__name__}:Broken", env_args={"script": script}, steps=10**6)
    with pytest.raises(AgentFailure, match=":Broken returned a reward that is not finite; rewards must be finite num"):
        made.run(lambda: None)
    assert made._taken < 10**4


def test_the_first_turn_has_the_first_learning_rate(make, monkeypatch):
    """A run of a single turn would learn nothing with the last one, which is 0."""
    made, seen = make(steps=1), []
    turn = made.program.turn
    monkeypatch.setattr(made.program, "turn", lambda loop, *args: seen.append(args) or turn(loop, *args))
    made.run(lambda: None)
    ((_, now, exploration),) = seen
    assert now.learning_rate == made.config.learning_rate > 0 and exploration == 0
