import keras
import numpy as np
import pytest
import tensorflow as tf
from rings import episodes, make_replay

from gunreal.registry import synthetic_segment
from gunreal.replay import RESET, TERMINATED
from gunreal.spec import Spec
from gunreal.tasks.base import Sequence
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
    assert task.grid(spec) == grid
    assert corner == tuple((size - cells * cell) // 2 for size, cells in zip(frame[1:], grid, strict=True))
    frames = np.random.default_rng(0).integers(256, size=(3, *frame)).astype(np.uint8)
    changes = pixel_change(frames, cell, grid)
    assert changes.dtype == np.float32 and changes.shape == (2, *grid)
    for change, older, newer in zip(changes, frames, frames[1:], strict=False):
        np.testing.assert_allclose(change, slow_change(older, newer, cell, *corner, *grid), rtol=1e-5)


@pytest.mark.parametrize(("channels", "cell"), [(1, 4), (3, 8), (3, 20), (3, 90)])
def test_pixel_change_of_black_to_white_is_one(channels, cell):
    frames = np.zeros((3, channels, 4 * cell, 4 * cell), np.uint8)
    frames[1] = 255
    np.testing.assert_allclose(pixel_change(frames, cell, (4, 4)), 1.0, rtol=1e-6)


def test_only_the_crop_counts_and_each_cell_by_itself():
    frames = np.zeros((2, 1, 84, 84), np.uint8)
    frames[1, 0, :2] = frames[1, 0, -2:] = 255
    frames[1, 0, :, :2] = frames[1, 0, :, -2:] = 255
    assert not pixel_change(frames, 4, (20, 20)).any()
    frames[1, 0, 2 + 4 * 7 + 3, 2 + 4 * 11] = 255  # a pixel of cell (7, 11)
    change = pixel_change(frames, 4, (20, 20))[0]
    assert change[7, 11] == pytest.approx(1 / 16) and change.sum() == pytest.approx(1 / 16)


def flat(*values):
    """Frames of one gray each."""
    return np.array(values, np.uint8)[:, None, None, None] * np.ones((1, 1, 4, 4), np.uint8)


def test_targets_across_a_termination_by_hand():
    # rows 0, 1 (terminates), 2 RESET, 3, 4; the change of row 1 is the one to the final observation in row 2
    frames = flat(0, 51, 204, 0, 255, 0)
    replay = make_replay(TINY, episodes("-T --"), frames=frames, actions=[1, 0, 1, 1, 0])
    targets = TASK.targets(replay, Sequence(0, 4), np.full((4, 4), 2, np.float32))
    # changes 0.2, 0.6, (0.8: reset), 1.0; gamma 0.5; the bootstrap does not reach rows 0 and 1
    wanted = [0.2 + 0.5 * 0.6, 0.6, 0.8 + 0.5 * 2.0, 1.0 + 0.5 * 2]
    np.testing.assert_allclose(targets["returns"], np.array(wanted)[:, None, None] * np.ones((4, 4)), rtol=1e-6)
    assert targets["action"].tolist() == [1, 0, 1, 1] and targets["action"].dtype == np.int32


def test_targets_of_a_truncated_sequence_by_hand():
    frames = flat(0, 51, 204, 0, 255, 0)
    replay = make_replay(TINY, episodes("-t --"), frames=frames, actions=[1, 1, 0, 0, 0])
    assert replay.sequence_length(0, 4) == 2
    bootstrap = np.arange(16, dtype=np.float32).reshape(4, 4)
    targets = TASK.targets(replay, Sequence(0, 2), bootstrap)
    np.testing.assert_allclose(targets["returns"][1], 0.6 + 0.5 * bootstrap, rtol=1e-6)
    np.testing.assert_allclose(targets["returns"][0], 0.2 + 0.5 * (0.6 + 0.5 * bootstrap), rtol=1e-6)
    assert not targets["returns"][2:].any() and targets["action"].tolist() == [1, 1, 0, 0]


def test_returns_against_the_sum_written_out():
    spec = Spec((1, 12, 16), 2, "uint8", 3, t_max=5)
    task = PixelControl(discount=0.9, cell=2)
    replay = synthetic_segment(spec, {}, 400).agent(0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        first, length = sequence = task.sample(replay, rng)
        bootstrap = rng.random((6, 8), np.float32)
        returns = task.targets(replay, sequence, bootstrap)["returns"]
        assert returns.shape == (5, 6, 8)
        frames, flags = replay.get("frame", first, length + 1), replay.get("flags", first, length)
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


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        (Spec((4,), 1, "float32", 2), {}, "pc needs image observations .* float32 4: leave pc out"),
        (Spec((1, 84, 84), 4, "float32", 2), {}, "pc needs image observations"),
        (Spec((1, 3, 84), 4, "uint8", 2), {}, "pc needs frames of 4x4 pixels or more, and these are 3x84"),
        (Spec((1, 12, 84), 4, "uint8", 2), {}, "pc.cell is 4: choose one from 1 to 3 for frames of 12x84"),
        (ATARI, {"cell": 0}, "pc.cell is 0: choose one from 1 to 21"),
        (ATARI, {"discount": 1.5}, "pc.discount is 1.5"),
    ],
)
def test_check_names_the_fix(spec, options, message):
    with pytest.raises(ValueError, match=message):
        PixelControl(**options).check(spec)


def test_defaults_are_the_papers():
    task = PixelControl()
    assert (task.name, task.features, task.discount, task.weight) == ("pc", "hidden", 0.9, 0.01)
    assert task.length(20) == 20
