"""The raw observations and actions of an environment, and the conversion of observations to frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from gymnasium import spaces

from gunreal.config.schema import Config, ConfigError, is_auto
from gunreal.envs.resize import AreaResize

_IMAGE_KEYS = ("image", "rgb", "pixels", "screen", "observation")  # preferred if several entries are images
_SMALLEST = 20  # side of a picture in pixels; smaller arrays are more likely codes or features

NUMBERS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)  # spaces that can become a vector

Converter = Callable[[Any, np.ndarray], None]  # writes an observation to one row of the frames


class Raw(NamedTuple):
    """The raw observations and actions of an environment.

    Attributes:
      space: space of the observations, or of the entry to learn from.
      key: entry of a `Dict` observation to learn from. None for other observations.
      first_action: number of the first action. Everywhere else, actions are counted from 0.
      ignored: the other entries of the `Dict`. A run does not save them.
      actions: names of the actions, or none. A run does not save them.
      vectors: spaces of the entries whose numbers are learned from beside the image, by key.
    """

    space: spaces.Space
    key: str | None = None
    first_action: int = 0
    ignored: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    vectors: Mapping[str, spaces.Space] = {}

    @property
    def numbers(self) -> int:
        """Number of floats in `vector`."""
        return sum(map(spaces.flatdim, self.vectors.values()))

    def vector(self, name: str, observation: Mapping[str, Any]) -> np.ndarray:
        """The entries `vectors` of one observation, float32 `[numbers]`.

        Raises:
          ValueError: an entry is missing, does not fit its space or is not finite. `name` is that of the environment.
        """
        parts = [
            _numbers(name, space, part_of(name, self.vectors, observation, key)) for key, space in self.vectors.items()
        ]
        return finite(name, np.concatenate(parts)) if parts else np.empty(0, np.float32)

    def entry(self, observation: Any) -> Any:
        """The part of an observation to learn from, for one environment or a batch."""
        return observation if self.key is None else observation[self.key]

    def to_json(self) -> dict[str, Any]:
        """The record as plain values."""
        vectors = {key: _space_to_json(space) for key, space in self.vectors.items()}
        found = {"space": _space_to_json(self.space), "key": self.key, "first_action": self.first_action}
        return found | {"vectors": vectors}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Raw:
        """The record that `to_json` described. Raises KeyError or ValueError if it is not one."""
        vectors = {key: _space_from_json(space) for key, space in found.get("vectors", {}).items()}
        return Raw(_space_from_json(found["space"]), found["key"], int(found["first_action"]), vectors=vectors)


def _space_to_json(space: spaces.Space) -> dict[str, Any]:
    """The parts of a space that `converter` uses. The bounds of a `Box` are not among them."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.shape}
    assert isinstance(space, spaces.Box) and space.dtype is not None
    return {"kind": "Box", "shape": space.shape, "dtype": space.dtype.name}


def _space_from_json(found: dict[str, Any]) -> spaces.Space:
    match found["kind"]:
        case "Discrete":
            return spaces.Discrete(found["n"], start=found["start"])
        case "MultiDiscrete":
            return spaces.MultiDiscrete(found["nvec"], start=found["start"])
        case "MultiBinary":
            return spaces.MultiBinary(found["n"])
        case "Box":
            return spaces.Box(0, 1, tuple(found["shape"]), np.dtype(found["dtype"]).type)  # of any bounds
        case kind:
            raise ValueError(f"unknown space {kind!r}")


