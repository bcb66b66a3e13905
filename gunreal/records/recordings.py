"""Recorded episodes: data sets in the format of Minari, which `gunreal evaluate --record` writes and tasks learn from.

The observations of a data set are frames `[*spec.frame]`, as a replay ring holds them. With numbers beside images, they
are a `Dict` of "frame" and "vector".
"""

from __future__ import annotations

import functools
import math
import os
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from gunreal.acting.episodes import Episode, Transition
from gunreal.config.folders import remedy
from gunreal.config.packages import is_installed
from gunreal.config.schema import ConfigError
from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED, Past, Read, Replay, observations, past
from gunreal.experience.spec import Spec


class Writer:
    """A context manager that writes the episodes of `gunreal.acting.episodes.play` to a new data set.

    Args:
      path: folder of the data set. It appears when all episodes have been written.
      env: name of the environment, for people who read the data set.

    Raises:
      ConfigError: Minari is missing, or the folder exists or cannot be written.
    """

    def __init__(self, path: str | Path, spec: Spec, env: str):
        _check_minari()
        self._path, self._spec, self._env = Path(path).absolute(), spec, env  # Minari joins relative ones twice
        if self._path.exists():
            raise ConfigError(f"{path} exists already; choose another name for the recording")
        self._steps: dict[int, list[Transition]] = defaultdict(list)

    def __enter__(self) -> Writer:
        import minari
        from minari.dataset.minari_storage import MinariStorage

        spec = self._spec
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=".gunreal-recording-", dir=self._path.parent)
        except OSError as error:
            raise ConfigError(self._refusal(error)) from error
        self._made = Path(self._folder.name, "made")
        self._made.mkdir()
        low, high = (0, 255) if spec.dtype == "uint8" else (-np.inf, np.inf)
        space: Any = Box(low, high, spec.frame, np.dtype(spec.dtype).type)
        if spec.vectors:
            space = Dict({"frame": space, "vector": Box(-np.inf, np.inf, (spec.vectors,), np.float32)})
        actions = Discrete(spec.num_actions)
        self._storage: Any = MinariStorage.new(self._made / "data", space, actions, jpeg_encoding=False)
        told = {"dataset_id": self._path.name, "minari_version": minari.__version__, "algorithm_name": "gunreal"}
        self._storage.update_metadata(told | {"description": f"{self._env}, frames as a replay ring holds them"})
        return self

    def step(self, transition: Transition) -> None:
        """Adds a step."""
        self._steps[transition.number].append(transition)

    def end(self, episode: Episode) -> None:
        """Writes an episode that has ended. Raises ConfigError if the disk is full."""
        from minari.data_collector.episode_buffer import EpisodeBuffer

        start, *steps = self._steps.pop(episode.number)
        truncated = [step.truncated for step in steps]
        truncated[-1] |= episode.cut
        frames: Any = np.stack([step.frame for step in (start, *steps)])
        if self._spec.vectors:
            frames = {"frame": frames, "vector": np.stack([step.vector for step in (start, *steps)])}
        buffer = EpisodeBuffer(
            seed=episode.seed,
            observations=frames,
            actions=np.array([step.action for step in steps], np.int64),
            rewards=[step.reward for step in steps],
            terminations=[step.terminated for step in steps],
            truncations=truncated,
        )
        try:
            self._storage.update_episodes([buffer])
        except OSError as error:
            raise ConfigError(self._refusal(error)) from error

    def __exit__(self, kind: object, *_: object) -> None:
        with self._folder:
            if kind is None:
                try:
                    os.replace(self._made, self._path)
                except OSError as error:
                    raise ConfigError(self._refusal(error)) from error

    def _refusal(self, error: OSError) -> str:
        return f"cannot write the recording {self._path}: {error}; {remedy(self._path.parent, error)}"


