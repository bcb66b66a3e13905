"""Gymnasium environments with discrete actions, whose observations become frames for the replay ring."""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import gymnasium
import numpy as np
from gymnasium import spaces

import gunreal.envs  # noqa: F401  (registers the library's own ids)
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.step import Step

_IMAGE_KEYS = ("image", "rgb", "pixels", "screen", "observation")  # preferred if several entries are images
_DRAWN_TO_SIZE = ("gunreal/NavMaze", "gunreal/SeekAvoid")  # they draw at the frame size


class GenericEnv:
    """`num_envs` copies of a Gymnasium environment. `send` steps them one after the other. See `VectorEnv`."""

    def __init__(self, config: Config, num_envs: int, extra_keys: Sequence[str] = ()):
        self._envs = [_open(config) for _ in range(num_envs)]
        self.num_envs = num_envs
        env = self._envs[0]
        try:
            self._first_action, self.num_actions = _discrete(config, env.action_space)
            self._key = _image_key(config, env.observation_space)
            space: Any = env.observation_space if self._key is None else env.observation_space[self._key]  # type: ignore
            self.frame, self.dtype, self._convert = _converter(config, space)
        except ConfigError:
            self.close()
            raise
        self._extra_keys = extra_keys
        self._step: Step | None = None

    def send(self, actions: np.ndarray, reset: np.ndarray, seeds: np.ndarray) -> None:
        """Does the whole step. See `VectorEnv`."""
        n = self.num_envs
        frame = np.empty((n, *self.frame), self.dtype)
        reward, terminated, truncated = np.zeros(n, np.float32), np.zeros(n, bool), np.zeros(n, bool)
        extra: dict[str, list] = {key: [] for key in self._extra_keys}
        for i, env in enumerate(self._envs):
            if reset[i]:
                observation, info = env.reset(seed=int(seeds[i]))
            else:
                observation, reward[i], terminated[i], out_of_time, info = env.step(
                    self._first_action + int(actions[i])
                )
                truncated[i] = out_of_time and not terminated[i]
            self._convert(observation if self._key is None else observation[self._key], frame[i])
            for key, values in extra.items():
                values.append(_lookup(key, observation, info))
        self._step = Step(frame, reward, terminated, truncated, {k: np.stack(v) for k, v in extra.items()})

    def recv(self) -> Step:
        """Returns the result of `send`. See `VectorEnv`."""
        step, self._step = self._step, None
        if step is None:
            raise RuntimeError("recv() without send()")
        return step

    def close(self) -> None:
        """Closes the environments."""
        while self._envs:
            self._envs.pop().close()


def _open(config: Config) -> gymnasium.Env:
    if config.env.startswith("dmlab/"):
        from gunreal.envs.dmlab import open_level

        return open_level(config)
    module, _, env_id = config.env.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
    except ModuleNotFoundError as e:
        if not e.name or not f"{module}.".startswith(f"{e.name}."):
            raise  # the module exists, and one of its own imports failed
        raise ConfigError(f"no module {module!r} for {config.env}; install it or correct the id (module:Id)") from None
    if env_id not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            import ale_py

            gymnasium.register_envs(ale_py)  # ids such as PongNoFrameskip-v4
    if env_id.startswith("Vizdoom") and env_id not in gymnasium.registry:
        _register_vizdoom(config)
    args = config.env_args
    if env_id.startswith(_DRAWN_TO_SIZE):
        args = {"pixels": config.observation, "size": config.frame_size} | args
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **args)
    except gymnasium.error.DependencyNotInstalled as e:
        raise ConfigError(f"{config.env} needs a missing package: {e}") from None
    except gymnasium.error.UnregisteredEnv:
        raise ConfigError(_unknown(env_id)) from None
    except TypeError as e:
        if "unexpected keyword" not in str(e):
            raise
        raise ConfigError(f"env_args do not fit {config.env}: {str(e).partition(' was raised')[0]}") from None
    except gymnasium.error.Error as e:
        raise ConfigError(f"{config.env}: {' '.join(str(e).split())}") from None


def _register_vizdoom(config: Config) -> None:
    try:
        importlib.import_module("vizdoom.gymnasium_wrapper")
    except ModuleNotFoundError:
        raise ConfigError(f"{config.env} needs a missing package; run pip install gunreal[vizdoom]") from None


