import keras
import numpy as np
import pytest
import tensorflow as tf
from rings import draws, episodes, make_segment, rows, targets

from gunreal.experience.replay import RESET, TERMINATED
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.tasks.pixel_control import PixelControl, pixel_change

ATARI = Spec((1, 84, 84), 4, "uint8", num_actions=6)
TINY = Spec((1, 4, 4), 1, "uint8", num_actions=2, t_max=4)  # with cell=1, a grid of 4x4 pixels
TASK = PixelControl(discount=0.5, cell=1)


def slow_change(older, newer, cell, top, left, rows, columns):
    """GUNREAL section 2.2: the absolute difference per pixel, on pixels in [0, 1], averaged over each cell."""
    change = np.zeros((rows, columns))
    for i in range(rows):
        for j in range(columns):
            differences = [
                abs(float(newer[c, y, x]) / 255 - float(older[c, y, x]) / 255)
                for c in range(older.shape[0])
                for y in range(top + i * cell, top + (i + 1) * cell)
                for x in range(left + j * cell, left + (j + 1) * cell)
            ]
            change[i, j] = sum(differences) / len(differences)
    return change


@pytest.mark.parametrize(
    ("frame", "cell", "corner", "grid"),
    [
        ((1, 84, 84), 4, (2, 2), (20, 20)),  # the paper's 80x80 centre crop
        ((3, 84, 84), 4, (2, 2), (20, 20)),
        ((1, 42, 42), 4, (1, 1), (10, 10)),
        ((3, 64, 96), 8, (0, 0), (8, 12)),
        ((2, 13, 17), 2, (0, 0), (6, 8)),
        ((1, 5, 9), 1, (0, 0), (4, 8)),
    ],
)
def test_pixel_change_against_loops(frame, cell, corner, grid):
    spec = Spec(frame, 1, "uint8", 2)
    task = PixelControl(cell=cell)
    task.check(spec)
    assert (task.cell_size(spec), task.grid(spec)) == (cell, grid)
    assert corner == tuple((size - cells * cell) // 2 for size, cells in zip(frame[1:], grid, strict=True))
    frames = np.random.default_rng(0).integers(256, size=(3, *frame)).astype(np.uint8)
    (changes,) = pixel_change(frames[None], cell, grid)
    assert changes.dtype == np.float32 and changes.shape == (2, *grid)
    for change, older, newer in zip(changes, frames, frames[1:], strict=False):
        np.testing.assert_allclose(change, slow_change(older, newer, cell, *corner, *grid), rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "cell", "grid"),
    [(20, 1, 20), (42, 2, 20), (64, 3, 20), (84, 4, 20), (96, 5, 18), (120, 6, 20), (512, 26, 18)],
)
def test_derived_geometry_is_near_the_papers_at_any_resolution(size, cell, grid):
    spec = Spec((1, size, size), 4, "uint8", 2)
    assert (PixelControl().cell_size(spec), PixelControl().grid(spec)) == (cell, (grid, grid))


def test_every_derived_geometry_fits_its_frame_and_its_head():
    task = PixelControl()
    for size in range(4, 513, 3):
        spec = Spec((3, size, size + 30), 1, "uint8", 2)
        task.check(spec)
        cell, (rows, columns) = task.cell_size(spec), task.grid(spec)
        assert rows * cell <= size < (rows + 2) * cell and columns * cell <= size + 30 < (columns + 2) * cell
        assert size <= 50 or 16 <= rows <= 22
        height, width, _ = task.head(spec).maps
        assert (2 * height + 2, 2 * width + 2) == (rows, columns)  # a 4x4 deconvolution of stride 2


@pytest.mark.parametrize(("channels", "cell"), [(1, 4), (3, 8), (3, 20), (3, 90)])
def test_pixel_change_of_black_to_white_is_one(channels, cell):
    frames = np.zeros((3, channels, 4 * cell, 4 * cell), np.uint8)
    frames[1] = 255
    np.testing.assert_allclose(pixel_change(frames[None], cell, (4, 4)), 1.0, rtol=1e-6)


def test_only_the_crop_counts_and_each_cell_by_itself():
    frames = np.zeros((2, 1, 84, 84), np.uint8)
    frames[1, 0, :2] = frames[1, 0, -2:] = 255
    frames[1, 0, :, :2] = frames[1, 0, :, -2:] = 255
    assert not pixel_change(frames[None], 4, (20, 20)).any()
    frames[1, 0, 2 + 4 * 7 + 3, 2 + 4 * 11] = 255  # a pixel of cell (7, 11)
    change = pixel_change(frames[None], 4, (20, 20))[0, 0]
    assert change[7, 11] == pytest.approx(1 / 16) and change.sum() == pytest.approx(1 / 16)