class Recording:
    """The steps of a data set, in the place of an agent's replay.

    Episodes follow each other as in a ring, each with a last row that only resets. Attributes are as in `Replay`.
    """

    def __init__(self, spec: Spec, arrays: dict[str, np.ndarray]):
        self._spec, self._arrays = spec, arrays

    def read(self, count: int) -> Read:
        """Access to the rows for `count` agents, which all read the same ones."""

        def read(name: str, steps: np.ndarray) -> np.ndarray:
            return self._arrays[name][np.broadcast_to(steps, (count, steps.shape[1]))]

        return read

    def replay(self, count: int) -> Replay:
        """The replays of `count` agents."""
        end = len(self._arrays["flags"]) - 1  # the last row has no action
        return Replay(self.read(count), np, self._spec, end, end, 0, self._arrays.keys())

    def observations(self, steps: np.ndarray) -> np.ndarray:
        """The stacked observations at `steps` int `[N, T]`, `[N * T, *spec.observation]`."""
        found = observations(self.read(len(steps)), self._spec, steps)
        return found.reshape(-1, *self._spec.observation)

    def past(self, steps: np.ndarray) -> Past | None:
        """The past at `steps` int `[N, T]`, or None. A recurrent network begins each sequence without a memory."""
        spec, read, begins = self._spec, self.read(len(steps)), np.arange(steps.shape[1]) == 0

        def forgetting(name: str, steps: np.ndarray) -> np.ndarray:
            if name == "state":
                return np.zeros((*steps.shape, spec.state), np.float32)
            found = read(name, np.maximum(steps, 0))
            return found | np.uint8(FIRST) * begins if name == "flags" else found

        return past(forgetting, spec, steps)


def load(path: str, spec: Spec) -> Recording:
    """Loads a data set of Minari.

    Raises:
      ConfigError: Minari is missing, there is no such data set, or it does not fit.
    """
    folder = os.path.realpath(path)
    files = [file for file in (Path(folder), *Path(folder).rglob("*")) if file.exists()]
    return _loaded(folder, spec, sum(file.stat().st_mtime_ns for file in files))


@functools.lru_cache(maxsize=4)
def _loaded(path: str, spec: Spec, changed: int) -> Recording:
    try:
        episodes = [_rows(episode, spec) for episode in _dataset(path).iterate_episodes()]
        if not episodes:
            raise ValueError("it has no episodes")
    except (ValueError, OSError, KeyError) as error:
        raise _unusable(path, error) from error
    return Recording(spec, {name: np.concatenate([rows[name] for rows in episodes]) for name in episodes[0]})


def size(path: str, spec: Spec) -> int:
    """Number of bytes of a recording in memory. Raises ConfigError as `load` does."""
    return _dataset(path).total_steps * (math.prod(spec.frame) * np.dtype(spec.dtype).itemsize + 4 * spec.vectors + 10)


def _dataset(path: str) -> Any:
    _check_minari()
    from minari import MinariDataset

    folder = Path(path) / "data" if (Path(path) / "data").is_dir() else Path(path)
    try:
        return MinariDataset(folder)
    except (ValueError, OSError, KeyError, AssertionError) as error:
        raise _unusable(path, error) from error


def _unusable(path: str, error: Exception) -> ConfigError:
    return ConfigError(f"the recording {path} cannot be used: {error}; make one with gunreal evaluate RUN --record")


def _rows(episode: Any, spec: Spec) -> dict[str, np.ndarray]:
    """The rows of an episode of T steps: T + 1, the last of which only resets."""
    seen: Any = episode.observations
    vector, steps = {}, len(episode.rewards)
    if spec.vectors:
        if not isinstance(seen, dict) or np.shape(seen.get("vector", ())) != (steps + 1, spec.vectors):
            raise ValueError(f"its observations lack the {spec.vectors} numbers beside images")
        seen, vector = seen["frame"], {"vector": np.asarray(seen["vector"], np.float32)}
    frames = np.asarray(seen)
    if frames.shape != (steps + 1, *spec.frame) or frames.dtype != spec.dtype:
        found = f"{frames.dtype} {list(frames.shape[1:])}"
        raise ValueError(f"its observations are {found} instead of {spec.dtype} {list(spec.frame)}")
    actions = np.append(np.asarray(episode.actions), 0).astype(np.int32)
    if actions.shape != (steps + 1,) or not ((actions >= 0) & (actions < spec.num_actions)).all():
        raise ValueError(f"its actions are not numbers below {spec.num_actions}")
    flags = np.zeros(steps + 1, np.uint8)
    flags[0], flags[-1] = FIRST, RESET
    flags[-2] |= TERMINATED if episode.terminations[-1] else TRUNCATED
    return vector | {
        "frame": frames,
        "action": actions,
        "reward": np.append(episode.rewards, 0).astype(np.float32),
        "flags": flags,
        "age": np.minimum(np.arange(steps + 1), 255).astype(np.uint8),
    }


def _check_minari() -> None:
    if not is_installed("minari"):
        raise ConfigError('recordings need Minari; install it with pip install "gunreal[data]"')
