"""Videos of episodes: the frame, the score, the value, and the Q values of pixel control."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.config.folders import remedy
from gunreal.config.packages import package
from gunreal.config.schema import Config, ConfigError
from gunreal.experience.replay import Past
from gunreal.records.pictures import colors, heat
from gunreal.records.writable import check_writable
from gunreal.tasks.pixel_control import PixelControl

_SIDE = 336  # pixels to which small frames are enlarged, by a whole factor
_TEXT, _CURVE = 28, 64  # heights of the strips above and below the frame, in pixels
_WHITE = (255, 255, 255)


class NotWritten(ConfigError):
    """The episodes were played, but there is no video of them, for example because the disk is full."""


class Recorder:
    """A context manager that writes a video. Call it with each observation, as `gunreal.acting.episodes.play` does.

    A picture shows the score and the value as text, the newest frame, and a curve of the value. With pixel control, it
    also shows `max_a Q` of every cell next to the frame, at the same scale. Dark means 0, and bright means the largest
    value so far.

    Args:
      path: path of the `.mp4` file. An existing file is replaced when the video is complete.
      run: the `gunreal.Run` whose network is used. It is loaded last, because that is slow.

    If ffmpeg fails, the episodes go on, and `NotWritten` is raised at the end.

    Raises:
      ConfigError: imageio-ffmpeg is missing, `path` is not writable, or observations are not images.
    """

    def __init__(self, path: str | Path, run: Any):
        self._path, self._run = Path(path), run
        _check(self._path)
        spec = run.spec
        if not spec.is_image:
            raise ConfigError(
                f"a video needs image observations, but {run.config.env} observes vectors; film what it renders, as "
                "the page Environments shows"
            )
        self._pc = next((task for task in run.heads if isinstance(task, PixelControl)), None)
        height, width = spec.frame[1:]
        self._scale = max(1, _SIDE // max(height, width))
        self._panel = tuple(_even(self._scale * side) for side in (height, width))
        rows, columns = self._panel
        self.size = (columns * (2 if self._pc else 1), _TEXT + rows + _CURVE)
        self._values: deque[float] = deque(maxlen=self.size[0])
        self._q_max = 1e-6
        self._writer: Any = None
        self._count = 0  # pictures written
        self._is_broken = False  # whether ffmpeg has ended

    def __enter__(self) -> Recorder:
        import imageio_ffmpeg

        fps = _agent_steps_per_second(self._run.config)
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=".gunreal-video-", dir=self._path.parent)
        except OSError as error:
            raise ConfigError(self._refusal(error)) from error
        self._written = Path(self._folder.name, "video.mp4")
        self._writer = imageio_ffmpeg.write_frames(str(self._written), self.size, fps=fps, macro_block_size=2)
        self._writer.send(None)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._folder:
            self._writer.close()
            if kind is None:
                if not self._is_complete():
                    raise NotWritten(f"ffmpeg could not write the video {self._path}; check the free space of the disk")
                try:
                    os.replace(self._written, self._path)
                except OSError as error:
                    raise NotWritten(self._refusal(error)) from error

    def _refusal(self, error: OSError) -> str:
        return f"cannot write the video {self._path}: {error.strerror}; {remedy(self._path.parent, error)}"

    def __call__(self, observation: np.ndarray, score: float, past: Past | None = None) -> None:
        """Adds a picture for an observation `[*spec.observation]` and the past of a recurrent network."""
        if self._is_broken:
            return
        picture = self.draw(observation, score, past)
        try:
            self._writer.send(picture)
            self._count += 1
        except OSError:  # its pipe is broken
            self._is_broken = True

    def _is_complete(self) -> bool:
        """The writer does not tell whether ffmpeg has ended well, for example on a full disk."""
        import imageio_ffmpeg

        try:
            return not self._is_broken and imageio_ffmpeg.count_frames_and_secs(str(self._written))[0] >= self._count
        except RuntimeError:  # there is no video in the file
            return False

    def draw(self, observation: np.ndarray, score: float, past: Past | None = None) -> np.ndarray:
        """Draws the next picture, uint8 `[height, width, 3]` in RGB."""
        rows, columns = self._panel
        value = float(self._run.actor_critic.predict("base", observation[None], past)[1][0])
        self._values.append(value)
        picture = np.zeros((self.size[1], self.size[0], 3), np.uint8)
        picture[_TEXT : _TEXT + rows, :columns] = self._frame(observation)
        words = f"score {score:g}  value {value:.2f}"
        if self._pc:
            (q,) = self._run.learner.predict(self._pc.name, observation[None], past)[0]
            picture[_TEXT : _TEXT + rows, columns:] = self._map(q)
            words += f"  max Q of pixel control {q.max():.3f}"
        _write(picture[:_TEXT], words)
        _plot(picture[_TEXT + rows :], np.array(self._values))
        return picture

    def _frame(self, observation: np.ndarray) -> np.ndarray:
        return _centered(colors(observation[-self._run.spec.frame[0] :]), self._scale, self._panel)

    def _map(self, q: np.ndarray) -> np.ndarray:
        assert self._pc is not None
        self._q_max = max(self._q_max, float(q.max()))
        return _centered(heat(q, self._q_max), self._scale * self._pc.cell_size(self._run.spec), self._panel)


def _check(path: Path) -> None:
    if path.suffix != ".mp4":
        raise ConfigError(f"video {path} is not the name of an mp4 file; write FILE.mp4")
    check_writable(path, "the video ")
    package("imageio_ffmpeg", 'a video needs the package imageio-ffmpeg; run pip install "gunreal[video]"')


def _agent_steps_per_second(config: Config) -> float:
    """The speed of an Atari console, and 15 for other environments."""
    return 60 / config.env_args.get("frameskip", 4) if config.env.startswith("ALE/") else 15.0


def _even(side: int) -> int:
    return side + side % 2  # the video format halves the resolution of colors


def _centered(image: np.ndarray, scale: int, panel: tuple[int, ...]) -> np.ndarray:
    """Enlarges an image `[h, w, 3]` by a whole factor and centers it on a black panel."""
    image = image.repeat(scale, 0).repeat(scale, 1)
    canvas = np.zeros((*panel, 3), np.uint8)
    top, left = ((outer - inner) // 2 for outer, inner in zip(panel, image.shape, strict=False))
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def _write(strip: np.ndarray, words: str) -> None:
    import cv2

    cv2.putText(strip, words, (8, _TEXT - 9), cv2.FONT_HERSHEY_SIMPLEX, 0.5, _WHITE, 1, cv2.LINE_AA)


def _plot(strip: np.ndarray, values: np.ndarray) -> None:
    """Draws values over time, one per pixel, with the newest on the right. The scale includes all values and 0."""
    import cv2

    height, width = strip.shape[:2]
    low, high = min(0.0, values.min()), max(0.0, values.max())
    heights = (height - 8) * (1 - (np.append(values, 0.0) - low) / max(high - low, 1e-6)) + 4
    *line, zero = np.round(heights).astype(np.int32)
    cv2.line(strip, (0, int(zero)), (width, int(zero)), (80, 80, 80))
    points = np.stack((np.arange(width - len(values), width), line), axis=1).astype(np.int32)
    cv2.polylines(strip, [points], False, _WHITE, 1)
