from __future__ import annotations

import dataclasses

import pytest

from gunreal.config import folders, schema
from gunreal.config.checks import check
from gunreal.config.files import load, save
from gunreal.config.resolve import _RULES, OF_MACHINE, SMALL_BATCH, Facts, as_given, chosen, resolved
from gunreal.config.schema import AUTO, AUTOMATIC, FIELDS, Config, ConfigError

KNOWN = Facts(is_image=True, image_key="rgb", vector_keys="goal", emulator="own", cores=8, memory=2**34, has_gpu=False)
RUNS = [
    {},
    {"objective": "a3c"},
    {"runner": "serial"},
    {"runner": "device"},
    {"runner": "device", "objective": "a3c"},
    {"runner": "device", "objective": "dqn"},
    {"runner": "cluster", "address": "auto"},
]


def device(**fields):
    return resolved(Config(runner="device", **fields))


@pytest.mark.parametrize("run", RUNS)
def test_a_run_has_a_value_of_the_right_type_for_all_that_has_an_effect_on_it(run, monkeypatch):
    monkeypatch.setattr("gunreal.config.checks.is_installed", lambda name: True)
    config = resolved(Config(**run), KNOWN._replace(machines=2, weights=10**6))
    left = {name for name in AUTOMATIC if getattr(config, name) == AUTO}
    of_processes = {"image_key", "vector_keys", "min_batch"}
    without_effect = of_processes if config.runner == "device" else {"device_batches"}
    assert left == without_effect | (set() if config.runner == "cluster" else {"nodes", "reducers"})
    check(as_given(config, Config(**run)))  # a new run with these settings may be started
    for name in set(AUTOMATIC) - left:
        value = getattr(config, name)
        assert schema.typed(name, value) is value
    assert resolved(config, Facts()) == config


@pytest.mark.parametrize("run", RUNS)
def test_what_is_given_is_kept(run):
    given = {"learning_rate": 0.1, "entropy": 0.3, "entropy_end": 0.0, "reward_clip": 2.0, "threads": 3}
    given |= {"layout": "nchw"} | {"network": "lstm", "memory_limit": 2**30, "emulator": "ale", "image_key": "depth"}
    given |= {"vector_keys": ""}
    given |= {"min_batch": 40, "device_batches": 2, "nodes": 1, "reducers": 2}
    config = Config(**run | given)
    found = resolved(config, KNOWN)
    assert dataclasses.replace(found, objective_args={}) == config
    assert resolved(found, KNOWN) == found


def test_what_depends_on_unknown_facts_stays_automatic():
    config = resolved(Config())
    assert {config.network, config.threads, config.layout, config.memory_limit, config.emulator} == {AUTO}
    assert resolved(config, KNOWN) == resolved(Config(), KNOWN)
    assert resolved(Config(objective="a3c"), Facts(cores=1)).threads == 1


def test_settings_of_the_machine_are_chosen_again_unless_they_were_given():
    given = Config(threads=2)
    first = resolved(given, KNOWN)
    saved = as_given(first, given)
    assert chosen(given, first) == {"emulator": "own", "memory_limit": 2**34, "layout": "nhwc"}
    again = resolved(saved, Facts(emulator="ale", cores=64, memory=2**40, has_gpu=True))
    assert (again.threads, again.layout, again.memory_limit, again.emulator) == (2, "nchw", 2**40, "ale")
    same = {name for name in FIELDS if getattr(again, name) == getattr(first, name)}
    assert same == FIELDS.keys() - {"layout", "memory_limit", "emulator"}
    assert set(OF_MACHINE) <= folders.CHANGEABLE