def flat(*values):
    """Frames of one gray each."""
    return np.array(values, np.uint8)[:, None, None, None] * np.ones((1, 1, 4, 4), np.uint8)


def test_targets_across_a_termination_by_hand():
    # rows 0, 1 (terminates), 2 RESET, 3, 4; the change of row 1 is the one to the final observation in row 2
    frames = flat(0, 51, 204, 0, 255, 0)
    segment = make_segment(TINY, episodes("-T --"), frames=frames, actions=[1, 0, 1, 1, 0])
    found = targets(TASK, segment, (0, 4), np.full((4, 4), 2, np.float32))
    # changes 0.2, 0.6, (0.8: reset), 1.0; gamma 0.5; the bootstrap does not reach rows 0 and 1
    wanted = [0.2 + 0.5 * 0.6, 0.6, 0.8 + 0.5 * 2.0, 1.0 + 0.5 * 2]
    np.testing.assert_allclose(found["returns"], np.array(wanted)[:, None, None] * np.ones((4, 4)), rtol=1e-6)
    assert found["action"].tolist() == [1, 0, 1, 1] and found["action"].dtype == np.int32


def test_targets_of_a_truncated_sequence_by_hand():
    frames = flat(0, 51, 204, 0, 255, 0)
    segment = make_segment(TINY, episodes("-t --"), frames=frames, actions=[1, 1, 0, 0, 0])
    bootstrap = np.arange(16, dtype=np.float32).reshape(4, 4)
    found = targets(TASK, segment, (0, 2), bootstrap)
    np.testing.assert_allclose(found["returns"][1], 0.6 + 0.5 * bootstrap, rtol=1e-6)
    np.testing.assert_allclose(found["returns"][0], 0.2 + 0.5 * (0.6 + 0.5 * bootstrap), rtol=1e-6)
    assert not found["returns"][2:].any() and found["action"].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(("channels", "stack"), [(1, 2), (3, 1), (3, 4)])