def is_image(space: spaces.Space) -> TypeGuard[spaces.Box]:
    """Whether observations of this space are learned from as images."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (2, 3)


def choose(config: Config, space: spaces.Space) -> tuple[spaces.Space, str | None]:
    """The space to learn from, and its key if it is an entry of a `Dict` observation.

    Raises:
      ConfigError: there is no such entry, or several.
    """
    wanted = "" if is_auto(config, "image_key") else config.image_key
    if not isinstance(space, spaces.Dict):
        if wanted:
            raise ConfigError(f"image_key {wanted!r}: {config.env} has no Dict observation; leave it out")
        return space, None
    images = [key for key, entry in space.items() if is_image(entry)]
    if wanted in images:
        return space[wanted], wanted
    if wanted and images:
        raise ConfigError(f"image_key {wanted!r} is not an image observation of {config.env}; choose one of {images}")
    preferred = images if len(images) == 1 else [key for key in _IMAGE_KEYS if key in images]
    if preferred:
        return space[preferred[0]], preferred[0]
    if images:
        raise ConfigError(f"{config.env} has several image observations {images}; choose one with --image_key")
    fix = "leave out image_key" if wanted else "wrap it to give an image or numbers"
    raise ConfigError(f"{config.env} observes {list(space)}, none a uint8 image; {fix}")


def choose_vectors(config: Config, space: spaces.Space, image: str | None) -> dict[str, spaces.Space]:
    """The entries of a `Dict` observation that are learned from beside the entry `image`, by key.

    Raises:
      ConfigError: `vector_keys` names an entry that is missing or that is no vector.
    """
    known: dict[str, spaces.Space] = {}
    if isinstance(space, spaces.Dict) and image is not None:
        known = {key: part for key, part in space.items() if _is_vector(part)}
    if is_auto(config, "vector_keys"):
        return {} if config.env.startswith("dmlab/") else known  # its further entries are for tasks to record
    keys = [key.strip() for key in config.vector_keys.split(",") if key.strip()]
    if wrong := [key for key in keys if key not in known]:
        fix = f"choose from {', '.join(known)}" if known else "leave it out"
        raise ConfigError(f"vector_keys: {config.env} has no vector {wrong[0]!r} beside an image; {fix}")
    return {key: known[key] for key in keys}


def _is_vector(space: spaces.Space) -> bool:
    flat = isinstance(space, NUMBERS) and (not isinstance(space, spaces.Box) or len(space.shape) < 2)
    return flat and spaces.flatdim(space) > 0


def converter(config: Config, space: spaces.Space) -> tuple[tuple[int, ...], str, Converter]:
    """Shape and dtype of a frame, and a function that converts an observation to a frame.

    Raises:
      ConfigError: observations of this space are not supported.
    """
    if is_image(space):
        channels = 3 if config.observation == "rgb" else 1
        return (channels, config.frame_size, config.frame_size), "uint8", _image_converter(config, space.shape)
    if config.observation == "rgb":
        raise ConfigError(f"observation is rgb, but {config.env} does not observe a uint8 image; leave it out")
    if not isinstance(space, NUMBERS):
        raise ConfigError(f"{config.env} observes {type(space).__name__}; wrap it to give a Box (image or vector)")
    if looks_like_images(space):
        raise ConfigError(
            f"{config.env} observes {space.dtype} of shape {space.shape}; return single images, gray or RGB, as uint8 "
            "from 0 to 255, or learn from numbers with the wrapper FlattenObservation"
        )
    if not spaces.flatdim(space):
        raise ConfigError(f"{config.env} observes nothing, of shape {space.shape}; give it at least one number")

    def convert(observation: Any, out: np.ndarray) -> None:
        out[:] = _numbers(config.env, space, observation)

    return (spaces.flatdim(space),), "float32", convert


def _numbers(name: str, space: spaces.Space, observation: Any) -> np.ndarray:
    """An observation of numbers as a vector, float32. Bytes are divided by 255. Raises ValueError as `check_values`."""
    check_values(name, space, observation)
    flat = np.asarray(spaces.flatten(space, observation)).astype(np.float32)
    return flat / np.float32(255) if isinstance(space, spaces.Box) and space.dtype == np.uint8 else flat


def finite(name: str, array: np.ndarray) -> np.ndarray:
    """The array. Raises ValueError if it has a number that is not finite, which would spoil the update of its batch."""
    if np.isfinite(array).all():
        return array
    raise ValueError(f"{name} returned an observation that is not finite; observations must be finite numbers")


def check_values(name: str, space: spaces.Space, observation: Any) -> None:
    """Raises ValueError if an observation of numbers, or of several parts, does not fit its space.

    The values of a `Box` may be outside of its bounds, as they are in many environments.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        for key, part in parts:
            check_values(name, part, part_of(name, space, observation, key))
        return
    if np.shape(observation) != space.shape:  # NumPy would broadcast a single number
        raise ValueError(
            f"{name} returned an observation of shape {np.shape(observation)}, but its observation space has shape "
            f"{space.shape}"
        )
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        sizes = {spaces.Discrete: "n", spaces.MultiDiscrete: "nvec"}.get(type(space))
        number = np.asarray(observation) - getattr(space, "start", 0)
        if ((number < 0) | (number >= (getattr(space, sizes) if sizes else 2))).any():
            raise ValueError(f"{name} returned {observation!r}, which is not in its observation space {space}")


