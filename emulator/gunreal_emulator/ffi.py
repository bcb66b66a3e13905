"""`DeviceAtari`, Atari games as functions for compiled JAX programs."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gunreal_emulator.build import cached, opened
from gunreal_emulator.native import check_whole
from gunreal_emulator.pack import pack, player_offset, state_shapes
from gunreal_emulator.settings import Settings, games_of, several

_FUNCTIONS = ("init", "observe", "step")


class AtariState(NamedTuple):
    """The state of all consoles. The contents of the arrays are those of the C++ library.

    Attributes:
      players: processor, chips, memory, score and random generator, uint8 `[num_envs, bytes]`.
      screens: the last two pictures, uint8 `[num_envs, 2, rows, 160]`.
    """

    players: jax.Array
    screens: jax.Array


class DeviceAtari:
    """Consoles whose state is in JAX arrays, for use inside `jax.jit` and `jax.lax.scan`.

    The episodes are those of `VectorAtari` with the same seeds. The step after the end of an episode resets the
    console and has reward 0. If the state is donated or carried through `lax.scan`, it is overwritten in place.

        env = DeviceAtari("pong", 256)
        state = env.init(jnp.arange(256, dtype=jnp.uint32))
        first = env.observe(state)
        state, frames, rewards, terminated, truncated = jax.jit(env.step, donate_argnums=0)(state, actions)

    Attributes:
      num_envs: number of consoles.
      num_actions: number of actions, that of the game with the most.
      observation_shape: (channels, height, width) of an observation.
      screens_shape: (2, rows, 160) of the pictures of a console.

    Args:
      game: name of the game, such as "pong". With several names, each game has the same number of consoles, in this
        order, or one more. A GPU is fastest if this number is a multiple of 64.
      num_envs: number of consoles.
      lanes: number of consoles for each warp of a GPU, 1 to 32. 0 chooses it by the number of consoles.
      options: settings of `VectorAtari`: protocol, frame_skip, repeat_action_probability, noop_max, size, grayscale,
        maximum, full_action_space, mode, difficulty and max_num_frames_per_episode. With `observations=False`, nothing
        is drawn, and observations have no channels.

    Raises:
      UnknownGame, EmulatorUnavailable, ValueError: as `VectorAtari` does.
    """

    def __init__(self, game: str | Sequence[str], num_envs: int, *, lanes: int = 0, **options: Any):
        check_whole("num_envs", num_envs, 1, 2**31 - 1)
        check_whole("lanes", lanes, 0, 32)
        games = several(game, **options)
        self._load(games, games_of(len(games), num_envs), jax.devices()[0], lanes)

    @classmethod
    def of_settings(cls, games: Sequence[Settings], of: np.ndarray, device: jax.Device) -> DeviceAtari:
        """Returns consoles of loaded games on a device.

        Args:
          games: games with equal settings.
          of: index in `games` of each console's game, int32 `[num_envs]`.
          device: device of JAX.
        """
        self = cls.__new__(cls)
        with jax.default_device(device):
            self._load(games, of, device)
        return self

    def _load(self, games: Sequence[Settings], of: np.ndarray, device: jax.Device, lanes: int = 0) -> None:
        _register(device)
        self._lanes = np.int32(lanes)
        self.num_envs, self.num_actions = len(of), max(len(game.actions) for game in games)
        self.observation_shape = games[0].shape
        self._pack, self._games = jnp.asarray(pack(games)), jnp.asarray(of)
        self._player, self.screens_shape = state_shapes(games)

    def init(self, seeds: jax.typing.ArrayLike) -> AtariState:
        """Starts an episode in each console. The argument is uint32 `[num_envs]`."""
        seeds = jnp.asarray(seeds, jnp.uint32)
        if seeds.shape != (self.num_envs,):
            raise ValueError(f"the seeds have shape {seeds.shape}; give one for each of the {self.num_envs} consoles")
        return AtariState(*_call("init", self._state(self.num_envs), self._pack, self._games, seeds))

    def loaded(self, players: np.ndarray, pictures: Sequence[np.ndarray]) -> AtariState:
        """Returns saved consoles.

        Args:
          players: states without pictures, uint8 `[num_envs, bytes]`, of the games of these consoles.
          pictures: both pictures of each console, uint8 `[2, height, 160]` or flat.
        """
        players = players.copy()
        players[:, player_offset("game")] = self._games
        screens = np.zeros((len(players), *self.screens_shape), np.uint8)
        for screen, picture in zip(screens, pictures, strict=True):
            screen.ravel()[: picture.size] = picture.ravel()
        return AtariState(jnp.asarray(players), jnp.asarray(screens))

    def observe(self, state: AtariState) -> jax.Array:
        """Returns the last frame of each console as an observation, uint8 `[n, channels, height, width]`.

        After `init`, this is the first observation of each episode. The observation that `step` returns is the maximum
        of the last two frames instead, which the state does not always hold.
        """
        self._check(state)
        return _call("observe", self._frames(len(state.players)), self._pack, *state)

    def step(
        self, state: AtariState, actions: jax.Array
    ) -> tuple[AtariState, jax.Array, jax.Array, jax.Array, jax.Array]:
        """Plays one agent step in each console, or resets it if its last step ended an episode.

        The state may be a part of the consoles, such as one device's. Only its shapes are checked. A state of other
        games may have the same shapes, and its steps are then meaningless.

        Args:
          state: of `n` consoles.
          actions: int32 `[n]`. An action outside of 0 to `num_actions` - 1 is played as NOOP.

        Returns:
          The new state; observations, uint8 `[n, channels, height, width]`; rewards, float32 `[n]`; whether the
          episode has terminated and whether it was truncated, bool `[n]`.

        Raises:
          ValueError: the shapes of the state are not those of these games, or the number of actions is wrong.
        """
        self._check(state)
        n, actions = len(state.players), jnp.asarray(actions, jnp.int32)
        if actions.shape != (n,):
            raise ValueError(f"the actions have shape {actions.shape}; give one for each of {n} consoles")
        flag = jax.ShapeDtypeStruct((n,), jnp.bool_)
        outputs = (*self._state(n), self._frames(n), jax.ShapeDtypeStruct((n,), jnp.float32), flag, flag)
        arguments = self._pack, *state, actions
        players, screens, *results = _call("step", outputs, *arguments, aliases={1: 0, 2: 1}, lanes=self._lanes)
        return AtariState(players, screens), *results

    def info(self, state: AtariState) -> dict[str, jax.Array]:
        """Returns `lives` and `episode_frames` of each console as `VectorAtari` does, int32 `[n]`."""

        def word(field: str) -> jax.Array:
            at = player_offset(field)
            return jax.lax.bitcast_convert_type(state.players[:, at : at + 4], jnp.int32)

        return {"lives": word("lives"), "episode_frames": word("frames")}

    def _check(self, state: AtariState) -> None:
        shapes, n = [x.shape for x in state], len(state.players)
        if shapes != [(n, *self._player), (n, *self.screens_shape)]:
            raise ValueError(f"the state has shapes {shapes}; it is of other games than these consoles")

    def _state(self, n: int) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        shapes = self._player, self.screens_shape
        players, screens = (jax.ShapeDtypeStruct((n, *shape), jnp.uint8) for shape in shapes)
        return players, screens

    def _frames(self, n: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((n, *self.observation_shape), jnp.uint8)


def _call(
    name: str, outputs: Any, *arguments: jax.Array, aliases: dict[int, int] | None = None, **attributes: Any
) -> Any:
    """Calls a function of the library. XLA may only remove or repeat the call as one without side effects."""
    return jax.ffi.ffi_call(f"gunreal_atari_{name}", outputs, input_output_aliases=aliases)(*arguments, **attributes)


def _register(device: jax.Device) -> None:
    """Registers the functions for the CPU and, if `device` is a GPU, for that."""
    _register_for("cpu", "")
    if device.platform == "gpu":
        _register_for("CUDA", architecture(device))


@functools.cache
def _register_for(platform: str, cuda: str) -> None:
    library = opened(compiled(cuda))
    for name in _FUNCTIONS:
        function = jax.ffi.pycapsule(getattr(library, f"atari_{name}"))
        jax.ffi.register_ffi_target(f"gunreal_atari_{name}", function, platform=platform)


def architecture(device: jax.Device) -> str:
    """Returns the name of a GPU for nvcc, such as "sm_90"."""
    capability: str = device.compute_capability  # such as "9.0"
    return "sm_" + capability.replace(".", "")


def compiled(cuda: str = "") -> Path:
    """Returns the path of the functions, compiled with the headers of jaxlib for the CPU or for a GPU such as "sm_90".

    Raises:
      EmulatorUnavailable: there is no compiler, or the compiler failed.
    """
    name, source = ("libatari_cuda", "ffi.cu") if cuda else ("libatari_ffi", "ffi.cpp")
    return cached(name, source, ("-isystem", jax.ffi.include_dir()), importlib.metadata.version("jaxlib"), cuda)
