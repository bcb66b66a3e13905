"""A replacement for `ale_py.vector_env`."""

from __future__ import annotations

import os
import threading
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from gunreal_emulator.games import ACTIONS
from gunreal_emulator.native import Native, alone, check_whole
from gunreal_emulator.pool import Pool, PoolSettings, autoreset_number
from gunreal_emulator.settings import settings


class AtariVectorEnv(Native, VectorEnv):
    """A replacement for `ale_py.vector_env.AtariVectorEnv`, with the same episodes for the same seeds and actions.

    Observations are uint8 `[batch_size, stack_num, img_height, img_width]`, or `[..., 3]` in RGB. Rewards are int32.
    `info` has `env_id`, `lives`, `frame_number` (since the console was switched on) and `episode_frame_number`, int32
    `[batch_size]`. If an episode has ended in the mode same-step, it also has `final_obs`, with the last observation of
    each ended episode.

    Two things differ from ale-py. Sticky actions are drawn from other random numbers, and a frame limit of 0 disables
    truncation.

    Args:
      game: name of the ROM, such as "ms_pacman".
      num_envs: number of consoles.
      batch_size: number of consoles whose results `recv` and `step` return, those that finish first. 0 is all.
      num_threads: number of threads that step the consoles. 0 is the number of processors.
      thread_affinity_offset: the processor of the first thread, which the next threads follow. -1 leaves the choice to
        the system.
      max_num_frames_per_episode: number of frames after which an episode is truncated. Those before its first step do
        not count.
      repeat_action_probability: probability that a frame repeats the last action.
      full_action_space: whether to use all actions, 18 in most games, instead of those that have an effect in the game.
      continuous: must be False.
      continuous_action_threshold: has no effect.
      autoreset_mode: `AutoresetMode` or its value: "NextStep", "SameStep" or "Disabled".
      img_height: number of rows of an observation.
      img_width: number of columns of an observation.
      grayscale: whether observations are gray instead of RGB.
      stack_num: number of pictures in an observation, the newest being the last one.
      frameskip: number of frames per step.
      maxpool: whether a picture is the maximum of the last two frames of a step.
      noop_max: an episode starts with fewer no-ops than this.
      episodic_life: whether an episode ends when a life is lost.
      life_loss_info: whether a lost life is reported as the termination of an episode that goes on.
      reward_clipping: whether rewards are -1, 0 or 1.
      use_fire_reset: whether an episode starts with FIRE, in games that have this action.

    Raises:
      gymnasium.error.Error: `frameskip` is not a positive whole number.
      UnknownGame: the game does not exist or is not supported. The message is one line that names the fix.
      EmulatorUnavailable: the emulator can't be compiled. The message is one line that names the fix.
      ValueError: another argument is invalid.
      MemoryError: there is too little memory for so many consoles or threads.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        batch_size: int = 0,
        num_threads: int = 0,
        thread_affinity_offset: int = -1,
        max_num_frames_per_episode: int = 108_000,
        repeat_action_probability: float = 0.0,
        full_action_space: bool = False,
        continuous: bool = False,
        continuous_action_threshold: float = 0.5,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        img_height: int = 84,
        img_width: int = 84,
        grayscale: bool = True,
        stack_num: int = 4,
        frameskip: int = 4,
        maxpool: bool = True,
        noop_max: int = 30,
        episodic_life: bool = False,
        life_loss_info: bool = False,
        reward_clipping: bool = True,
        use_fire_reset: bool = True,
    ):
        if type(frameskip) is not int or frameskip <= 0:
            raise gymnasium.error.Error(f"frameskip is {frameskip!r}, but must be a positive whole number")
        if continuous:
            raise ValueError("continuous actions are not supported; use ale_py.vector_env.AtariVectorEnv")
        check_whole("num_envs", num_envs, 1, 2**31 - 1)
        check_whole("batch_size", batch_size, 0, num_envs)
        check_whole("num_threads", num_threads, 0, 1024)
        check_whole("thread_affinity_offset", thread_affinity_offset, -1, 2**16)
        check_whole("stack_num", stack_num, 1, 1024)
        check_whole("noop_max", noop_max, 0, 10_000)
        loaded = settings(
            game, repeat_action_probability=repeat_action_probability, frame_skip=frameskip, noop_max=0,
            size=(img_height, img_width), grayscale=grayscale, maximum=maxpool, full_action_space=full_action_space,
            max_num_frames_per_episode=max_num_frames_per_episode,
        )  # fmt: skip
        loaded.protocol.life_ends = episodic_life
        self.batch_size, self.num_envs = batch_size or num_envs, num_envs
        of_pool = PoolSettings(
            loaded.protocol, noop_max, use_fire_reset and ACTIONS.index("FIRE") in loaded.actions, life_loss_info,
            reward_clipping, autoreset_number(autoreset_mode), stack_num, self.batch_size,
            num_threads or os.cpu_count() or 1, thread_affinity_offset,
        )  # fmt: skip
        self._lock = threading.Lock()
        self.ale = Pool(loaded, of_pool, num_envs)
        self.autoreset_mode, self.grayscale, self.continuous = AutoresetMode(autoreset_mode), grayscale, False
        self.metadata = {"autoreset_mode": self.autoreset_mode}
        self.single_observation_space = gymnasium.spaces.Box(0, 255, self.ale.get_observation_shape(), np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(len(loaded.actions))
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, self.batch_size)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, self.batch_size)

    @alone
    def reset(
        self, *, seed: int | np.ndarray | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Starts an episode in each console, or only where `options["reset_mask"]`, bool `[num_envs]`, is set.

        With one seed, the consoles that are reset get consecutive seeds. An array has one seed for each of them.
        Without a seed, their random numbers continue, or begin at random. The other consoles report their last
        observation.

        Raises:
          TypeError, ValueError, RuntimeError: the mask or the seeds are invalid.
        """
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"reset_mask must be a boolean numpy array, but is {mask!r}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must have shape {(self.num_envs,)}, but has {mask.shape}")
        ids = np.flatnonzero(mask)
        if seed is None:
            seeds = np.full(len(ids), -1)
        elif isinstance(seed, int | np.integer):
            seeds = np.arange(int(seed), int(seed) + len(ids))
        elif isinstance(seed, np.ndarray) and seed.dtype.kind in "iu":
            seeds = seed
        else:
            raise TypeError(f"seed must be a whole number or an array of them, but is {seed!r}")
        if seeds.shape != ids.shape:
            raise ValueError(f"seed has shape {seeds.shape}, but needs one entry per sub-environment, {len(ids)}")
        return self.ale.reset(ids, seeds)

    @alone
    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Plays a step of the consoles of the last batch, and returns the results of those that finish first."""
        self._send(actions)
        return self.ale.recv()

    @alone
    def send(self, actions: np.ndarray) -> None:
        """Starts a step of the consoles of the last batch. `actions` are int32 or int64 `[batch_size]`."""
        self._send(actions)

    def _send(self, actions: np.ndarray) -> None:
        assert isinstance(actions, np.ndarray), f"the actions must be a numpy array, but are {actions!r}"
        assert actions.dtype in (np.int32, np.int64), f"the actions must be int32 or int64, but are {actions.dtype}"
        assert actions.shape == (self.batch_size,), f"give {self.batch_size} actions, not {actions.shape}"
        self.ale.send(actions)

    @alone
    def recv(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Waits for a batch, and returns its observations, rewards, terminations, truncations and info.

        `info["env_id"]` has the numbers of its consoles. Without `batch_size`, these are all consoles in order.
        """
        return self.ale.recv()

    def xla(self) -> None:
        """Is not supported. Raises NotImplementedError."""
        raise NotImplementedError("use gunreal_emulator.ffi.DeviceAtari in compiled JAX programs")

    def close_extras(self, **kwargs: Any) -> None:
        """Frees the consoles."""
        if pool := getattr(self, "ale", None):
            pool.close()
