"""The environments of device runs: found by the configured name, and their observations as frames."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from gunreal.config.schema import Config, ConfigError
from gunreal.envs import catch_functional, maze_functional
from gunreal.envs.functional import FunctionalEnv, adapted
from gunreal.envs.raw import is_image
from gunreal.experience.spec import Spec

Frames = Callable[[Any], Any]
_OWN: dict[str, Callable[..., FunctionalEnv]] = {
    "gunreal/Catch-v0": catch_functional.make,
    "gunreal/RareGoalMaze-v0": maze_functional.make,
}


def open_environment(config: Config, num_envs: int) -> FunctionalEnv:
    """The functional form of `config.env`, for `num_envs` environments.

    Raises:
      ConfigError: there is none. The message is one line that names the fix.
    """
    if config.env.startswith("ALE/"):
        from gunreal.envs.atari_functional import AtariFunctional

        return AtariFunctional(config, num_envs)
    if config.env in _OWN:
        return _OWN[config.env](**config.env_args)
    module, _, name = config.env.rpartition(":")
    if module:
        found = getattr(importlib.import_module(module), name, None)
        if callable(found) and (made := adapted(found(**config.env_args))):
            return made
    raise ConfigError(
        f"{config.env} cannot run on a device; use an Atari game, {', '.join(_OWN)}, module:function for an "
        "environment as JAX functions, or --runner parallel"
    )


def frames(config: Config, spec: Spec, space: spaces.Space) -> Frames:
    """A function that converts observations `[N, ...]` to frames `[N, *spec.frame]`, as `gunreal.envs.raw` does.

    Raises:
      ConfigError: the observations need a conversion that exists in NumPy only.
    """
    from jax import nn
    from jax import numpy as jnp

    if is_image(space):
        return _images(config, spec, space.shape)
    if isinstance(space, spaces.Discrete):
        return lambda x: nn.one_hot(x - int(space.start), int(space.n), dtype="float32")
    if not isinstance(space, spaces.Box):
        raise ConfigError(f"{config.env} observes {type(space).__name__}; a device run needs a Box or Discrete")
    scale = np.float32(255) if space.dtype == np.uint8 else np.float32(1)
    return lambda x: jnp.reshape(x, (len(x), -1)).astype("float32") / scale


def _images(config: Config, spec: Spec, shape: tuple[int, ...]) -> Frames:
    from jax import numpy as jnp

    first = len(shape) == 3 and shape[-1] not in (1, 3)
    size = shape[1:] if first else shape[:2]
    if size != spec.frame[1:]:
        fix = f"use --frame_size {size[0]}" if size[0] == size[1] else "make them square"
        raise ConfigError(f"{config.env} observes images of {size}, which device runs do not resize; {fix}")

    def convert(x: Any) -> Any:
        x = x[..., None] if len(shape) == 2 else jnp.moveaxis(x, 1, -1) if first else x
        if x.shape[-1] == 3 and config.observation == "gray":  # OpenCV's conversion in whole numbers
            red, green, blue = jnp.moveaxis(x.astype("int32"), -1, 0)
            x = ((9798 * red + 19235 * green + 3735 * blue + 16384) >> 15).astype("uint8")[..., None]
        x = jnp.broadcast_to(x, (*x.shape[:-1], spec.frame[0]))
        return jnp.moveaxis(x, -1, 1)

    return convert