@pytest.mark.parametrize(
    ("agents", "groups"),
    [(1200, 20), (1024, 4), (24, 4), (20, 5), (8, 2), (4, 1), (2, 1), (23, 1)],  # of at least 80 steps, 20 each
)
def test_device_runs_have_small_batches_except_with_ppo(agents, groups):
    for objective in ("a3c", "dqn"):
        assert device(objective=objective, agents=agents).device_batches == groups
    assert device(agents=agents).device_batches == 1
    assert f"batches of at least {SMALL_BATCH} agent steps" in FIELDS["device_batches"].metadata["help"]


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        ({"agents": 24}, 3),
        ({"agents": 256}, 16),
        ({"agents": 256, "device_batches": 4}, 4),
        ({"agents": 1024, "t_max": 5}, 16),
    ],
)
def test_large_batches_of_device_runs_have_more_minibatches(flags, count):
    assert device(**flags).objective_args["minibatches"] == count
    given = device(objective_args={"minibatches": 5}, **flags)
    assert given.objective_args["minibatches"] == 5


@pytest.mark.parametrize(
    ("machines", "nodes", "weights", "reducers"),
    [(1, 64, 540_000, 1), (64, 4, 540_000, 1), (64, 64, 540_000, 8), (4, 64, 540_000, 4), (8, 8, 10**6, 2)],
)
def test_the_number_of_reducers_follows_the_traffic(machines, nodes, weights, reducers):
    config = Config(runner="cluster", address="auto", nodes=nodes)
    assert resolved(config, Facts(machines=machines, weights=weights)).reducers == reducers


def test_a_saved_run_keeps_its_settings_when_the_defaults_change(tmp_path, monkeypatch):
    """As in a later version that reads the file of this one."""
    given = Config(logdir=str(tmp_path), name="run", env="CartPole-v1", tasks=("vr",))
    config = as_given(resolved(given, KNOWN._replace(is_image=False)), given)
    path = folders.prepare_run_dir(config)
    others = {"a3c": "ppo", "off": "on", "adam": "rmsprop", "mean": "sum"}
    for name, field in FIELDS.items():
        if name not in ("env_args", "task", "network_args", "objective", "objective_args", "tasks", *OF_MACHINE):
            old = field.default
            new = not old if isinstance(old, bool) else others.get(old, old) if isinstance(old, str) else old / 2 + 0.25
            monkeypatch.setattr(field, "default", new)
    for name in (name for name in AUTOMATIC if getattr(config, name) != AUTO and name not in OF_MACHINE):
        monkeypatch.setitem(_RULES, name, lambda config, facts: 7)
    assert folders.saved_config(path) == folders.resume_config(path, {}) == config
    again = resolved(folders.resume_config(path, {}), KNOWN)
    assert as_given(again, given) == config


def test_a_folder_of_another_version_is_refused(tmp_path, monkeypatch):
    path = folders.prepare_run_dir(Config(logdir=str(tmp_path), name="run"))
    file = path / folders.CONFIG
    text = file.read_text()
    file.write_text(text.replace('version = "0.1.0"', 'version = "0.0.3"'))
    assert folders.saved_config(path).agents  # it has the same settings
    file.write_text(text.replace('version = "0.1.0"', 'version = "0.0.3"').replace("hidden = ", "units = "))
    with pytest.raises(ConfigError, match=r"config.toml was made by gunreal 0.0.3; use that version for this run, or"):
        folders.saved_config(path)
    file.write_text(text.replace('version = "0.1.0"\n', ""))
    with pytest.raises(ConfigError, match="was made by an older version of gunreal; use that version for this run"):
        folders.saved_config(path)
    file.write_text("\n".join(line for line in text.split("\n") if not line.startswith("hidden")))
    with pytest.raises(ConfigError, match="config.toml lacks hidden; add it, or start a new run"):
        folders.saved_config(path)


def test_the_values_that_were_used_are_shown_and_not_read(tmp_path):
    save(Config(), tmp_path / "config.toml", {"threads": 2})
    assert "[used]\nthreads = 2\n" in (tmp_path / "config.toml").read_text()
    assert Config(**load(tmp_path / "config.toml")) == Config()


def test_automatic_settings_say_what_they_mean():
    for name in AUTOMATIC:
        assert "auto" in FIELDS[name].metadata["help"], name
        assert getattr(dataclasses.replace(Config(), **{name: AUTO}), name) == AUTO