def test_returns_against_the_sum_written_out(channels, stack):
    spec = Spec((channels, 12, 16), stack, "uint8", 3, t_max=5)
    task = PixelControl(discount=0.9, cell=2)
    segment, rng = synthetic_segment(spec, {}, 400), np.random.default_rng(0)
    for first, length in draws(task, segment, 100 // channels):
        bootstrap = rng.random((6, 8), np.float32)
        returns = targets(task, segment, (first, length), bootstrap)["returns"]
        assert returns.shape == (5, 6, 8)
        frames, flags = rows(segment, "frame", first, length + 1), rows(segment, "flags", first, length)
        for step in range(length):
            if flags[step] & RESET:
                continue
            total, factor = np.zeros((6, 8)), 1.0
            for t in range(step, length):
                total += factor * slow_change(frames[t], frames[t + 1], 2, 0, 0, 6, 8)
                factor *= 0 if flags[t] & TERMINATED else 0.9
                if not factor:
                    break
            np.testing.assert_allclose(returns[step], total + factor * bootstrap, rtol=1e-4)


@pytest.mark.parametrize("stack", [1, 4])
def test_rgb_targets_are_those_of_the_papers_preprocessing(stack):
    """GUNREAL section 3.1: the absolute difference of the two frames' 80x80 centre crops, averaged over the channels
    to a gray frame of differences; the average of each 4x4 group of its pixels."""
    spec = Spec((3, 84, 84), stack, "uint8", 3, t_max=4)
    task = PixelControl()
    segment = synthetic_segment(spec, {}, 60)
    first, length = sequence = next(pair for pair in draws(task, segment, 20) if pair[1] == 4)
    bootstrap = np.random.default_rng(1).random((20, 20), np.float32)
    crops = rows(segment, "frame", first, length + 1)[:, :, 2:82, 2:82].astype(np.float64) / 255
    returns, wanted = bootstrap, []
    for t in reversed(range(length)):
        gray = np.abs(crops[t + 1] - crops[t]).mean(axis=0)
        change = np.array([[gray[y : y + 4, x : x + 4].mean() for x in range(0, 80, 4)] for y in range(0, 80, 4)])
        returns = change + (0.0 if rows(segment, "flags", first + t, 1)[0] & TERMINATED else 0.9) * returns
        wanted.insert(0, returns)
    np.testing.assert_allclose(targets(task, segment, sequence, bootstrap)["returns"], wanted, rtol=1e-5)


def test_bootstrap_is_the_best_action_of_each_cell():
    q = np.zeros((2, 1, 3, 4, 4), np.float32)
    q[0, 0, 1, 2, 3], q[1, 0, :, 0, 0] = 5, [-3, -1, -2]
    best = keras.ops.convert_to_numpy(TASK.bootstrap(keras.ops.convert_to_tensor(q)))
    assert best.shape == (2, 4, 4)
    assert best[0, 2, 3] == 5 and best[0].sum() == 5
    assert best[1, 0, 0] == -1 and best[1].sum() == -1


def test_loss_and_gradient_by_hand():
    # Two sequences of two steps, two actions, a grid of 4x4; the mask leaves three steps.
    q = np.zeros((2, 2, 2, 4, 4), np.float32)
    returns = np.zeros((2, 2, 4, 4), np.float32)
    q[0, 0, 1, 0, 0], returns[0, 0, 0, 0] = 1, 3  # off by 2 in the action taken
    q[0, 0, 0, 0, 0] = 50  # an action not taken
    returns[0, 1, 1, 2], returns[0, 1, 3, 3] = -1, 4  # two cells are summed
    q[1, 1] = 100  # masked
    batch = {
        "returns": tf.constant(returns),
        "action": tf.constant([[1, 0], [0, 1]], tf.int32),
        "mask": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
    }
    outputs = tf.Variable(q)
    with tf.GradientTape() as tape:
        loss = TASK.loss(outputs, batch)
    assert float(loss) == pytest.approx(0.5 * (2**2 + 1**2 + 4**2) / 3)
    gradient = np.zeros_like(q)
    gradient[0, 0, 1, 0, 0] = -2 / 3  # (Q - R) / steps
    gradient[0, 1, 0, 1, 2] = 1 / 3
    gradient[0, 1, 0, 3, 3] = -4 / 3
    np.testing.assert_allclose(tape.gradient(loss, outputs), gradient, rtol=1e-5)


def test_head_is_the_dueling_sum_of_two_deconvolutions_without_relu():
    head = TASK.head(spec := Spec((1, 8, 12), 1, "uint8", num_actions=3))
    features = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)
    head(features)
    head.value_bias.assign([[-0.1]])
    head.advantage_bias.assign([[-0.2], [0.1], [0.4]])
    q = keras.ops.convert_to_numpy(head(features))
    assert q.shape == (2, 5, 3, *TASK.grid(spec)) == (2, 5, 3, 8, 12)

    maps = np.maximum(features.reshape(10, 7) @ head.dense.kernel.numpy() + head.dense.bias.numpy(), 0)
    streams = []
    for kernel, bias in ((head.value_kernel, head.value_bias), (head.advantage_kernel, head.advantage_bias)):
        deconvolution = keras.layers.Conv2DTranspose(kernel.shape[2], 4, 2, "valid")
        deconvolution.build((None, 3, 5, 32))
        deconvolution.set_weights([kernel.numpy(), bias.numpy()[:, 0]])
        streams.append(keras.ops.convert_to_numpy(deconvolution(maps.reshape(10, 3, 5, 32))))
    value, advantage = streams
    wanted = value + advantage - advantage.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(q.reshape(10, 3, 8, 12), wanted.transpose(0, 3, 1, 2), rtol=1e-4, atol=1e-5)
    assert (value < 0).any() and (advantage < 0).any()  # which a ReLU would forbid
    np.testing.assert_allclose(q.mean(axis=2).reshape(10, 8, 12), value[..., 0], rtol=1e-3, atol=1e-5)


def test_head_for_atari_makes_the_papers_shapes():
    head = PixelControl().head(ATARI)
    head.build((None, 20, 256))
    shapes = {variable.name: tuple(variable.shape) for variable in head.trainable_variables}
    assert shapes["kernel"] == (256, 9 * 9 * 32)
    assert shapes["value_kernel"] == (4, 4, 1, 32) and shapes["advantage_kernel"] == (4, 4, 6, 32)
    assert head.compute_output_shape((None, 20, 256)) == (None, 20, 6, 20, 20)
