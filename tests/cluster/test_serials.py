from __future__ import annotations

import dataclasses
import types

import pytest

from gunreal.cluster import serials
from gunreal.config.schema import Config
from gunreal.runtime import system


@pytest.mark.parametrize(("together", "later"), [(16, 16), (4, 16), (16, 4), (1, 2)])
def test_no_number_of_a_node_is_used_again_after_one_machine(together, later):
    """A cluster is resumed on one machine with another number of agents per process, and then on a cluster."""
    extra = {}
    first, alone = (Config(agents=16, agents_per_process=agents) for agents in (together, later))
    saved = serials.saved(5, first)
    assert serials.first(types.SimpleNamespace(extra=saved)) == 5
    resumed = types.SimpleNamespace(extra=saved | {"config": dataclasses.asdict(first)})
    extra["processes"] = system.next_process(resumed, alone.agents_per_process) + 3
    extra["config"] = dataclasses.asdict(alone)
    assert 5 <= serials.first(types.SimpleNamespace(extra=extra)) <= 6


def test_a_cluster_that_resumes_one_machine_has_no_node_with_its_seed():
    saved = {"processes": 2, "config": dataclasses.asdict(Config())}
    assert serials.first(types.SimpleNamespace(extra=saved)) == 1 and serials.first(None) == 0
