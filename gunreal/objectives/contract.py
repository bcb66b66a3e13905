"""The contract of objectives as a test: `gunreal.testing.check_objective`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from gunreal.config import plugins
from gunreal.config.objective import Phase, Uses
from gunreal.config.packages import is_installed
from gunreal.config.plugins import expect
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.config.values import is_number
from gunreal.experience.rollouts import Rollouts, read_rollouts
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.learning import devices
from gunreal.learning.objective import Objective
from gunreal.learning.registry import named

VECTORS = Spec((5,), 1, "float32", num_actions=3, t_max=6)
_BONUSES = VECTORS._replace(bonus=True, bonus_discount=0.9)
_ROLLOUTS = 40
_SETTINGS = {"learning_rate", "entropy", "min_batch"}


def check_objective(objective: Objective | type[Objective], **options: Any) -> None:
    """Checks on random rollouts that an objective follows every rule of `gunreal.learning.objective`.

    The check takes a few seconds. It builds a small network with Keras's current backend and computes gradients.

    Args:
      objective: the class of the objective, or an instance.
      **options: options of the objective, if `objective` is a class.

    Raises:
      AssertionError: the objective breaks a rule. The message describes the first broken rule in one line.
    """
    objective = plugins.expect_plugin(objective, Objective, options)
    cls = type(objective)
    config = Config(objective=f"{cls.__module__}:{cls.__qualname__}", objective_args=plugins.options(objective))
    expect(not objective.replays, "replays is True: only the built-in dqn has a program that draws from the replay")
    _check_settings(objective, config)
    devices.select_any()
    try:
        _check_inputs(objective)
        for spec in (VECTORS, _BONUSES) if objective.values_bonuses else (VECTORS,):
            _check_losses(objective, resolved(config), spec)
    except ConfigError as error:  # of one of its methods
        raise AssertionError(str(error)) from error


def _check_settings(objective: Objective, config: Config) -> None:
    with plugins.calling("settings()"):
        found = objective.settings(config)
    wrong = [key for key in _SETTINGS if not is_number(found.get(key, ""))]
    expect(not wrong, f"settings() has no number for {', '.join(sorted(wrong))}: return {{**super().settings(config)}}")
    expect(type(objective.resolved(config)) is type(objective), "resolved() does not return an objective of its class")
    uses = objective.uses()
    whole = isinstance(uses, Uses) and min(uses) >= 0 and uses.epochs >= 1 and uses.minibatches >= 1
    expect(whole, f"uses() is {uses!r}: return Uses(epochs, minibatches, overlap) with epochs and minibatches above 0")


def _rollouts(spec: Spec = VECTORS) -> Rollouts:
    """Random rollouts, which cross the ends of episodes."""
    segment = synthetic_segment(spec, {}, 20 * spec.t_max)
    ring, rng = segment.layout.ring, np.random.default_rng(0)
    steps = rng.integers(spec.t_max, 10 * spec.t_max, (_ROLLOUTS, 1)) + np.arange(spec.t_max)
    after = {name: rng.normal(size=_ROLLOUTS).astype(np.float32) for name in ("value", *spec.bonuses)}
    return read_rollouts(spec, lambda name, at: segment.arrays[name][0][at % ring], steps, after)


def _part(objective: Objective, rollouts: Rollouts) -> dict[str, Any]:
    with plugins.calling("inputs()"):
        part = objective.part(rollouts)
    with plugins.calling("prepared()"):
        return objective.prepared(part)


def _check_inputs(objective: Objective) -> None:
    """Inputs are finite arrays `[B, T]`, and JAX computes the same."""
    part = _part(objective, _rollouts())
    for name, array in part.items():
        shape = getattr(array, "shape", None)
        expect(shape is not None and shape[:1] == (_ROLLOUTS,), f"input {name!r} is no array [B, ...]")
        expect(np.isfinite(array).all(), f"input {name!r} is not finite")
        expect(array.dtype in (np.float32, np.int32), f"input {name!r} is {array.dtype}: use float32 or int32")
    if not is_installed("jax"):
        return
    import jax

    rollouts = _rollouts()
    arrays = {name: array for name, array in vars(rollouts).items() if isinstance(array, np.ndarray)}
    compiled = jax.jit(lambda arrays: _part(objective, dataclasses.replace(rollouts, **arrays)))(arrays)
    for name, array in part.items():
        same = name in compiled and np.allclose(array, compiled[name], rtol=1e-3, atol=1e-4)
        expect(same, f"input {name!r} differs between JAX and NumPy")


def _check_losses(objective: Objective, config: Config, spec: Spec) -> None:
    """The losses are finite and ignore masked steps. The gradient of `loss` reaches the policy and the values."""
    from gunreal.learning.backend import make_learner
    from gunreal.learning.network import Network

    learner = make_learner(Network(spec, (), named("mlp", hidden=16), seed=1), config)
    part = _part(objective, _rollouts(spec))
    shape = *part["mask"].shape, *spec.observation
    batch = {"base": part | {"observations": np.random.default_rng(0).normal(size=shape).astype(np.float32)}}
    _check_loss(learner, batch, "loss()")
    gradients = dict(zip(learner.network.names, learner.gradient(batch).values, strict=True))
    for name in learner.network.policy_value.layers:
        expect(np.any(np.asarray(gradients[f"{name}/kernel"])), f"no gradient of loss() reaches {name}")
    phase = objective.phase()
    if phase:
        whole = isinstance(phase, Phase) and min(phase) >= 1
        expect(whole, f"phase() is {phase!r}: return Phase(batches, epochs) with numbers of at least 1")
        _check_loss(learner, {**batch, "old": learner.recall(batch)}, "phase_loss()")


def _check_loss(learner: Any, batch: dict[str, Any], method: str) -> None:
    part = batch["base"]

    def loss(**changed: Any) -> dict[str, float]:
        with plugins.calling(method):
            metrics: dict[str, float] = learner.gradient({**batch, "base": {**part, **changed}}).metrics
            return metrics

    found = loss()
    kinds = ("", "bonus_") if learner.network.spec.bonus_discount else ("",)
    wanted = ["loss_base", *(f"{kind}return_{moment}" for kind in kinds for moment in ("mean", "deviation"))]
    missing = [name for name in wanted if name not in found]
    expect(not missing, f"the metrics of {method} lack {', '.join(missing)}")
    finite = np.isfinite(list(found.values())).all()
    expect(finite, f"{method} or one of its metrics is not finite: {found}")
    expect(found == loss(), f"{method} differs in a second call for the same batch: do not use random numbers in it")
    hidden = part["mask"] == 0
    # The returns of bonuses go on through the steps between episodes.
    steps = {name: array for name, array in part.items() if array.ndim == 2 and not name.startswith("bonus_")}
    other = {name: np.where(hidden, array[::-1, ::-1], array) for name, array in steps.items()}
    same = np.isclose(found["loss_base"], loss(**{**other, "mask": part["mask"]})["loss_base"], rtol=1e-4)
    expect(same, f"{method} depends on steps whose mask is 0: use masked_mean")
    nothing = loss(mask=np.zeros_like(part["mask"]))
    expect(np.isfinite(nothing["loss_base"]), f"{method} is not finite when every mask is 0: use masked_mean")
