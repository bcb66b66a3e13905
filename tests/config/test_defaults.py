"""`defaults.txt` has the resolved settings of typical runs, so that a default that changes is one readable difference.

`python tests/config/test_defaults.py` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from gunreal.config import plugins
from gunreal.config.checks import check, without_effect
from gunreal.config.files import load
from gunreal.config.objective import OBJECTIVE
from gunreal.config.resolve import OF_MACHINE, Facts, resolved
from gunreal.config.schema import FIELDS, Config, is_auto
from gunreal.learning.registry import NETWORK
from gunreal.tasks.registry import TASK

FILE = Path(__file__).with_name("defaults.txt")
CONFIGS = Path(__file__).parents[2] / "configs"
NOT_LEARNING = {"env_args", "image_key", "vector_keys", "task", "network_args", "objective_args", "logdir", "name"}
NOT_LEARNING |= {"init", "checkpoint_minutes", "keep_checkpoints", "metrics_seconds", "track", "eval_steps"}
NOT_LEARNING |= {"eval_minutes", "backend", "env_timeout", "node_timeout", "address"}
MACHINE = Facts(cores=8, memory=2**34, has_gpu=False, machines=4, weights=690_000)
ATARI = MACHINE._replace(is_image=True, emulator="own")
IMAGES, VECTORS = MACHINE._replace(is_image=True), MACHINE._replace(is_image=False)
CLUSTER = {"runner": "cluster", "address": "auto"}
RUNS: dict[str, tuple[dict[str, Any], Facts]] = {
    "A3C with V-trace": ({"objective": "a3c"}, ATARI),
    "A3C with epsilon": ({"objective": "a3c", "objective_args": {"correction": "epsilon"}}, ATARI),
    "serial run": ({"runner": "serial"}, ATARI),
    "device run": ({"runner": "device", "backend": "jax"}, ATARI),
    "device run with 1,024 agents": ({"runner": "device", "backend": "jax", "agents": 1024}, ATARI),
    "device run with A3C": ({"runner": "device", "backend": "jax", "objective": "a3c"}, ATARI),
    "device run with DQN": ({"runner": "device", "backend": "jax", "objective": "dqn"}, ATARI),
    "cluster": (CLUSTER, ATARI),
    "vectors": ({"env": "CartPole-v1"}, VECTORS),
    "Catch": ({"env": "gunreal/Catch-v0"}, IMAGES),
    "ViZDoom maze": ({"env": "gunreal/NavMazeStatic-v0"}, IMAGES),
    "DeepMind Lab": ({"env": "dmlab/nav_maze_static_01"}, IMAGES),
    "images in a Dict": ({"env": "module:make"}, IMAGES._replace(image_key="rgb", vector_keys="compass,goal")),
    "long run": ({"steps": 2_000_000}, ATARI),
    "run of 10M steps": ({"steps": 10_000_000}, ATARI),
    "long device run": ({"runner": "device", "backend": "jax", "steps": 10_000_000}, ATARI),
    "GPU": ({}, ATARI._replace(has_gpu=True)),
}


def sections() -> Iterator[str]:
    """The paragraphs of the file: the default run, what differs in others, and the options of plug-ins."""
    default = _values(Config(), ATARI)
    yield _paragraph("default run", default)
    for title, (fields, facts) in RUNS.items():
        yield _paragraph(f"{title}: differences", _differences(_values(Config(**fields), facts), default))
    for path in sorted(CONFIGS.glob("*.toml")):
        config = Config(**load(path))
        found = _differences(_values(config, ATARI if config.env.startswith("ALE/") else IMAGES), default)
        notes = dict(re.findall(r"^(\w+) = .*?  (# .*)$", path.read_text(), re.MULTILINE))
        found = {name: f"{value}  {notes[name]}" if name in notes else value for name, value in found.items()}
        yield _paragraph(f"configs/{path.name}: differences", found)
    for kind in (TASK, NETWORK, OBJECTIVE):
        for name, point in sorted(plugins.available(kind).items()):
            if point.value.startswith("gunreal."):
                options = plugins.defaults(plugins.load_class(kind, name))
                yield _paragraph(f"{kind.noun} {name}", {key: repr(value) for key, value in options.items()})


def _values(config: Config, facts: Facts) -> dict[str, str]:
    config = resolved(config, facts)
    return {name: "without effect" if is_auto(config, name) else repr(getattr(config, name)) for name in FIELDS}


def _differences(values: dict[str, str], default: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value != default[name]}


def _paragraph(title: str, values: dict[str, str]) -> str:
    return "\n".join([f"## {title}", *(f"{name} = {value}" for name, value in values.items())])


def text() -> str:
    """The contents of the file."""
    return "\n\n".join(["# Resolved settings. `python tests/config/test_defaults.py` writes this file.", *sections()])


def test_resolved_settings_are_those_of_the_file():
    assert text() + "\n" == FILE.read_text(), (
        "settings have changed; if that is right, run python tests/config/test_defaults.py"
    )


def test_the_papers_files_set_all_that_has_an_effect_on_learning():
    """So they reproduce an experiment with any defaults."""
    for path in CONFIGS.glob("*.toml"):
        assert not left_out(Config(**load(path)), load(path)), path.name
        check(Config(**load(path)))


def left_out(config: Config, given: Collection[str]) -> list[str]:
    """The fields that are not given, although they may have an effect on learning."""
    others = without_effect(config) | {*NOT_LEARNING, *OF_MACHINE}
    return [name for name in FIELDS if name not in given and name not in others]


if __name__ == "__main__":
    FILE.write_text(text() + "\n")
