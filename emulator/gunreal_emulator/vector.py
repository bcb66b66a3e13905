"""`VectorAtari`, a vector environment of Atari games with Gymnasium's interface."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from gunreal_emulator.build import library
from gunreal_emulator.cpu_engine import CpuEngine
from gunreal_emulator.device_engine import DeviceEngine, find_device
from gunreal_emulator.native import Native, alone, check_whole, seal, unseal
from gunreal_emulator.pack import player_offset
from gunreal_emulator.settings import games_of, rgb_palette, several

_SEEDS = 2**32  # number of seeds


class VectorAtari(Native, gymnasium.vector.VectorEnv):
    """A vector environment of `num_envs` consoles that play one game or several.

    Observations are uint8 `[num_envs, 1, height, width]` (gray) or `[num_envs, 3, height, width]` (RGB). They are the
    maximum of the last two frames of a step, resized by area. Rewards are float32 and not clipped. The step after the
    end of an episode resets the console and has reward 0 (`AutoresetMode.NEXT_STEP`). `info` contains `lives` and
    `episode_frame_number`, int32 `[num_envs]`.

    One thread at a time may use the environment, and it can't be pickled.

    The results are NumPy arrays, or JAX arrays in the memory of the GPU. Libraries such as JAX, PyTorch and CuPy take
    both through `from_dlpack` without a copy.

    Args:
      game: name of the game, such as "pong", "Pong" or "ALE/Pong-v5". With several names, each game has the same number
        of consoles, in this order, or one more. The number of actions is that of the game with the most.
      num_envs: number of consoles.
      device: "cpu", "cuda" for the first GPU, or "jax" for the default device of JAX, which may be the CPU.
      protocol: "v5" (sticky actions) or "deterministic" (up to 30 no-ops).
      num_threads: number of threads that step the consoles of each game. With 0, `send` itself steps them. A GPU does
        not use them.
      frame_skip: number of frames per step.
      repeat_action_probability: probability that a frame repeats the last action. None uses that of the protocol.
      noop_max: an episode starts with 1 to `noop_max` no-op frames, or with none if it is 0. None uses the protocol's
        number.
      size: (height, width) of an observation. None keeps the size of the screen.
      grayscale: whether observations are gray instead of RGB.
      maximum: whether an observation is the maximum of the last two frames instead of the last frame.
      full_action_space: whether to use all actions, 18 in most games, instead of those that have an effect in the game.
      mode: number of the game's mode in ale-py. None plays the first mode.
      difficulty: difficulty switches. Bit 0 sets the left switch to A, and bit 1 the right one.
      max_num_frames_per_episode: number of frames after which an episode is truncated. 0 disables truncation.
      render_mode: None or "rgb_array".

    Raises:
      UnknownGame: the game or its mode does not exist or is not supported. The message is one line that names the fix.
      EmulatorUnavailable: the emulator can't be compiled, or there is no GPU. The message is one line that names the
        fix.
      ValueError: another argument is invalid.
      MemoryError: there is too little memory for so many consoles or threads.
    """

    def __init__(
        self,
        game: str | Sequence[str],
        num_envs: int = 1,
        device: str = "cpu",
        *,
        protocol: str = "v5",
        num_threads: int = 0,
        frame_skip: int = 4,
        repeat_action_probability: float | None = None,
        noop_max: int | None = None,
        size: tuple[int, int] | None = (84, 84),
        grayscale: bool = True,
        maximum: bool = True,
        full_action_space: bool = False,
        mode: int | None = None,
        difficulty: int = 0,
        max_num_frames_per_episode: int = 108_000,
        render_mode: str | None = None,
    ):
        self._lock = threading.RLock()
        if device not in ("cpu", "cuda", "jax"):
            raise ValueError(f"device is {device!r}, but must be 'cpu', 'cuda' or 'jax'")
        check_whole("num_envs", num_envs, 1, 2**31 - 1)
        check_whole("num_threads", num_threads, 0, 1024)
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}, but must be None or 'rgb_array'")
        games = several(
            game, protocol=protocol, frame_skip=frame_skip, repeat_action_probability=repeat_action_probability,
            noop_max=noop_max, size=size, grayscale=grayscale, maximum=maximum, full_action_space=full_action_space,
            mode=mode, difficulty=difficulty, max_num_frames_per_episode=max_num_frames_per_episode,
        )  # fmt: skip
        self._of = games_of(len(games), num_envs)
        self.games = tuple(of.loaded.game for of in games)
        self.game = self.games[0]
        self._engine: CpuEngine | DeviceEngine
        if device == "cpu":
            self._engine = CpuEngine(games, self._of, num_threads)
        else:
            self._engine = DeviceEngine(games, self._of, find_device(device))
        self.num_envs, self.render_mode = num_envs, render_mode
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": ["rgb_array"], "render_fps": 60}
        self.single_observation_space = gymnasium.spaces.Box(0, 255, games[0].shape, np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(max(len(of.actions) for of in games))
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._waiting = self._started = False
        self._kinds = [games[of].loaded.kind for of in self._of]

    @alone
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        """Starts an episode in each console, or only where `options["reset_mask"]`, bool `[num_envs]`, is set.

        With one seed, console `k` gets the seed `seed + k`. Without a seed, or where it is None, the seed is drawn from
        the generator that the last single seed has started.

        The observations of the other consoles are those of the last step, whose array must still have its values. After
        `restore`, they are the last frames of these consoles, without the maximum of two.
        """
        mask = np.ascontiguousarray((options or {}).get("reset_mask", np.ones(self.num_envs)), bool)
        if mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask has shape {mask.shape}; give one value for each of {self.num_envs} consoles")
        if not mask.all() and not self._started:
            raise ValueError("the first reset must reset all consoles; leave reset_mask out")
        with self._completed():
            self._start(None, mask.view(np.uint8), self._seeds(seed))
            self._started = True
            frames, _, _, _, info = self.recv()
        return frames, info

    def _seeds(self, seed: int | Sequence[int | None] | None) -> np.ndarray:
        """The seed of each console, int64 `[num_envs]`."""
        given: list[int | None]
        if seed is None:
            given = [None] * self.num_envs
        elif isinstance(seed, int | np.integer):
            given = [int(seed) + k for k in range(self.num_envs)]
        else:
            given = list(seed)
        if len(given) != self.num_envs:
            raise ValueError(f"got {len(given)} seeds for {self.num_envs} consoles; give one seed, or one for each")
        seeds = [int(self.np_random.integers(_SEEDS)) if one is None else int(one) for one in given]
        if not 0 <= min(seeds) <= max(seeds) < _SEEDS:
            raise ValueError(f"the seeds are {min(seeds)} to {max(seeds)}, but must be from 0 to {_SEEDS - 1}")
        if isinstance(seed, int | np.integer):
            super().reset(seed=seeds[0])
        return np.array(seeds, np.int64)

    @alone
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        """Emulates `frame_skip` frames in each console, or resets it if its last step ended an episode."""
        with self._completed():
            self.send(actions)
            return self.recv()

    @alone
    def send(self, actions: Any) -> None:
        """Starts a step, which `recv` completes.

        Args:
          actions: whole numbers `[num_envs]`. On a GPU, they may be an array of any library with DLPack.

        Raises:
          ValueError: their shape or dtype is wrong, or one is outside of the action space. On a GPU, such an action is
            played as NOOP instead.
        """
        self._check(reset=True)
        if actions is None:
            raise ValueError("the actions are None; give one whole number for each console")
        self._start(actions, None, None)

    @alone
    def recv(self) -> tuple[Any, Any, Any, Any, dict]:
        """Completes a step and returns observation, reward, terminated, truncated and info."""
        if not self._waiting:
            raise RuntimeError("recv() was called without send(); call send() first")
        frames, reward, terminated, truncated, lives, episode_frames = self._engine.finish()
        self._waiting = False  # only now: after Ctrl-C, some consoles may still play
        return frames, reward, terminated, truncated, {"lives": lives, "episode_frame_number": episode_frames}

    @alone
    def render(self) -> tuple[np.ndarray, ...]:
        """Returns the screens in RGB, uint8 `[height, 160, 3]` each."""
        self._check(reset=True)
        drawn = self._engine.players()[:, player_offset("buffer")]
        return tuple(
            rgb_palette(self.games[game].pal)[self._engine.pictures(k)[drawn[k]]] for k, game in enumerate(self._of)
        )

    @alone
    def screen(self, k: int) -> np.ndarray:
        """Returns the last drawn frame of console `k` as palette indices, uint8 `[height, 160]`."""
        self._check(reset=True)
        check_whole("k", k, 0, self.num_envs - 1)
        return self._engine.pictures(k)[self._engine.players()[k, player_offset("buffer")]]

    @alone
    def ram(self) -> np.ndarray:
        """Returns the memory of each console, uint8 `[num_envs, 128]`."""
        self._check(reset=True)
        at = player_offset("ram")
        return self._engine.players()[:, at : at + 128]

    @alone
    def save(self) -> list[bytes]:
        """Returns the states of all consoles, including screens and random generators, for `restore`.

        The states may be restored on another device, with the same version of the emulator.
        """
        self._check(reset=True)
        states = enumerate(zip(self._kinds, self._engine.players(), strict=True))
        return [seal(kind, player.tobytes() + self._engine.pictures(k).tobytes()) for k, (kind, player) in states]

    @alone
    def restore(self, states: Sequence[bytes]) -> None:
        """Restores states of `save`. Raises ValueError if they are damaged, or not of the same games and modes."""
        self._check()
        if not isinstance(states, Sequence) or len(states) != self.num_envs:
            raise ValueError(f"give a state for each of the {self.num_envs} consoles, as save() returned them")
        size, arrays = library().atari_player_size(), []
        for state, kind, game in zip(states, self._kinds, self._of, strict=True):
            arrays.append(unseal(state, kind, size + 2 * self.games[game].height * 160))
        self._engine.load(np.stack([a[:size] for a in arrays]), [a[size:].reshape(2, -1, 160) for a in arrays])
        self._started = True

    @alone
    def close_extras(self, **kwargs: Any) -> None:
        """Frees the consoles."""
        if engine := getattr(self, "_engine", None):
            engine.close()

    def _start(self, actions: Any, reset: np.ndarray | None, seeds: np.ndarray | None) -> None:
        self._check()
        self._waiting = True
        try:
            self._engine.start(actions, reset, seeds)
        except Exception:  # after Ctrl-C, some consoles may play
            self._waiting = False
            raise

    @contextlib.contextmanager
    def _completed(self) -> Iterator[None]:
        """No console plays afterward. A step that Ctrl-C interrupts is lost."""
        self._check()
        try:
            yield
        finally:
            if self._waiting:
                self._engine.wait()
                self._waiting = False

    def _check(self, reset: bool = False) -> None:
        """Raises RuntimeError if the consoles can't be used now. `reset`: whether there must have been a reset."""
        if self.closed:
            raise RuntimeError("the environment is closed; create a new one")
        if self._waiting:
            raise RuntimeError("a step that send() has started is not complete; call recv() first")
        if reset and not self._started:
            raise RuntimeError("the environment has not been reset; call reset() first")
