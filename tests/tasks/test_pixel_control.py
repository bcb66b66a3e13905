import keras
import numpy as np
import pytest
import tensorflow as tf
from rings import draws, rows, targets

from gunreal.experience.replay import RESET, TERMINATED
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.tasks.pixel_control import PixelControl, pixel_change

ATARI = Spec((1, 84, 84), 4, "uint8", num_actions=6)
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


def test_the_sums_of_large_cells_do_not_overflow():
    frames = np.zeros((3, 3, 360, 360), np.uint8)
    frames[1] = 255
    np.testing.assert_allclose(pixel_change(frames[None], 90, (4, 4)), 1.0, rtol=1e-6)


@pytest.mark.parametrize(("channels", "stack"), [(1, 2), (3, 1), (3, 4)])
def test_returns_against_the_sum_written_out(channels, stack):
    spec = Spec((channels, 12, 16), stack, "uint8", 3, t_max=5)
    task = PixelControl(discount=0.9, cell=2)
    segment, rng = synthetic_segment(spec, {}, 400), np.random.default_rng(0)
    for first, length in draws(task, segment, 100 // channels):
        bootstrap = rng.random((6, 8), np.float32)
        found = targets(task, segment, (first, length), bootstrap)
        returns, action = found["returns"], found["action"]
        assert returns.shape == (5, 6, 8) and action.dtype == np.int32
        assert action[:length].tolist() == rows(segment, "action", first, length).tolist()
        assert not returns[length:].any() and not action[length:].any()
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
