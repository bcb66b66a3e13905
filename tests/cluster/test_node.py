from __future__ import annotations

import dataclasses

import pytest

from gunreal.cluster.node import VERSION, Assignment, Refused, _checked, node_fields
from gunreal.config.schema import Config
from gunreal.envs.make import describe

CONFIG = Config(env="CartPole-v1", seed=7)


def test_another_version_is_refused():
    with pytest.raises(Refused, match=r"it has gunreal .* instead of 0\.0\.9; install the same version"):
        _checked(Assignment("0.0.9", node_fields(CONFIG, 0, 0), describe(CONFIG)))


def test_another_configuration_is_refused():
    fields = node_fields(CONFIG, 0, 0) | {"colour": 1}
    with pytest.raises(Refused, match="another configuration .*colour"):
        _checked(Assignment(VERSION, fields, describe(CONFIG)))


def test_another_environment_is_refused():
    spec = describe(CONFIG)._replace(num_actions=5)
    with pytest.raises(Refused, match="its CartPole-v1 has num_actions 2 instead of 5; install the same environment"):
        _checked(Assignment(VERSION, node_fields(CONFIG, 0, 0), spec))


def test_nodes_have_seeds_of_their_own():
    """The first has the seed of the run, so that its initial weights are those of one machine."""
    seeds = [node_fields(CONFIG, serial, 0)["seed"] for serial in range(50)]
    assert seeds[0] == 7 and len(set(seeds)) == 50 and all(0 <= seed < 2**31 for seed in seeds)
    others = dataclasses.asdict(CONFIG) | {"seed": seeds[3], "steps": 2**62, "memory_limit": 5}
    assert node_fields(CONFIG, 3, 5) == others