def part_of(name: str, space: Any, observation: Any, key: Any) -> Any:
    """An entry of a `Dict` or `Tuple` observation. Raises ValueError if it is missing."""
    try:
        return observation[key]
    except (IndexError, KeyError, TypeError):
        raise ValueError(f"{name} returned an observation without {key!r}, which its space {space} has") from None


def looks_like_images(space: spaces.Space) -> bool:
    """Whether this looks like images, or a stack of them, that would be learned from as thousands of numbers."""
    return isinstance(space, spaces.Box) and sum(side >= _SMALLEST for side in space.shape) >= 2


def _image_converter(config: Config, shape: tuple[int, ...]) -> Converter:
    """A converter for images `[H, W]`, `[H, W, c]` or `[c, H, W]`. In rgb mode it repeats a gray image three times."""
    first = len(shape) == 3 and shape[-1] not in (1, 3)
    channels = 1 if len(shape) == 2 else shape[0 if first else -1]
    if channels not in (1, 3):
        raise ConfigError(
            f"{config.env} observes images of shape {shape}; wrap it to give single images, gray or RGB, which gunreal "
            "stacks itself (--frame_stack)"
        )
    to_gray = channels == 3 and config.observation == "gray"
    size = shape[1:] if first else shape[:2]
    if to_gray and min(size) < _SMALLEST:
        raise ConfigError(
            f"{config.env} observes {shape}, which is too small for a picture, and gray would mix its channels; use a "
            "wrapper that draws pictures (for MiniGrid RGBImgPartialObsWrapper), or --observation rgb"
        )
    resize = _resize(config, size if to_gray or channels == 1 else (*size, channels))
    if to_gray:
        cv2 = _opencv()

    def convert(observation: Any, out: np.ndarray) -> None:
        image = np.asarray(observation)
        if image.dtype != np.uint8 or image.shape != shape:
            raise ValueError(
                f"{config.env} returned {image.dtype} of shape {image.shape}, but its observation space is uint8 of "
                f"shape {shape}"
            )
        if first:
            image = image.transpose(1, 2, 0)
        if to_gray:
            image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        elif image.shape[2:] == (1,):
            image = image[..., 0]
        if resize:
            image = resize(image)
        out[:] = image if image.ndim == 2 else image.transpose(2, 0, 1)

    return convert


def _resize(config: Config, shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function that resizes images `[H, W]` or `[H, W, c]` to the frame size. None if they have it."""
    size = (config.frame_size, config.frame_size)
    if config.env.startswith("ALE/"):
        area, planes = AreaResize(shape, size), np.empty((*shape[2:], *size), np.uint8)

        def resize(image: np.ndarray) -> np.ndarray:
            area(image, planes)
            return planes if planes.ndim == 2 else planes.transpose(1, 2, 0)

        return resize
    if shape[:2] == size:
        return None
    cv2 = _opencv()
    return lambda image: cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def _opencv() -> Any:
    import cv2  # 17 MB of memory

    cv2.setNumThreads(0)  # the agent processes already use all cores
    return cv2
