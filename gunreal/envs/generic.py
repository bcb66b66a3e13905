"""Gymnasium environments with discrete actions, whose observations become frames for the replay ring."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import math
import re
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

import gunreal.envs  # noqa: F401  (registers the library's own ids)
from gunreal.config.packages import package
from gunreal.config.plugins import FIND_MODULE, is_missing, place
from gunreal.config.schema import Config, ConfigError, did_you_mean
from gunreal.config.warning import warn
from gunreal.envs.dmlab_levels import own_name
from gunreal.envs.flat import flat
from gunreal.envs.functional import FunctionalEnv, Played, adapted
from gunreal.envs.raw import Raw, choose, choose_vectors, converter, finite, part_of
from gunreal.envs.step import Step

_DRAWN_TO_SIZE = ("gunreal/NavMaze", "gunreal/SeekAvoid")  # they draw at the frame size
_RETURNS = {"reset": (2, "(observation, info)"), "step": (5, "(observation, reward, terminated, truncated, info)")}
_ENDING = re.compile(r"(noframeskip|deterministic|-ram)*(-v\d+)?$")  # of an id in small letters


class GenericEnv:
    """`num_envs` copies of a Gymnasium environment that step one after the other. See `VectorEnv`."""

    def __init__(self, config: Config, num_envs: int, extra_keys: Sequence[str] = ()):
        self._name, self.num_envs = config.env, num_envs
        self._envs: list[gymnasium.Env] = []
        try:
            for _ in range(num_envs):
                self._envs.append(open_env(config))
            env = self._envs[0]
            _check_spaces(config, env)
            first_action, self.num_actions = _discrete(config, env.action_space)
            space, key = choose(config, env.observation_space)
            names = list(env.observation_space) if isinstance(env.observation_space, spaces.Dict) else []
            vectors = choose_vectors(config, env.observation_space, key)
            others = tuple(name for name in names if name != key and name not in vectors)
            self.raw = Raw(space, key, first_action, others, _action_names(env, self.num_actions), vectors)
            self.frame, self.dtype, self._convert = converter(config, self.raw.space)
        except BaseException:
            self.close()  # also those that were opened before another one failed
            raise
        self._extra_keys = extra_keys

    def step(self, actions: np.ndarray, reset: np.ndarray, seeds: np.ndarray) -> Step:
        """Steps all copies. See `VectorEnv`."""
        n = self.num_envs
        frame, vector = np.empty((n, *self.frame), self.dtype), np.empty((n, self.raw.numbers), np.float32)
        reward, terminated, truncated = np.zeros(n, np.float32), np.zeros(n, bool), np.zeros(n, bool)
        extra: dict[str, list] = {key: [] for key in self._extra_keys}
        for i, env in enumerate(self._envs):
            if reset[i]:
                observation, info = self._values("reset", env.reset(seed=int(seeds[i])))
            else:
                result = env.step(self.raw.first_action + int(actions[i]))
                observation, given, terminated[i], out_of_time, info = self._values("step", result)
                truncated[i] = out_of_time and not terminated[i]
                try:
                    reward[i] = given
                except (TypeError, ValueError):  # such as an array
                    reward[i] = math.nan
                if not math.isfinite(reward[i]):
                    raise ValueError(f"{self._name} returned the reward {given!r}; rewards must be finite numbers")
            if self.raw.key is not None:
                observed = part_of(self._name, env.observation_space, observation, self.raw.key)
            else:
                observed = observation
            self._convert(observed, frame[i])
            vector[i] = self.raw.vector(self._name, observation)
            for key, values in extra.items():
                values.append(_lookup("reset" if reset[i] else "step", key, observation, info))
        if self.dtype == "float32":
            finite(self._name, frame)
        return Step(frame, reward, terminated, truncated, {k: np.stack(v) for k, v in extra.items()}, vector=vector)

    def check_unwrapped(self, seed: int) -> None:
        """Raises ConfigError if an environment below its wrappers returns another number of values than Gymnasium's.

        Gymnasium's own wrapper for time limits takes the values apart before `step` sees them.
        """
        env = self._envs[0].unwrapped
        self._values("reset", env.reset(seed=seed))
        self._values("step", env.step(env.action_space.sample()))

    def close(self) -> None:
        """Closes the environments."""
        while self._envs:
            try:
                self._envs.pop().close()
            except Exception as error:  # nothing is lost, and others are still to be closed
                warn(f"{self._name} failed when it was closed: {place(error)}")

    def _values(self, method: str, result: Any) -> Any:
        """What a method of the environment returned. Raises ConfigError if it is another number of values."""
        count = len(result) if isinstance(result, tuple | list) else 1
        wanted, names = _RETURNS[method]
        if count == wanted:
            return result
        raise ConfigError(
            f"{self._name}.{method}() returned {count} value{'s' * (count != 1)}; Gymnasium's {method} returns {names}"
        )


class _Doom(gymnasium.Wrapper):
    """One of ViZDoom's own environments. At its time limit it is only truncated, and it ends on its last picture.

    ViZDoom marks a time limit as both kinds of end. Its engine has no picture after an end, so the environment returns
    a black one. A truncated return would contain its value, and pixel control would take it for a large change.
    """

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        self._seen, info = self.env.reset(**options)
        return self._seen, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not terminated:
            self._seen = observation
        elif truncated and self.get_wrapper_attr("game").is_episode_timeout_reached():
            terminated = False
        return self._seen, reward, terminated, truncated, info


def open_env(config: Config) -> gymnasium.Env:
    """Opens `config.env`, wrapped by `flat`. Raises ConfigError as `gunreal.envs.make.make` does."""
    return flat(config, _open(config))


def _open(config: Config) -> gymnasium.Env:
    if config.env.startswith("dmlab/"):
        from gunreal.envs.dmlab import open_level

        return open_level(config)
    if name := own_name(config.env):
        raise ConfigError(f"{config.env} has no discrete actions; use --env {name}, which is the same level")
    module, _, env_id = config.env.rpartition(":")
    _import(config, module)
    if module and env_id not in gymnasium.registry and callable(found := getattr(sys.modules[module], env_id, None)):
        return _from_function(config, found)
    if env_id not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            import ale_py

            gymnasium.register_envs(ale_py)  # to name the game that is meant
    if env_id.startswith("Vizdoom") and env_id not in gymnasium.registry:
        _register_vizdoom(config)
    if env_id not in gymnasium.registry:  # gymnasium.make would take Pong for Pong-v4, which has other rules
        raise ConfigError(_unknown(env_id, module))
    if _is_atari(gymnasium.registry[env_id]):
        raise ConfigError(_without_protocol(config.env, env_id))
    args = config.env_args
    if env_id.startswith(_DRAWN_TO_SIZE):
        args = {"pixels": config.observation, "size": config.frame_size} | args
    try:
        env = gymnasium.make(env_id, disable_env_checker=True, **args)
        return _Doom(env) if env_id.startswith("Vizdoom") else env
    except ConfigError:
        raise
    except gymnasium.error.DependencyNotInstalled as e:
        raise ConfigError(f"{config.env} needs a missing package: {e}") from None
    except ModuleNotFoundError as e:
        raise ConfigError(f"{config.env} needs a missing package: {e}; install it") from e
    except ImportError as e:  # such as a missing library of the system
        raise ConfigError(f"{config.env} cannot be imported: {e}") from e
    except (TypeError, ValueError, KeyError, AssertionError) as e:
        if not config.env_args:
            raise
        what = str(e).partition(" was raised")[0] if isinstance(e, TypeError | ValueError) else repr(e)
        raise ConfigError(f"env_args do not fit {config.env}: {what}") from e
    except gymnasium.error.Error as e:
        raise ConfigError(f"{config.env}: {e}") from None


def _import(config: Config, module: str) -> None:
    """Imports the module that `config.env` names, which may register environments. It may be empty."""
    try:
        if module.startswith("."):
            raise ModuleNotFoundError(name=module)  # relative to nothing
        if module:
            importlib.import_module(module)
    except ModuleNotFoundError as e:
        if not is_missing(e, module):
            raise  # the module exists, and one of its own imports failed
        raise ConfigError(f"no module {module!r} for {config.env}; {FIND_MODULE}") from None


def _from_function(config: Config, function: Callable[..., Any]) -> gymnasium.Env:
    """Calls the function or class that `config.env` names with the `env_args`."""
    if config.env.partition(":")[0].partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(
            f"{config.env} belongs to Python itself and makes no environment; name a function of your own"
        )
    try:
        env = function(**config.env_args)
    except TypeError as e:
        if e.__traceback__ and e.__traceback__.tb_next:
            raise  # from inside the function
        raise ConfigError(f"env_args do not fit {config.env}: {e}") from None
    except ValueError as e:
        if not config.env_args:
            raise
        raise ConfigError(f"env_args do not fit {config.env}: {e}") from e
    if isinstance(env, gymnasium.Env):
        return env
    if functional := adapted(env):
        _check_spaces(config, functional)
        return Played(functional)
    raise ConfigError(f"{config.env} returned a {_of_others(env)}")


# What to do with the environments of other interfaces, by the package that a class comes from.
_OTHERS = {
    "gym": "wrap it with shimmy.GymV26CompatibilityV0 or GymV21CompatibilityV0",
    "dm_env": "wrap it with shimmy.DmControlCompatibilityV0, or as the page Environments shows",
    "pettingzoo": "it has several agents; wrap it so that the policy plays one of them, as the page Environments shows",
}


def _of_others(env: Any) -> str:
    """The class of what is not an environment for gunreal, and what to do."""
    packages = {cls.__module__.partition(".")[0] for cls in type(env).__mro__}
    fix = next(
        (_OTHERS[name] for name in _OTHERS if name in packages),
        "return a gymnasium.Env, or an environment as JAX functions",
    )
    return f"{type(env).__module__}.{type(env).__qualname__}; {fix}"


def _check_spaces(config: Config, env: gymnasium.Env | FunctionalEnv) -> None:
    for name in ("action_space", "observation_space"):
        if not hasattr(env, name):
            raise ConfigError(f"{config.env} has no {name}; set it in the class or in __init__")


def _register_vizdoom(config: Config) -> None:
    package("vizdoom", f'{config.env} needs a missing package; run pip install "gunreal[vizdoom]"')
    importlib.import_module("vizdoom.gymnasium_wrapper")


def _is_atari(spec: EnvSpec) -> bool:
    return re.match(r"(ale_py|gunreal_emulator)\b", _module_of(spec)) is not None


def _module_of(spec: EnvSpec) -> str:
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")


def _without_protocol(name: str, env_id: str) -> str:
    game = gymnasium.registry[env_id].kwargs.get("game")
    games = {spec.kwargs.get("game"): own for own, spec in gymnasium.registry.items() if own.startswith("ALE/")}
    hint = f"use --env {games[game]}" if game in games else "choose one of gunreal envs"
    return f"{name} is {'an id' if 'ALE/' in env_id else 'an old id'} without gunreal's Atari protocol; {hint}"


def similar(env_id: str, module: str = "") -> list[str]:
    """At most two names like `env_id` that gunreal can open. Namespaces and versions may differ.

    With a module, they are ids that its package has registered, and functions and classes of the module.
    """
    known: dict[str, str] = {}
    package = module.partition(".")[0]
    for name, spec in gymnasium.registry.items():
        usable = spec.entry_point and (name.startswith("ALE/") or not _is_atari(spec))  # not for vectors only
        usable = usable and (not module or _module_of(spec).partition(".")[0] == package)
        if usable and (not spec.namespace or _bare(name) not in known):
            known[_bare(name)] = name  # the newest version
    if module:
        known |= {_bare(name): name for name, found in vars(sys.modules[module]).items() if callable(found)}
    wanted = _bare(env_id)
    close = [wanted] if wanted in known else difflib.get_close_matches(wanted, known, 2, cutoff=0.7)
    return [known[name] for name in close]


def _bare(name: str) -> str:
    """The name of an environment without its namespace and version, in small letters."""
    return _ENDING.sub("", name.rpartition("/")[2].lower())


def _unknown(env_id: str, module: str) -> str:
    if module:
        close = similar(env_id, module)[:1]
        hint = did_you_mean(f"{module}:{close[0]}").replace("ale_py:ALE/", "ALE/") if close else "correct the name"
        if _is_in_old_gym(env_id):
            hint = f"the old gym has it; {_OTHERS['gym']} in a function of your own"
        elif isinstance(vars(sys.modules[module]).get(env_id), types.ModuleType):
            hint = "it is a module; name a function or class in it"
        return f"module {module!r} has no environment, function or class {env_id!r}; {hint}"
    close = similar(env_id)
    hint = did_you_mean(*close) if close else "is its package installed?"
    return f"unknown environment {env_id!r}: {hint} (write module:Id to import a module first)"


def _is_in_old_gym(env_id: str) -> bool:
    registration = sys.modules.get("gym.envs.registration")
    registry = getattr(registration, "registry", {})
    return env_id in getattr(registry, "env_specs", registry)


def _discrete(config: Config, space: spaces.Space) -> tuple[int, int]:
    if not isinstance(space, spaces.Discrete):
        kind = "continuous" if isinstance(space, spaces.Box) else type(space).__name__
        raise ConfigError(f"{config.env} has {kind} actions; wrap it so that its action_space is Discrete")
    return int(space.start), int(space.n)


def _action_names(env: gymnasium.Env, count: int) -> tuple[str, ...]:
    """The names of the actions, if an environment gives them as ALE's do."""
    try:
        names = tuple(map(str, env.get_wrapper_attr("get_action_meanings")()))
    except Exception:  # it does not, or in another way
        return ()
    return names if len(names) == count else ()


def _lookup(method: str, key: str, observation: Any, info: dict[str, Any]) -> np.ndarray:
    if isinstance(observation, dict) and key in observation:
        return np.asarray(observation[key])
    if key in info:
        return np.asarray(info[key])
    there = [*(observation if isinstance(observation, dict) else ()), *info]
    hint = "; ViZDoom mazes and DeepMind Lab provide it with --env_args depth=true" if key == "depth" else ""
    raise ConfigError(f"a task records {key!r}, but the observation and info of {method}() have only {there}{hint}")
