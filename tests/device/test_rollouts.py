"""Batches from the store have what those of the trainers have. test_same_update.py has their pasts."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
from device_runs import KnownLearner, configure, filled, interface  # noqa: E402

from gunreal.config.objective import load_objective  # noqa: E402
from gunreal.device import rollouts  # noqa: E402
from gunreal.experience import returns  # noqa: E402
from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED  # noqa: E402

WEIGHTS = (np.float32(0),)


@pytest.fixture(scope="module", params=[{}, {"objective_args": {"correction": "epsilon"}}, {"objective": "ppo"}])
def gathered(request):
    """A batch of the second of two groups, and the steps of its agents, `[n, steps, ...]`."""
    config = configure(device_batches=2, **request.param)
    spec = interface(config, state=2)
    actors, kept, steps = filled(config, 8, 5, state=2)
    predict = KnownLearner(spec).functional_predict
    batch = rollouts.gather(load_objective(config), spec, predict, WEIGHTS, actors, kept, 1)
    following = predict(WEIGHTS, actors.stack, rollouts.with_time_axis(actors.past))[1]
    return config, batch, steps, np.asarray(following)[1::2]


def test_the_batch_is_that_of_the_newest_rollouts(gathered):
    config, batch, steps, following = gathered
    newest = {name: array[:, -config.t_max :] for name, array in steps.items()}
    flags, base = newest["flags"], batch["base"]
    assert (flags & RESET).any() and (flags & TRUNCATED).any()
    np.testing.assert_array_equal(base["action"], newest["action"])
    np.testing.assert_array_equal(base["mask"], flags & RESET == 0)
    np.testing.assert_array_equal(batch["base"]["observations"], newest["frame"])
    reward = np.clip(newest["reward"], -0.6, 0.6)
    discount, cut = np.where(flags & TERMINATED, 0, np.float32(config.discount)), flags & TRUNCATED != 0
    value_t = np.concatenate([newest["value"][:, 1:], following[:, None]], 1)
    if config.objective == "ppo":
        args = reward, discount, cut, newest["value"], value_t
        advantage = returns.generalized_advantages(*args, config.objective_args["gae_lambda"])
        np.testing.assert_allclose(base["returns"], advantage + newest["value"], rtol=1e-4, atol=1e-5)
        expected = returns.normalized(advantage, np.asarray(base["mask"]))
        np.testing.assert_allclose(base["advantage"], expected, rtol=1e-3, atol=1e-4)
    elif config.objective_args["correction"] == "vtrace":
        expected = {"reward": reward, "discount": discount, "truncated": cut, "value_t": value_t}
        for name, array in expected.items():
            np.testing.assert_allclose(base[name], array, rtol=1e-5, err_msg=name)
    else:
        expected = returns.rollout_returns(reward, discount, cut, value_t)
        np.testing.assert_allclose(base["returns"], expected, rtol=1e-4, atol=1e-5)
    if "log_mu" in base:
        np.testing.assert_array_equal(base["log_mu"], newest["log_mu"])
