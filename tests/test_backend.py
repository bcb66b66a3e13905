"""Compiled prediction and training: updates by hand, skipped updates, state, and TensorFlow against JAX.

Run as a script it makes one update from the state in its first argument, so that another backend can be compared.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from gunreal import backend
from gunreal.config import Config
from gunreal.learner import make_optimizer
from gunreal.replay import Past
from gunreal.spec import Spec
from gunreal.tasks.base import AuxiliaryTask

ROOT = Path(__file__).parents[1]
SPEC = Spec((1, 28, 36), 2, "uint8", 3, t_max=4)
CONFIG = Config(optimizer="adam", max_grad_norm=0.0, max_batch=12)
KINDS = ("small", "mlp", "lstm")
BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")


@dataclasses.dataclass(frozen=True)
class Fit(AuxiliaryTask):
    """Fits given numbers from the convolution features of three frames."""

    name: ClassVar[str] = "fit"
    features: ClassVar[str] = "conv"
    weight: float = 0.25

    def length(self, t_max):
        return 3

    def head(self, spec):
        import keras

        return keras.layers.Dense(2)

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal import losses

        return losses.masked_mean(ops.sum(ops.square(outputs - batch["target"]), axis=-1), batch["mask"])

    def bootstrap(self, outputs):
        from keras import ops

        return ops.max(outputs[:, 0], axis=-1)


def make_learner(config=CONFIG, tasks=(Fit(),), seed=3, layout="auto", kind="small"):
    from gunreal.network import Network

    spec = SPEC._replace(state=32) if kind == "lstm" else SPEC
    network = Network(spec, tasks, kind=kind, hidden=16, data_format=backend.data_format(layout), seed=seed)
    return backend.make_learner(network, config)


def make_past(count, steps, seed=0):
    rng = np.random.default_rng(seed)
    last_action = rng.integers(-1, 3, (count, steps)).astype(np.int32)
    last_reward = rng.normal(size=(count, steps)).astype(np.float32)
    return Past(rng.normal(size=(count, 32)).astype(np.float32), last_action, last_reward)


def make_batch(count=3, seed=0):
    rng = np.random.default_rng(seed)
    mask = np.ones((count, 4), np.float32)
    mask[0, 2:] = 0
    return {
        "observations": rng.integers(0, 256, (count * 7, *SPEC.observation), dtype=np.uint8),
        "base": {
            "action": rng.integers(0, 3, (count, 4)).astype(np.int32),
            "returns": rng.normal(size=(count, 4)).astype(np.float32),
            "mask": mask,
        },
        "fit": {"target": rng.normal(size=(count, 3, 2)).astype(np.float32), "mask": np.ones((count, 3), np.float32)},
    }


def with_vtrace(batch):
    """The same batch for a recurrent network that V-trace corrects."""
    base = dict(batch["base"])
    shape = base.pop("returns").shape
    rng = np.random.default_rng(0)
    names = ("log_mu", "reward", "value_t", "discount", "truncated")
    base |= {name: rng.normal(size=shape).astype(np.float32) for name in names}
    base["truncated"][...], base["discount"][...] = 0, 0.9
    return {**batch, "base": base, "past": {"base": make_past(*shape)}}


def gradients(state):
    """Adam's first moments after its first update are a tenth of the gradients."""
    moments = [state[name] for name in sorted(state) if name.startswith("optimizer/")][1:]
    weights = [name for name in state if name.startswith("weights/")]
    return {name: 10 * moment for name, moment in zip(weights, moments[::2], strict=True)}


def assert_equal_states(one, two):
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name)


@pytest.fixture(scope="module", autouse=True)
def selected():
    backend.select(BACKEND)


def test_select_refuses_a_second_backend():
    import keras  # noqa: F401

    other = next(name for name in backend.BACKENDS if name != BACKEND)
    with pytest.raises(RuntimeError, match=f"already loaded with {BACKEND}"):
        backend.select(other)
    with pytest.raises(ValueError, match="use tensorflow or jax"):
        backend.select("torch")


@pytest.mark.parametrize("name", backend.BACKENDS)
def test_threads_of_an_operation(name):
    pytest.importorskip(name)
    asked = {
        "tensorflow": "import tensorflow; print(tensorflow.config.threading.get_intra_op_parallelism_threads())",
        "jax": "import os; print(os.environ['XLA_FLAGS'].count('--xla_cpu_multi_thread_eigen=false'))",
    }
    twice = f"from gunreal.backend import select; select({name!r}, threads=1); select({name!r}, threads=1)"
    command = [sys.executable, "-c", f"{twice}; {asked[name]}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout == "1\n", done.stderr


def test_only_the_backend_imports_frameworks():
    for path in (ROOT / "gunreal").rglob("*.py"):
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.split(".")[0])
        assert path.name == "backend.py" or not found & {"tensorflow", "jax"}, path


