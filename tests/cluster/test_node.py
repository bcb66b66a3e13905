from __future__ import annotations

import dataclasses

import pytest
from learners import BACKEND

from gunreal.cluster.node import Assignment, Node, _checked, node_fields
from gunreal.cluster.reducer import Refused
from gunreal.config.schema import Config
from gunreal.config.version import VERSION
from gunreal.learning.registry import interface
from gunreal.learning.task import of_tasks
from gunreal.records.checkpoint import weights_sha256
from gunreal.runtime import ram
from gunreal.runtime.system import System, build_learner, on_this_machine
from gunreal.tasks.registry import load_tasks

CONFIG = Config(env="CartPole-v1", runner="cluster", seed=7, hidden=16, agents=2, agents_per_process=2, backend=BACKEND)


def told(config=CONFIG, serial=0):
    return Assignment(VERSION, node_fields(config, serial), interface(config)[0], config.seed, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: {"version": "0.0.9"}, r"it has gunreal .* instead of 0\.0\.9; install the same version"),
        (lambda told: {"fields": told.fields | {"color": 1}}, "another configuration .*color"),
        (
            lambda told: {"spec": told.spec._replace(num_actions=5)},
            "its CartPole-v1 has num_actions 2 instead of 5; install the same environment",
        ),
    ],
)
def test_a_machine_that_differs_is_refused(change, message):
    with pytest.raises(Refused, match=message):
        Node().start(told()._replace(**change(told())))


def test_a_recurrent_network_takes_part():
    """Its state belongs to the interface of the run, but not to that of the environment. So does what tasks ask for."""
    config = dataclasses.replace(CONFIG, env="gunreal/Catch-v0", network="lstm", tasks=("rich_task:Rich",))
    run = told(config)
    run = run._replace(spec=of_tasks(run.spec, load_tasks(config.tasks)))
    _, spec, (task,) = _checked(run)
    assert spec == run.spec and spec.state == 32 and spec.bonus and spec.priorities == (task.name,)


def test_all_nodes_start_with_the_weights_of_one_machine():
    """Their agents and predictors draw numbers of their own."""
    spec, _, config = interface(CONFIG)
    expected = weights_sha256(build_learner(on_this_machine(config), spec, ()).get_state())
    drawn = set()
    for serial in (0, 3):
        config, spec, _ = _checked(told(serial=serial))
        system = System(config, spec, (), None, told(serial=serial).seed)
        assert weights_sha256(system.learner.get_state()) == expected
        assert system.config.seed == node_fields(CONFIG, serial)["seed"]
        drawn.add(float(system.predictors["base"].rng.random()))
        system.close()
    assert len(drawn) == 2


def test_nodes_have_seeds_of_their_own():
    """The first has the seed of the run."""
    seeds = [node_fields(CONFIG, serial)["seed"] for serial in range(50)]
    assert seeds[0] == 7 and len(set(seeds)) == 50 and all(0 <= seed < 2**31 for seed in seeds)
    others = dataclasses.asdict(CONFIG) | {"seed": seeds[3], "steps": 2**62}
    assert node_fields(CONFIG, 3) == others


@pytest.mark.parametrize("limit", ["auto", 2 * 2**30])
def test_the_nodes_of_a_machine_share_its_memory_limit(limit):
    config, *_ = _checked(told(dataclasses.replace(CONFIG, memory_limit=limit))._replace(sharing=2))
    assert config.memory_limit == (ram.limit() if limit == "auto" else limit) // 2
