"""`gunreal tasks`, `networks`, `objectives`, `envs` and `zoo`: what is installed, and what it needs.

Nothing here loads a framework, and only `gunreal tasks --env` opens an environment.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium

from gunreal.config import flags, folders, plugins
from gunreal.config.fields import AUTO
from gunreal.config.objective import OBJECTIVE
from gunreal.config.packages import is_installed
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.dmlab_levels import LEVELS
from gunreal.envs.dmlab_module import INSTALL
from gunreal.learning.registry import NETWORK
from gunreal.records import card
from gunreal.tasks import recommended, registry

_WIDTH = 100
_KINDS = {"networks": NETWORK, "objectives": OBJECTIVE}
_ABOUT = {
    "tasks": "Lists auxiliary tasks and their options, or describes those that are named.\n"
    "With --env, the list says which tasks fit the environment, and which are recommended there.\n"
    "All flags of `gunreal train` are accepted.",
    "networks": "Lists networks and their options, or describes those that are named.",
    "objectives": "Lists objectives and their options, or describes those that are named.",
    "envs": "Lists environments by family, and how to install those that are missing.",
    "zoo": "Lists trained agents, which all commands take as runs, as in `gunreal evaluate zoo:catch`.\n"
    "Scores are means of new episodes.",
}
# Gymnasium's own environments with discrete actions and observations that the library can learn from.
_CLASSIC = ("Acrobot", "CartPole", "CliffWalking", "FrozenLake", "MountainCar", "Taxi")


def main(name: str, argv: Sequence[str]) -> int:
    """Prints the list with this name, a key of `_ABOUT`. Returns the exit code, 0. Raises ConfigError."""
    program, *words = argv
    flag = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    named, words = (words[:flag], words[flag:]) if name in ("tasks", *_KINDS) else ([], words)
    shown = {"tasks": "tasks [NAME ...] [--env ID] [--tasks module:Class] [--flag value] ..."}
    shown |= {kind: f"{kind} [NAME ...]" for kind in _KINDS}
    if "--help" in words or "-h" in words:
        print(f"usage: {program.removesuffix(name)}{shown.get(name, name)}\n\n{_ABOUT[name]}")
        return 0
    if name == "tasks":
        config, extras = flags.from_flags([program, *words])
        fit = config if "env" in extras.given else None
        given = [task.rpartition("=")[2] for task in config.tasks if task != AUTO]
        advice = [recommended.line(fit.env)] if fit and not named else []
        print("\n\n".join([*tasks(fit, given, config.task, named), *advice]), flush=True)
        return 0
    if words:
        raise ConfigError(f"unexpected argument {words[0]!r}; write {program}")
    found = installed(_KINDS[name], named) if name in _KINDS else envs() if name == "envs" else zoo()
    print("\n\n".join(found), flush=True)
    return 0


def tasks(
    config: Config | None = None,
    given: Iterable[str] = (),
    options: registry.Options | None = None,
    named: Sequence[str] = (),
) -> Iterator[str]:
    """What `installed` yields about tasks and, with a configuration, whether each fits the environment."""
    return installed(registry.TASK, named, None if config is None else _fit(config), given, options)


def installed(
    kind: plugins.Kind,
    named: Sequence[str] = (),
    verdict: Callable[[type], str] | None = None,
    given: Iterable[str] = (),
    options: registry.Options | None = None,
) -> Iterator[str]:
    """A paragraph about every installed plug-in of a kind, or a full description of those that are named.

    Args:
      verdict: what to say about a class besides.
      given: names of plug-ins to list in addition, such as "module:Class".
      options: options by the name of the plug-in, to show in place of the defaults.

    Raises:
      ConfigError: there is no plug-in with one of the names.
    """
    known = plugins.available(kind)
    for name in named or [*sorted(known), *(name for name in given if name not in known)]:
        try:
            cls = plugins.load_class(kind, name)
            values = (options or {}).get(cls.name, {})
            if values:
                plugins.build(kind, cls, values)  # which refuses unknown options
        except ConfigError as error:
            if named:
                raise
            yield f"{name}\n  cannot be used: {error}"
            continue
        origin = name
        if point := known.get(name):
            origin = f"{point.dist.name if point.dist else 'gunreal'}, {point.value}"
        about = inspect.getdoc(cls) or "no description"
        about = textwrap.indent(about, "  ").strip() if named else about.partition("\n")[0]
        lines = [f"{cls.name}: {about}" + "\n" * bool(named)]
        lines += [f"options: {', '.join(_options(cls, values)) or 'none'}", f"from: {origin}"]
        lines += [verdict(cls)] if verdict else []
        yield "\n  ".join(lines)


def _fit(config: Config) -> Callable[[type], str]:
    from gunreal.learning.registry import interface
    from gunreal.learning.task import of_tasks
    from gunreal.runtime import memory
    from gunreal.train import check_fit

    spec, _, config = interface(config)

    def verdict(cls: type[Any]) -> str:
        try:
            name, options = f"{cls.__module__}:{cls.__qualname__}", {cls.name: config.task.get(cls.name, {})}
            tasks, alone = registry.load_tasks([name], options), dataclasses.replace(config, tasks=(name,))
            of = of_tasks(spec, tasks)
            if config.runner != "device":
                memory.check(alone, of, tasks)
            check_fit(config, of, tasks)
        except ConfigError as error:
            return f"does not fit: {str(error).partition(f'does not fit {config.env}: ')[2] or error}"
        return f"fits {config.env}"

    return verdict


def _options(cls: type, given: Mapping[str, Any]) -> Iterator[str]:
    """The options of a class, with the values that are given or else with their defaults."""
    for name, default in plugins.defaults(cls).items():
        value = given.get(name, default)
        yield name if value is dataclasses.MISSING else f"{name}={value!r}"


def zoo() -> Iterator[str]:
    """A paragraph about every trained agent: its environment, its score and the command that trains such an agent."""
    for name, folder in folders.zoo().items():
        config, step, scores, command = card.read(folder)
        score = f"score {scores['mean']:.2f} (standard deviation {scores['std']:.2f}, {scores['episodes']} episodes)"
        yield f"{folders.ZOO}{name}: {config.env}, {score}, {step:,} agent steps\n  {command}"


def envs() -> Iterator[str]:
    """A paragraph about every family of environments: how to get it if it is missing, and the ids."""
    own = {name: str(spec.entry_point) for name, spec in gymnasium.registry.items() if spec.namespace == "gunreal"}
    own = {name: entry for name, entry in own.items() if not entry.startswith("gunreal_emulator")}
    mazes = [name for name, entry in own.items() if "vizdoom" in entry]
    yield _family("Small games of gunreal", "", [name for name in own if name not in mazes])
    yield _family("Atari 2600 games, from ale-py", "", _registered("ale_py", r"ALE/\w+-v5"))
    vizdoom = _missing("vizdoom", "pip install 'gunreal[vizdoom]'")
    yield _family("First-person mazes of gunreal, in ViZDoom", vizdoom, mazes)
    yield _family("ViZDoom's scenarios", vizdoom, _registered("vizdoom.gymnasium_wrapper", r"Vizdoom\w+-v\d+"))
    lab = _missing("deepmind_lab", INSTALL)
    yield _family("DeepMind Lab: these and all other levels, by their path", lab, [f"dmlab/{name}" for name in LEVELS])
    yield _family("Gymnasium", "", _newest(_CLASSIC))
    box2d = _missing("Box2D", "pip install 'gymnasium[box2d]'")
    yield _family("Gymnasium, box2d", box2d, _newest(["LunarLander"]))
    for package, names in _others().items():
        yield _family(f"From the package {package}", "", names)
    yield "Any other Gymnasium environment with discrete actions: --env module:Id imports the module that registers it."


def _family(title: str, missing: str, names: Iterable[str]) -> str:
    ids = textwrap.fill("  ".join(names), _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return f"{title}{missing}\n{ids}".rstrip()


def _missing(module: str, remedy: str) -> str:
    return "" if is_installed(module) else f" (not installed: {remedy})"


def _registered(module: str, pattern: str) -> list[str]:
    """Ids of a package that registers them when it is imported. None if it is not installed."""
    if not is_installed(module.partition(".")[0]):
        return []
    gymnasium.register_envs(importlib.import_module(module))
    return sorted(name for name in gymnasium.registry if re.fullmatch(pattern, name))


def _newest(names: Iterable[str]) -> list[str]:
    """The ids with the highest versions."""
    versions = {
        name: [spec.version or 0 for spec in gymnasium.registry.values() if (spec.namespace, spec.name) == (None, name)]
        for name in names
    }
    return [f"{name}-v{max(found)}" for name, found in versions.items() if found]


def _others() -> dict[str, list[str]]:
    """Ids that other installed packages registered with Gymnasium, by package."""
    found: dict[str, list[str]] = {}
    for name, spec in gymnasium.registry.items():
        package = spec.entry_point.partition(".")[0].partition(":")[0] if isinstance(spec.entry_point, str) else ""
        if package not in ("", "gymnasium", "gunreal", "gunreal_emulator", "ale_py", "vizdoom"):
            found.setdefault(package, []).append(name)
    return found