def test_rmsprop_keeps_epsilon_inside_the_square_root():
    import keras

    optimizer = make_optimizer(Config(optimizer="rmsprop", rms_decay=0.99, epsilon=0.1))
    optimizer.learning_rate = 0.5
    variable = keras.Variable(np.float32([1.0]))
    optimizer.apply([keras.ops.convert_to_tensor(np.float32([2.0]))], [variable])
    # g = 0.01 * 2^2 = 0.04; theta = 1 - 0.5 * 2 / sqrt(0.04 + 0.1)  (GA3C, eq. 3)
    assert variable.numpy()[0] == pytest.approx(1 - 1 / np.sqrt(0.14), rel=1e-6)


def test_unknown_optimizers_are_explained():
    with pytest.raises(ValueError, match="use rmsprop or adam"):
        make_optimizer(Config(optimizer="sgd"))


def test_train_reports_the_loss_and_applies_the_learning_rate():
    learner, batch = make_learner(Config(max_grad_norm=0.0)), make_batch()
    before = learner.get_state()
    assert learner.train(batch, 0.0)["skipped"] == 0.0
    rested = learner.get_state()
    moved = []
    for rate in (1e-4, 2e-4):
        learner.set_state(before)
        metrics = learner.train(batch, rate)
        moved.append(learner.get_state()["weights/torso/fc3/kernel"] - before["weights/torso/fc3/kernel"])
    np.testing.assert_array_equal(rested["weights/torso/fc3/kernel"], before["weights/torso/fc3/kernel"])
    np.testing.assert_allclose(moved[1], 2 * moved[0], atol=1e-6)
    assert np.abs(moved[0]).max() > 1e-5
    assert learner.version == 1
    assert metrics["loss_total"] == pytest.approx(metrics["loss_base"] + 0.25 * metrics["loss_fit"], abs=1e-5)


def test_training_lowers_the_loss():
    learner, batch = make_learner(), make_batch()
    found = [learner.train(batch, 1e-3)["loss_fit"] for _ in range(20)]
    assert found[-1] < 0.5 * found[0]
    assert learner.version == 20


def test_gradients_are_clipped_by_their_global_norm():
    batch, clipped = make_batch(), make_learner(dataclasses.replace(CONFIG, max_grad_norm=0.01))
    free = make_learner()
    norm = free.train(batch, 1e-3)["grad_norm"]
    assert norm > 0.01 and clipped.train(batch, 1e-3)["grad_norm"] == pytest.approx(norm)
    for name, gradient in gradients(free.get_state()).items():
        np.testing.assert_allclose(gradients(clipped.get_state())[name], gradient * 0.01 / norm, atol=1e-7)
    squares = sum(np.sum(gradient**2) for gradient in gradients(free.get_state()).values())
    assert np.sqrt(squares) == pytest.approx(norm, rel=1e-4)


def test_small_gradients_are_not_clipped():
    batch, wide, free = make_batch(), make_learner(dataclasses.replace(CONFIG, max_grad_norm=1e6)), make_learner()
    wide.train(batch, 1e-3), free.train(batch, 1e-3)
    assert_equal_states(wide.get_state(), free.get_state())


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_non_finite_updates_are_skipped(bad):
    learner, batch = make_learner(Config()), make_batch()
    learner.train(batch, 1e-3)
    before = learner.get_state()
    broken = make_batch()
    broken["base"]["returns"][1, 1] = bad  # 1e30: a finite target whose square is not
    assert learner.train(broken, 1e-3)["skipped"] == 1.0
    assert_equal_states(learner.get_state(), before)
    assert learner.version == 1
    assert learner.train(batch, 1e-3)["skipped"] == 0.0
    assert learner.version == 2


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a_restored_learner_goes_on_exactly(optimizer):
    config = dataclasses.replace(CONFIG, optimizer=optimizer)
    learner, other = make_learner(config), make_learner(config, seed=4)
    for seed in range(2):
        learner.train(make_batch(seed=seed), 1e-3)
    state = learner.get_state()
    assert learner.weights_sha256() != other.weights_sha256()
    other.set_state(state)
    assert other.version == 2 and learner.weights_sha256() == other.weights_sha256()
    batch = make_batch(5, seed=2)
    assert learner.train(batch, 1e-3) == other.train(batch, 1e-3)
    assert_equal_states(learner.get_state(), other.get_state())
    assert learner.weights_sha256() == other.weights_sha256()
    assert any((state[name] != array).any() for name, array in learner.get_state().items())  # the state is a copy


def test_a_state_that_does_not_fit_is_refused_as_a_whole():
    learner = make_learner()
    before = learner.get_state()
    with pytest.raises(ValueError, match="weights/fit/0/kernel is missing"):
        learner.set_state(make_learner(tasks=()).get_state())
    with pytest.raises(ValueError, match="weights/fit/0/kernel is unexpected"):
        make_learner(tasks=()).set_state(before)
    with pytest.raises(ValueError, match=r"policy/bias has shape \(7,\) instead of \(3,\)"):
        learner.set_state({**before, "weights/policy/bias": np.zeros(7, np.float32)})
    assert_equal_states(learner.get_state(), before)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_predictions_do_not_depend_on_the_batch_around_them(layout):
    learner, images = make_learner(layout=layout), make_batch(count=5)["observations"]
    logits, value = learner.predict("base", images)
    (bootstrap,) = learner.predict("fit", images)
    assert logits.shape == (35, 3) and value.shape == (35,) and bootstrap.shape == (35,)
    for part in (slice(0, 1), slice(1, 4), slice(4, 15), slice(15, 35)):
        np.testing.assert_allclose(learner.predict("base", images[part])[0], logits[part], atol=1e-5)
        np.testing.assert_allclose(learner.predict("base", images[part])[1], value[part], atol=1e-5)
        np.testing.assert_allclose(learner.predict("fit", images[part])[0], bootstrap[part], atol=1e-5)


