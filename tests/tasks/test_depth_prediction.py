import pickle

import numpy as np
import pytest
import tensorflow as tf
from rings import draws, targets

import gunreal
from gunreal.config.schema import ConfigError
from gunreal.experience.synthetic import synthetic_segment
from gunreal.tasks.depth_prediction import LINEAR, Z_BUFFER, DepthPrediction, subsample
from gunreal.tasks.recorded import recorded_fields
from gunreal.tasks.registry import load_tasks
from gunreal.testing import IMAGES
from gunreal.train import prepare

TASK = DepthPrediction()


def slow_points(depth, rows, columns):
    """The pixel in the middle of each cell of a grid over the middle half of the height."""
    height, width = depth.shape
    points = np.zeros((rows, columns), depth.dtype)
    for i in range(rows):
        for j in range(columns):
            y = height // 4 + int((i + 0.5) * (height // 2) / rows)
            x = int((j + 0.5) * width / columns)
            points[i, j] = depth[y, x]
    return points


@pytest.mark.parametrize(
    ("size", "grid"), [((84, 84), (4, 16)), ((64, 96), (8, 16)), ((9, 7), (4, 7)), ((2, 1), (1, 1))]
)
def test_subsample_against_loops(size, grid):
    maps = np.random.default_rng(0).integers(256, size=(3, *size)).astype(np.uint8)
    points = subsample(maps, *grid)
    assert points.shape == (3, *grid) and points.dtype == np.uint8
    for depth, of_map in zip(maps, points, strict=True):
        np.testing.assert_array_equal(of_map, slow_points(depth, *grid))


def test_edges_of_the_far_end_are_the_papers():
    """Mirowski et al.: (d / 255)^10, cut at 0.05, 0.175, 0.3, 0.425, 0.55, 0.675 and 0.8."""
    depth = np.arange(256)
    papers = np.digitize((depth / 255) ** 10, [0.05, 0.175, 0.3, 0.425, 0.55, 0.675, 0.8])
    np.testing.assert_array_equal(np.digitize(depth, Z_BUFFER), papers)
    assert TASK.edges == (*LINEAR, *Z_BUFFER) and len(TASK.edges) == 20


def test_targets_against_counting():
    segment = synthetic_segment(IMAGES, TASK.record(IMAGES), 200)
    lengths = set()
    for first, length in draws(TASK, segment, 100):
        band = targets(TASK, segment, (first, length))["band"]
        assert band.shape == (6, 4, 16) and band.dtype == np.int32
        for row in range(length):  # terminations and resets are crossed; each row has its own map
            points = segment.arrays["depth"][0, (first + row) % segment.layout.ring]
            np.testing.assert_array_equal(band[row], sum((points >= edge).astype(int) for edge in TASK.edges))
        assert not band[length:].any()
        lengths.add(length)
    assert {1, 6} <= lengths  # truncated ones among them


def test_only_the_points_are_stored():
    field = TASK.record(IMAGES)["depth"]
    maps = np.random.default_rng(0).integers(256, size=(3, 84, 84)).astype(np.uint8)
    assert (field.key, field.shape, field.dtype) == ("depth", (4, 16), "uint8")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(field)).convert(maps), subsample(maps, 4, 16))
    with pytest.raises(ConfigError, match="depth needs a uint8 depth map, but this one is uint16; scale it"):
        field.convert(maps.astype(np.uint16))


def test_loss_and_gradient_by_hand():
    task = DepthPrediction(rows=1, columns=2, edges=(100,))
    logits = np.zeros((1, 2, 1, 2, 2), np.float32)
    logits[0, 0, 0, 0] = [np.log(3), 0]  # 3/4 on band 0, which is right
    logits[0, 1] = 50  # masked
    batch = {"band": np.array([[[[0, 1]], [[1, 0]]]], np.int32), "mask": np.array([[1, 0]], np.float32)}
    outputs = tf.Variable(logits)
    with tf.GradientTape() as tape:
        loss = task.loss(outputs, batch)
    assert float(loss) == pytest.approx((np.log(4 / 3) + np.log(2)) / 2, rel=1e-5)
    gradient = np.zeros_like(logits)
    gradient[0, 0, 0] = np.array([[-0.25, 0.25], [0.5, -0.5]]) / 2
    np.testing.assert_allclose(tape.gradient(loss, outputs), gradient, atol=1e-6)


def test_head_has_128_units_and_a_softmax_for_each_point():
    head = DepthPrediction(rows=2, columns=3, edges=(10, 20, 30)).head(IMAGES)
    logits = head(np.ones((5, 6, 32), np.float32))
    assert logits.shape == (5, 6, 2, 3, 4)
    assert [tuple(v.shape) for v in head.trainable_variables] == [(32, 128), (128,), (128, 24), (24,)]


def test_observations_that_nothing_learns_from_are_named(capsys):
    prepare(gunreal.Config(env="scripted_env:Walls-v0"))
    line = "gunreal: learns from 'image', and not from the other observations: depth\n"
    assert capsys.readouterr().err == line
    prepare(gunreal.Config(env="scripted_env:Walls-v0", tasks=("depth",)))
    assert not capsys.readouterr().err


def test_it_is_learned_from_an_environment_that_gives_depth(tmp_path):
    options = {"tasks": ("depth",), "task": {"depth": {"weight": 1.0}}, "steps": 2000, "min_batch": 40, "agents": 8}
    options |= {"hidden": 32, "frame_stack": 1, "learning_rate": 3e-3, "metrics_seconds": 0.2}
    config = gunreal.Config(env="scripted_env:Walls-v0", runner="serial", logdir=str(tmp_path), name="depth", **options)
    lines = gunreal.train(config, show=False).metrics
    losses = [line["loss_depth"] for line in lines if line["loss_depth"] is not None]
    assert losses[0] > 1.1  # ln 21 = 3.0 at the start; who does not look at the image stays above ln 3 = 1.1
    assert losses[-1] < 0.3


def test_copies_of_the_task_share_what_they_record():
    tasks = load_tasks(["depth", "far=depth"], {"far": {"edges": [9]}})
    assert list(recorded_fields(tasks, IMAGES)) == ["depth"]
