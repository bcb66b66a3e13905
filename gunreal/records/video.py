"""A video of an episode: frame, score and value, and what pixel control expects to change."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gunreal.config.schema import Config, ConfigError
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning.learner import Learner
from gunreal.tasks.base import AuxiliaryTask
from gunreal.tasks.pixel_control import PixelControl

_SIDE = 336  # pixels that a small frame is enlarged to, by a whole factor
_TEXT, _CURVE = 28, 64  # heights of the strips above and below
_WHITE = (255, 255, 255)


class TrainedRun(Protocol):
    """What a video needs of a run, as `gunreal.Run` has it. The learner is asked for last: to load one is slow."""

    @property
    def config(self) -> Config:
        """The resolved configuration."""

    @property
    def spec(self) -> Spec:
        """Shapes of observations and actions."""

    @property
    def tasks(self) -> tuple[AuxiliaryTask, ...]:
        """The auxiliary tasks."""

    @property
    def learner(self) -> Learner:
        """The network with its weights."""


class Recorder:
    """Writes a video; a context manager that is called with each observation, as `gunreal.acting.episodes.play` does.

    A picture has the score and the value in words, the newest frame, and the course of the value below. If the run has
    pixel control, `max_a Q` of every cell is beside the frame, in its scale: dark is 0, bright is the most so far.

    Args:
      path: the file, `.mp4`; one that is there is replaced.
      run: whose networks are asked.

    Raises:
      ConfigError: imageio-ffmpeg is missing, `path` can't be written, or observations are no images.
    """

    def __init__(self, path: str | Path, run: TrainedRun):
        self._path, self._run = Path(path), run
        _check(self._path)
        spec = run.spec
        if not spec.is_image:
            raise ConfigError(f"--video needs image observations, and {run.config.env} observes vectors; leave it out")
        self._pc = next((task for task in run.tasks if isinstance(task, PixelControl)), None)
        height, width = spec.frame[1:]
        self._scale = max(1, _SIDE // max(height, width))
        self._panel = tuple(_even(self._scale * side) for side in (height, width))
        rows, columns = self._panel
        self.size = (columns * (2 if self._pc else 1), _TEXT + rows + _CURVE)
        self._values: deque[float] = deque(maxlen=self.size[0])
        self._q_max = 1e-6
        self._writer: Any = None

    def __enter__(self) -> Recorder:
        import imageio_ffmpeg

        fps = 60 / self._run.config.env_args.get("frameskip", 4)  # the speed of an Atari console
        self._writer = imageio_ffmpeg.write_frames(str(self._path), self.size, fps=fps, macro_block_size=2)
        self._writer.send(None)
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def __call__(self, observation: np.ndarray, score: float, past: Past | None = None) -> None:
        """Adds a picture for an observation `[*spec.observation]` and what a recurrent network takes beside it."""
        self._writer.send(self.draw(observation, score, past))

    def draw(self, observation: np.ndarray, score: float, past: Past | None = None) -> np.ndarray:
        """The picture, uint8 `[height, width, 3]`, RGB; it is the newest of those drawn so far."""
        learner, (rows, columns) = self._run.learner, self._panel
        value = float(learner.predict("base", observation[None], past)[1][0])
        self._values.append(value)
        picture = np.zeros((self.size[1], self.size[0], 3), np.uint8)
        picture[_TEXT : _TEXT + rows, :columns] = self._frame(observation)
        words = f"score {score:g}  value {value:.2f}"
        if self._pc:
            (q,) = learner.predict(self._pc.name, observation[None], past)[0]
            picture[_TEXT : _TEXT + rows, columns:] = self._map(q)
            words += f"  max Q of pixel control {q.max():.3f}"
        _write(picture[:_TEXT], words)
        _plot(picture[_TEXT + rows :], np.array(self._values))
        return picture

    def _frame(self, observation: np.ndarray) -> np.ndarray:
        newest = np.moveaxis(observation[-self._run.spec.frame[0] :], 0, -1)
        return _centred(np.broadcast_to(newest, (*newest.shape[:2], 3)), self._scale, self._panel)

    def _map(self, q: np.ndarray) -> np.ndarray:
        import cv2

        assert self._pc is not None
        self._q_max = max(self._q_max, float(q.max()))
        gray = (np.clip(q / self._q_max, 0, 1) * 255).astype(np.uint8)
        colours = cv2.applyColorMap(gray, cv2.COLORMAP_INFERNO)[..., ::-1]
        return _centred(colours, self._scale * self._pc.cell_size(self._run.spec), self._panel)


def _check(path: Path) -> None:
    if path.suffix != ".mp4":
        raise ConfigError(f"--video {path} is no name of a video; write FILE.mp4")
    folder = path.parent
    if path.is_dir() or not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ConfigError(f"--video {path} can't be written; choose a file in a folder that is there and writable")
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        raise ConfigError("--video needs the package imageio-ffmpeg: pip install gunreal[video]") from None


def _even(side: int) -> int:
    return side + side % 2  # the video's format halves the resolution of colours


def _centred(image: np.ndarray, scale: int, panel: tuple[int, ...]) -> np.ndarray:
    """An image `[h, w, 3]`, enlarged by whole pixels, in the centre of a black panel."""
    image = image.repeat(scale, 0).repeat(scale, 1)
    canvas = np.zeros((*panel, 3), np.uint8)
    top, left = ((outer - inner) // 2 for outer, inner in zip(panel, image.shape, strict=False))
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def _write(strip: np.ndarray, words: str) -> None:
    import cv2

    cv2.putText(strip, words, (8, _TEXT - 9), cv2.FONT_HERSHEY_SIMPLEX, 0.5, _WHITE, 1, cv2.LINE_AA)


def _plot(strip: np.ndarray, values: np.ndarray) -> None:
    """Draws values over time, one a pixel, the newest at the right end; the scale is theirs, with 0 in it."""
    import cv2

    height, width = strip.shape[:2]
    low, high = min(0.0, values.min()), max(0.0, values.max())
    heights = (height - 8) * (1 - (np.append(values, 0.0) - low) / max(high - low, 1e-6)) + 4
    *line, zero = np.round(heights).astype(np.int32)
    cv2.line(strip, (0, int(zero)), (width, int(zero)), (80, 80, 80))
    points = np.stack((np.arange(width - len(values), width), line), axis=1).astype(np.int32)
    cv2.polylines(strip, [points], False, _WHITE, 1)
