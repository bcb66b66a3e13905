"""What a video's pictures show, of runs without a trained network; `test_evaluate` writes and reads a whole video."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import numpy as np
import pytest

from gunreal.config.schema import Config, ConfigError
from gunreal.experience.spec import Spec
from gunreal.tasks.pixel_control import PixelControl

pytest.importorskip("imageio_ffmpeg")


class Fixed:
    """A learner with a value of 0.5 and, for pixel control, `q` everywhere."""

    def __init__(self, q=None):
        self.q = q

    def predict(self, head, observations, past=None):
        return (self.q[None],) if head == "pc" else (np.zeros((1, 2), np.float32), np.array([0.5], np.float32))


def recorder(path, spec, tasks=(), q=None):
    from gunreal.records.video import Recorder

    run = SimpleNamespace(spec=spec, config=Config(), heads=tasks, learner=Fixed(q), actor_critic=Fixed())
    return Recorder(path, run)


def draw(tmp_path, observation, spec, tasks=(), q=None):
    return recorder(tmp_path / "a.mp4", spec, tasks, q).draw(observation, 3.0)


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_newest_frame_is_drawn_in_its_own_colors(tmp_path, channels, stack):
    spec = Spec((channels, 64, 64), stack, "uint8", 2)
    observation = np.random.default_rng(0).integers(256, size=spec.observation).astype(np.uint8)
    picture = draw(tmp_path, observation, spec)
    assert picture.shape == (28 + 5 * 64 + 64, 5 * 64, 3) and picture.dtype == np.uint8
    newest = observation[-channels:].transpose(1, 2, 0)
    wanted = np.broadcast_to(newest, (64, 64, 3)).repeat(5, axis=0).repeat(5, axis=1)
    np.testing.assert_array_equal(picture[28 : 28 + 320], wanted)


@pytest.mark.parametrize(("size", "scale", "cell"), [(84, 4, 4), (64, 5, 3), (120, 2, 6)])
def test_the_map_lies_where_its_cells_are_in_the_frame(tmp_path, size, scale, cell):
    spec = Spec((3, size, size), 4, "uint8", 2)
    q = np.zeros((20, 20), np.float32)
    q[7, 11] = 1
    picture = draw(tmp_path, np.zeros(spec.observation, np.uint8), spec, (PixelControl(),), q)
    side = scale * size
    assert picture.shape == (28 + side + 64, 2 * side, 3)
    rows, columns = np.nonzero(picture[28 : 28 + side, side:].max(axis=2) > 128)
    corner = scale * ((size - 20 * cell) // 2)
    assert (rows.min(), rows.max() + 1) == (corner + scale * cell * 7, corner + scale * cell * 8)
    assert (columns.min(), columns.max() + 1) == (corner + scale * cell * 11, corner + scale * cell * 12)


@pytest.mark.parametrize(
    ("options", "fps"), [({}, 15), ({"env_args": {"frameskip": 2}}, 30), ({"env": "gunreal/Catch-v0"}, 15)]
)
def test_an_episode_is_as_fast_as_on_the_console(options, fps):
    from gunreal.records.video import _agent_steps_per_second

    assert _agent_steps_per_second(Config(**options)) == fps


def test_a_video_that_cannot_be_moved_to_its_place(tmp_path):
    spec, path = Spec((1, 64, 64), 1, "uint8", 2), tmp_path / "a.mp4"
    with pytest.raises(ConfigError, match=r"a\.mp4: Is a directory; make .* writable$"), recorder(path, spec) as one:
        one(np.zeros(spec.observation, np.uint8), 0.0)
        path.mkdir()
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_is_full_before_the_video_begins(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    one = recorder(tmp_path / "a.mp4", Spec((1, 64, 64), 1, "uint8", 2))
    monkeypatch.setattr("tempfile.TemporaryDirectory", full)
    with pytest.raises(ConfigError, match=r"a\.mp4: No space left on device; free some space in "), one:
        pass