def test_layouts_share_their_weights_and_agree():
    last, first, batch = make_learner(layout="nhwc"), make_learner(layout="nchw", seed=4), make_batch()
    first.set_state(last.get_state())
    for one, two in zip(*(x.predict("base", batch["observations"]) for x in (last, first)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    last.train(batch, 1e-3), first.train(batch, 1e-3)
    for name, gradient in gradients(last.get_state()).items():
        np.testing.assert_allclose(gradients(first.get_state())[name], gradient, atol=1e-5, err_msg=name)


def test_what_is_transferred_as_float_is_computed_alike():
    bytewise, floats, batch = (
        make_learner(),
        make_learner(dataclasses.replace(CONFIG, transfer="float32")),
        make_batch(),
    )
    for head in ("base", "fit"):
        pair = [learner.predict(head, batch["observations"]) for learner in (bytewise, floats)]
        np.testing.assert_array_equal(pair[0][0], pair[1][0])
    assert bytewise.train(batch, 1e-3) == floats.train(batch, 1e-3)
    assert_equal_states(bytewise.get_state(), floats.get_state())
    assert batch["observations"].dtype == np.uint8  # the caller's


def test_threads_predict_while_one_trains():
    learner, images, failures = make_learner(Config(max_batch=12)), make_batch()["observations"], []

    def predict(head, count):
        try:
            for _ in range(20):
                assert all(np.isfinite(x).all() and len(x) == count for x in learner.predict(head, images[:count]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=predict, args=x) for x in (("base", 1), ("base", 5), ("fit", 3), ("fit", 21))]
    for thread in threads:
        thread.start()
    for seed in range(10):
        learner.train(make_batch(seed=seed), 1e-3)
    for thread in threads:
        thread.join()
    assert not failures and learner.version == 10


def test_padding_keeps_every_sequence_in_its_place():
    batch = make_batch(count=3)
    padded = backend.pad_batch(batch, (4, 3))
    assert padded["observations"].shape[0] == 4 * 7 and padded["base"]["mask"].shape == (4, 4)
    np.testing.assert_array_equal(padded["observations"][:12], batch["observations"][:12])
    np.testing.assert_array_equal(padded["observations"][16:25], batch["observations"][12:])
    np.testing.assert_array_equal(padded["fit"]["target"][:3], batch["fit"]["target"])
    assert not padded["base"]["mask"][3].any() and not padded["fit"]["mask"][3].any()
    assert backend.pad_batch(make_batch(count=4), (4, 3))["observations"].shape[0] == 4 * 7


def test_tensorflow_and_jax_agree(tmp_path):
    """Losses, gradients and the updated weights, from the same weights and batch; three sequences, so JAX pads."""
    other = next(name for name in backend.BACKENDS if name != BACKEND)
    pytest.importorskip(other)
    learners = {kind: make_learner(kind=kind) for kind in KINDS}
    for kind, learner in learners.items():
        np.savez(tmp_path / f"{kind}.npz", **learner.get_state())
    command = [sys.executable, __file__, str(tmp_path)]
    environment = {**os.environ, "KERAS_BACKEND": other, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, check=True, env=environment, timeout=240)
    for kind, learner in learners.items():
        one, two = update(learner, kind), dict(np.load(tmp_path / f"{kind}_after.npz"))
        assert one.keys() == two.keys()
        for name, array in one.items():
            scale = 10 if name.startswith("optimizer/") else 1  # to the gradients' size
            np.testing.assert_allclose(scale * array, scale * two[name], atol=1e-4, err_msg=f"{kind} {name}")


def update(learner, kind):
    batch, inputs = make_batch(), (make_batch()["observations"],)
    if kind == "lstm":
        batch, inputs = with_vtrace(batch), (*inputs, make_past(21, 1))
    outputs = [*learner.predict("base", *inputs), *learner.predict("fit", *inputs)]
    metrics = learner.train(batch, 1e-4)
    found = {f"output/{place}": output for place, output in enumerate(outputs)}
    return {**found, **{f"metric/{k}": np.array(v) for k, v in metrics.items()}, **learner.get_state()}


if __name__ == "__main__":
    backend.select(BACKEND)
    for kind in KINDS:
        learner = make_learner(kind=kind)
        learner.set_state(np.load(Path(sys.argv[1]) / f"{kind}.npz"))
        np.savez(Path(sys.argv[1]) / f"{kind}_after.npz", **update(learner, kind))