def _unknown(env_id: str) -> str:
    known: dict[str, str] = {}
    for name in gymnasium.registry:
        known.setdefault(name.split("/")[-1].lower(), name)
    close = difflib.get_close_matches(env_id.split("/")[-1].lower(), known)
    hint = f"did you mean {' or '.join(known[name] for name in close)}?" if close else "is its package installed?"
    return f"unknown environment {env_id!r}: {hint} (write module:Id to import a module first)"


def _discrete(config: Config, space: spaces.Space) -> tuple[int, int]:
    if not isinstance(space, spaces.Discrete):
        kind = "continuous" if isinstance(space, spaces.Box) else type(space).__name__
        raise ConfigError(f"{config.env} has {kind} actions; wrap it so that its action_space is Discrete")
    return int(space.start), int(space.n)


def _is_image(space: spaces.Space) -> TypeGuard[spaces.Box]:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def _image_key(config: Config, space: spaces.Space) -> str | None:
    """The entry of a `Dict` observation to learn from. None for other observations."""
    wanted = config.image_key
    if not isinstance(space, spaces.Dict):
        if wanted:
            raise ConfigError(f"image_key {wanted!r}: {config.env} has no Dict observation; leave it out")
        return None
    images = [key for key, entry in space.items() if _is_image(entry)]
    if wanted in images:
        return wanted
    if wanted and images:
        raise ConfigError(f"image_key {wanted!r} is not an image observation of {config.env}; choose one of {images}")
    preferred = images if len(images) == 1 else [key for key in _IMAGE_KEYS if key in images]
    if preferred:
        return preferred[0]
    if images:
        raise ConfigError(f"{config.env} has several image observations {images}; choose one with --image_key")
    raise ConfigError(f"{config.env} observes {list(space)}, none a uint8 image; wrap it with FlattenObservation")


Converter = Callable[[Any, np.ndarray], None]  # writes an observation to one row of the frames


def _converter(config: Config, space: spaces.Space) -> tuple[tuple[int, ...], str, Converter]:
    """Shape and dtype of a frame, and a function that converts an observation to a frame."""
    if _is_image(space):
        channels = 3 if config.observation == "rgb" else 1
        return (channels, config.frame_size, config.frame_size), "uint8", _image_converter(config, space.shape)
    if config.observation == "rgb":
        raise ConfigError(f"observation is rgb, but {config.env} does not observe a uint8 image; leave it out")
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ConfigError(f"{config.env} observes {type(space).__name__}; wrap it to give a Box (image or vector)")
    scale = 255 if isinstance(space, spaces.Box) and space.dtype == np.uint8 else 1

    def convert(observation: Any, out: np.ndarray) -> None:
        out[:] = np.asarray(spaces.flatten(space, observation))
        if scale != 1:
            out /= scale

    return (spaces.flatdim(space),), "float32", convert


def _image_converter(config: Config, shape: tuple[int, ...]) -> Converter:
    """A converter for images `[H, W]`, `[H, W, c]` or `[c, H, W]`. In rgb mode it repeats a gray image three times."""
    size = config.frame_size
    first = len(shape) == 3 and shape[-1] not in (1, 3)
    channels = 1 if len(shape) == 2 else shape[0 if first else -1]
    if channels not in (1, 3):
        raise ConfigError(f"{config.env} observes images of shape {shape}; wrap it to give gray or RGB images")
    resize = (shape[1:] if first else shape[:2]) != (size, size)
    to_gray = channels == 3 and config.observation == "gray"
    if resize or to_gray:
        import cv2  # 17 MB of memory

        cv2.setNumThreads(0)  # the agent processes already use all cores

    def convert(observation: np.ndarray, out: np.ndarray) -> None:
        image = np.asarray(observation)
        if first:
            image = image.transpose(1, 2, 0)
        if to_gray:
            image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        if resize:
            image = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
        out[:] = image if image.ndim == 2 else image.transpose(2, 0, 1)

    return convert


def _lookup(key: str, observation: Any, info: dict[str, Any]) -> np.ndarray:
    if isinstance(observation, dict) and key in observation:
        return np.asarray(observation[key])
    if key in info:
        return np.asarray(info[key])
    there = [*(observation if isinstance(observation, dict) else ()), *info]
    hint = "; ViZDoom mazes and DeepMind Lab provide it with --env_args depth=true" if key == "depth" else ""
    raise ConfigError(f"a task records {key!r}, but the environment's observation and info have only {there}{hint}")
