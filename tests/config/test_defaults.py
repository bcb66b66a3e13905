"""`defaults.txt` has the resolved settings of typical runs, so that a default that changes is one readable difference.

`python tests/config/test_defaults.py` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gunreal.config import plugins
from gunreal.config.files import load
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import AUTO, FIELDS, Config
from gunreal.learning.registry import NETWORK
from gunreal.tasks.registry import TASK

FILE = Path(__file__).with_name("defaults.txt")
CONFIGS = Path(__file__).parents[2] / "configs"
MACHINE = Facts(cores=8, memory=2**34, has_gpu=False, machines=4, weights=690_000)
ATARI = MACHINE._replace(is_image=True, emulator="own")
IMAGES, VECTORS = MACHINE._replace(is_image=True), MACHINE._replace(is_image=False)
CLUSTER = {"cluster": "auto"}
RUNS: dict[str, tuple[dict[str, Any], Facts]] = {
    "A3C with V-trace": ({"algorithm": "a3c"}, ATARI),
    "A3C with epsilon": ({"algorithm": "a3c", "correction": "epsilon"}, ATARI),
    "serial run": ({"serial": True}, ATARI),
    "device run": ({"runner": "device", "backend": "jax"}, ATARI),
    "device run with 1,024 agents": ({"runner": "device", "backend": "jax", "agents": 1024}, ATARI),
    "device run with A3C": ({"runner": "device", "backend": "jax", "algorithm": "a3c"}, ATARI),
    "device run with DQN": ({"runner": "device", "backend": "jax", "algorithm": "dqn"}, ATARI),
    "cluster": (CLUSTER, ATARI),
    "vectors": ({"env": "CartPole-v1"}, VECTORS),
    "Catch": ({"env": "gunreal/Catch-v0"}, IMAGES),
    "ViZDoom maze": ({"env": "gunreal/NavMazeStatic-v0"}, IMAGES),
    "DeepMind Lab": ({"env": "dmlab/nav_maze_static_01"}, IMAGES),
    "images in a Dict": ({"env": "module:make"}, IMAGES._replace(image_key="rgb")),
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
        found = _values(config, ATARI if config.env.startswith("ALE/") else IMAGES)
        yield _paragraph(f"configs/{path.name}: differences", _differences(found, default))
    for kind in (TASK, NETWORK):
        for name, point in sorted(plugins.available(kind).items()):
            if point.value.startswith("gunreal."):
                options = plugins.defaults(plugins.load_class(kind, name))
                yield _paragraph(f"{kind.noun} {name}", {key: repr(value) for key, value in options.items()})


def _values(config: Config, facts: Facts) -> dict[str, str]:
    config = resolved(config, facts)
    return {name: "without effect" if (x := getattr(config, name)) == AUTO else repr(x) for name in FIELDS}


def _differences(values: dict[str, str], default: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value != default[name]}


def _paragraph(title: str, values: dict[str, str]) -> str:
    return "\n".join([f"## {title}", *(f"{name} = {value}" for name, value in values.items())])


def text() -> str:
    """The contents of the file."""
    return "\n\n".join(["# Resolved settings. `python tests/config/test_defaults.py` writes this file.", *sections()])


def test_resolved_settings_are_those_of_the_file():
    assert text() + "\n" == FILE.read_text(), "settings have changed; if so intended, run tests/config/test_defaults.py"


def test_the_papers_files_set_all_that_has_an_effect_on_learning():
    """They reproduce an experiment with any defaults."""
    for path in CONFIGS.glob("*.toml"):
        config, given = Config(**load(path)), load(path)
        expected = [name for name in FIELDS if name in LEARNING and not _has_no_effect(name, config)]
        assert not [name for name in expected if name not in given], path.name


LEARNING = ["env", "protocol", "observation", "frame_size", "frame_stack", "normalize_observations", "reward_clip", "tasks", "task_share", "t_max", "replay_size", "replay_fill", "steps", "seed", "runner", "agents", "agents_per_process", "predictors", "trainers", "run_ahead", "scheduler", "scheduler_seconds", "max_batch", "backend", "network", "first_stride", "hidden", "min_batch", "optimizer", "learning_rate", "learning_rate_end", "rms_decay", "rms_initial", "beta1", "beta2", "epsilon", "max_grad_norm", "discount", "algorithm", "entropy", "entropy_end", "reduction", "normalize_returns", "value_weight", "correction", "precision", "transfer", "log_epsilon", "reducers", "quorum", "rate_scaling", "warmup", "sync", "gradient_dtype"]


def _has_no_effect(name: str, config: Config) -> bool:
    return (
        (name in ("rms_decay", "rms_initial") and config.optimizer != "rmsprop")
        or (name in ("beta1", "beta2") and config.optimizer != "adam")
        or (name in ("task_share", "replay_size", "replay_fill") and not config.tasks)
        or (name in ("reducers", "quorum", "rate_scaling", "warmup", "sync", "gradient_dtype") and not config.cluster)
        or (name == "warmup" and config.rate_scaling == "off")
        or (name == "scheduler_seconds" and config.scheduler == "off")
        or (name == "protocol" and not config.env.startswith("ALE/"))
        or (name == "first_stride" and config.network != "large")
    )


if __name__ == "__main__":
    FILE.write_text(text() + "\n")
