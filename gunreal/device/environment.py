"""The environments of device runs: found by the configured name, and their observations as frames."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from gunreal.config.plugins import calling
from gunreal.config.schema import Config, ConfigError
from gunreal.envs import GAMES
from gunreal.envs.functional import FunctionalEnv, adapted
from gunreal.envs.make import erring
from gunreal.envs.raw import choose, choose_vectors, is_image
from gunreal.experience.spec import RecordedField, Spec


class Seen(NamedTuple):
    """What is kept of observations.

    Attributes:
      frame: frames `[N, *spec.frame]`.
      vector: vectors `[N, spec.vectors]`.
      recorded: the fields that tasks record, by name.
    """

    frame: Any
    vector: Any
    recorded: dict[str, Any]


Frames = Callable[[Any], Seen]


def open_environment(config: Config, num_envs: int) -> FunctionalEnv:
    """The functional form of `config.env`, for `num_envs` environments.

    Raises:
      ConfigError: there is none. The message is one line that names the fix.
    """
    if config.env.startswith("ALE/"):
        from gunreal.envs.atari_functional import AtariFunctional

        return AtariFunctional(config, num_envs)
    module, _, name = GAMES.get(config.env, config.env).rpartition(":")
    found: Any = getattr(importlib.import_module(module), name, None) if module else None
    if config.env in GAMES:
        try:
            return found(**config.env_args).functional()
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"env_args do not fit {config.env} in device runs: {error}; remove them, or use --runner parallel"
            ) from error
    if callable(found) and (made := adapted(found(**config.env_args))):
        return made
    raise ConfigError(
        f"{config.env} cannot run on a device; use an Atari game, {', '.join(GAMES)}, module:function for an "
        "environment as JAX functions, or --runner parallel"
    )


def check_environment(config: Config, env: FunctionalEnv, count: int) -> None:
    """Checks the shapes and dtypes of what `count` environments return, without a run.

    Raises:
      ConfigError: they are not those of a `FunctionalEnv`, or one of its functions fails. The message is one line that
        names the fix.
    """
    import jax

    numbers = jax.ShapeDtypeStruct((count,), np.int32)
    state, first = _values(config, "init", ("state", "observations"), env.init, numbers)
    names = "state", "observations", "rewards", "terminated", "truncated"
    stepped, seen, *rest = _values(config, "step", names, env.step, state, numbers)
    _check_state(config, state, stepped, count)
    for observed in (first, seen):
        _check_observations(config, observed, env.observation_space, count)
    for name, found in zip(names[2:], rest, strict=True):
        _check_shape(config, name, found, (count,))


def _check_observations(config: Config, found: Any, space: spaces.Space, count: int) -> None:
    """Raises ConfigError if observations do not fit their space."""
    if isinstance(space, spaces.Dict):
        if not isinstance(found, dict) or found.keys() != space.keys():
            raise ConfigError(f"{config.env} observes a Dict of {', '.join(space)}; return a dict with these keys")
        for key, part in space.items():
            _check_observations(config, found[key], part, count)
        return
    _check_shape(config, "observations", found, (count, *(space.shape or ())))
    if is_image(space) and found.dtype != np.uint8:
        raise ConfigError(f"{config.env} observes uint8 images, but returns {found.dtype}; convert them to uint8")


def _check_shape(config: Config, name: str, found: Any, wanted: tuple[int, ...]) -> None:
    if (shape := getattr(found, "shape", type(found).__name__)) != wanted:
        count = wanted[0]
        raise ConfigError(f"{config.env} returns {name} of shape {shape} for {count} agents; return shape {wanted}")


def _values(
    config: Config, method: str, names: tuple[str, ...], function: Callable[..., Any], *arguments: Any
) -> tuple[Any, ...]:
    """The shapes of what a function of the environment returns."""
    import jax

    with erring(config, f"fails in {method}"):
        found = jax.eval_shape(function, *arguments)
    count = len(found) if isinstance(found, tuple | list) else 1
    if count != len(names):
        wanted = f"{', '.join(names[:-1])} and {names[-1]}"
        raise ConfigError(f"{config.env}: {method} returns {count} value{'s' * (count != 1)}; return {wanted}")
    return tuple(found)


def _check_state(config: Config, state: Any, stepped: Any, count: int) -> None:
    """Raises ConfigError if the state lacks the axis of the agents, or if a step changes its shape or dtype."""
    import jax

    structure: Any = jax.tree.structure(state)
    if structure != jax.tree.structure(stepped):
        raise ConfigError(f"{config.env}: step returns a state of another structure than init; return the same one")
    leaves = jax.tree_util.tree_leaves_with_path(state)
    for (path, old), new in zip(leaves, jax.tree.leaves(stepped), strict=True):
        name = f"state{jax.tree_util.keystr(path)}"
        if old.shape[:1] != (count,):
            raise ConfigError(
                f"{config.env}: {name} of init has shape {old.shape} for {count} agents; its first axis must be that "
                "of the agents"
            )
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise ConfigError(
                f"{config.env}: step changes {name} from {old.dtype} of shape {old.shape} to {new.dtype} of shape "
                f"{new.shape}; keep the dtype and the shape"
            )


def frames(
    config: Config, spec: Spec, space: spaces.Space, fields: Mapping[str, RecordedField] | None = None
) -> Frames:
    """A function that converts observations. It does what `gunreal.envs.raw` does.

    Args:
      fields: what tasks record, by name: entries of a `Dict` observation.

    Raises:
      ConfigError: the observations need a conversion that exists in NumPy only, or lack an entry.
    """
    from jax import numpy as jnp

    image, key = choose(config, space)
    to_frame = _converter(config, spec, image)
    parts = {name: _converter(config, spec, part) for name, part in choose_vectors(config, space, key).items()}

    fields = fields or {}
    for field in fields.values():
        if not isinstance(space, spaces.Dict) or field.key not in space.spaces:
            raise ConfigError(
                f"a task records {field.key!r}, which is no entry of a Dict observation of {config.env}; leave it out "
                "of device runs, or use --runner parallel"
            )

    def recorded(name: str, field: RecordedField, x: Any) -> Any:
        with calling(f"the conversion of the recorded field {name!r} in JAX"):
            return field.converted(x).astype(field.dtype)

    def convert(x: Any) -> Seen:
        frame = to_frame(x if key is None else x[key])
        vectors = [to_vector(x[name]) for name, to_vector in parts.items()]
        vector = jnp.concatenate([jnp.zeros((len(frame), 0), "float32"), *vectors], axis=1)
        return Seen(frame, vector, {name: recorded(name, field, x[field.key]) for name, field in fields.items()})

    return convert


def _converter(config: Config, spec: Spec, space: spaces.Space) -> Callable[[Any], Any]:
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


def _images(config: Config, spec: Spec, shape: tuple[int, ...]) -> Callable[[Any], Any]:
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
