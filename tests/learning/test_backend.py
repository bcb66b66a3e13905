"""Compiled prediction and training: threads, padding, layouts, and TensorFlow against JAX.

Run as a script it makes one update from the state in its first argument, so that another backend can be compared.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from learners import (
    BACKEND,
    CONFIG,
    SPEC,
    assert_equal_states,
    gradients,
    make_batch,
    make_learner,
    make_past,
    seen,
    with_vtrace,
)

from gunreal.config.schema import ConfigError
from gunreal.experience.replay import empty_observations
from gunreal.learning import devices

ROOT = Path(__file__).parents[2]
KINDS = ("small", "mlp", "lstm")


def execute(program, **environment):
    """A program in a process of its own, where KERAS_BACKEND is what is given or nothing."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "", **environment}
    command = [sys.executable, "-c", f"from gunreal.learning.devices import select\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True)


def test_tensorflow_is_loaded_without_packages_that_it_does_not_need():
    """They are not lost: a script can import them before and after."""
    program = (
        "import sys, IPython\n"
        "select('tensorflow')\n"
        "print(*(name for name in ('keras', 'IPython', 'jax', 'matplotlib') if name in sys.modules))\n"
        "import jax, matplotlib\n"
    )
    if not all(map(importlib.util.find_spec, ("IPython", "jax", "matplotlib", "tensorflow"))):
        pytest.skip("needs all of these packages")
    assert execute(program).stdout == "keras IPython\n"


def test_select_refuses_a_second_backend():
    import keras  # noqa: F401

    other = next(name for name in devices.BACKENDS if name != BACKEND)
    line = f"the run uses {other}, but .* loaded Keras with {BACKEND}; .*KERAS_BACKEND={other}"
    with pytest.raises(ConfigError, match=line):
        devices.select(other)
    with pytest.raises(ValueError, match="use tensorflow or jax"):
        devices.select("torch")


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (
            "tensorflow",
            "gunreal: KERAS_BACKEND is tensorflow, but this run uses jax; "
            "unset it, or train with --backend tensorflow\n",
        ),
        ("torch", "gunreal: KERAS_BACKEND is torch, but this run uses jax; leave it unset\n"),
        ("jax", ""),
    ],
)
def test_another_choice_of_the_environments_is_told(wanted, line):
    pytest.importorskip("jax")
    assert execute("select('jax'); select('jax')", KERAS_BACKEND=wanted).stderr == line


def test_a_gpu_that_a_script_has_used_before(monkeypatch):
    """TensorFlow then refuses to change how its memory is taken."""
    tf = pytest.importorskip("tensorflow")
    if BACKEND != "tensorflow":
        pytest.skip("of TensorFlow")
    asked = []

    def refuse(gpu, enable):
        asked.append((gpu, enable))
        raise RuntimeError("Physical devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu:0", "gpu:1"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", refuse)
    devices.select("tensorflow")
    assert asked == [("gpu:0", True), ("gpu:1", True)]


@pytest.mark.parametrize(
    ("name", "asked", "answer"),
    [
        (
            "tensorflow",
            "import tensorflow; print(tensorflow.config.threading.get_intra_op_parallelism_threads())\n"
            "from tensorflow.python.util import _pywrap_util_port; print(_pywrap_util_port.IsMklEnabled())",
            "1\nTrue\n",
        ),
        (
            "jax",
            "from os import environ; threads = '--xla_cpu_multi_thread_eigen=false'\n"
            "print(environ['XLA_FLAGS'].count(threads), environ['XLA_PYTHON_CLIENT_PREALLOCATE'])",
            "1 false\n",
        ),
    ],
)
def test_threads_of_an_operation(name, asked, answer):
    """TensorFlow has oneDNN's convolutions on every processor, and JAX takes no memory in advance."""
    pytest.importorskip(name)
    assert execute(f"{2 * f'select({name!r}, threads=1);'}{asked}", KERAS_BACKEND=name).stdout == answer


def test_without_onednn_a_cpu_has_one_layout():
    pytest.importorskip("tensorflow")
    program = "from gunreal.learning import devices\nselect('tensorflow')\ntry:\n    devices.data_format('nchw')\n"
    program += "except devices.ConfigError as error:\n    print(error)"
    without = {"TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}
    said = "TensorFlow has no convolutions of the layout nchw without oneDNN; use --layout nhwc, or set "
    assert execute(program, **without).stdout == f"{said}TF_ENABLE_ONEDNN_OPTS=1\n"


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_predictions_do_not_depend_on_the_batch_around_them(layout):
    learner, images = make_learner(layout=layout), seen(make_batch(count=5))
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
    for one, two in zip(*(x.predict("base", seen(batch)) for x in (last, first)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    last.train(batch, 1e-3), first.train(batch, 1e-3)
    for name, gradient in gradients(last.get_state()).items():
        np.testing.assert_allclose(gradients(first.get_state())[name], gradient, atol=1e-5, err_msg=name)


def test_float_transfer_computes_the_same():
    bytewise, floats, batch = (
        make_learner(),
        make_learner(dataclasses.replace(CONFIG, transfer="float32")),
        make_batch(),
    )
    for head in ("base", "fit"):
        pair = [learner.predict(head, seen(batch)) for learner in (bytewise, floats)]
        np.testing.assert_array_equal(pair[0][0], pair[1][0])
    assert bytewise.train(batch, 1e-3) == floats.train(batch, 1e-3)
    assert_equal_states(bytewise.get_state(), floats.get_state())
    assert batch["base"]["observations"].dtype == np.uint8  # the caller's


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's")
def test_an_operation_uses_gathered_observations_in_place():
    """What starts elsewhere, is small, can't be written or is not in one piece is copied; results are the same."""
    import tensorflow as tf

    from gunreal.learning.tensorflow_learner import _Operation as Operation

    operation = Operation(lambda x: tf.reduce_sum(tf.cast(x, "int64")), [tf.TensorSpec(None, "uint8")])
    observations = empty_observations(SPEC, 99)
    observations[:] = 1
    elsewhere = empty_observations(SPEC, 100).ravel()[16:][: observations.size].reshape(observations.shape)
    elsewhere[:] = 1
    frozen = observations.view()
    frozen.flags.writeable = False
    for array in (observations, elsewhere, frozen, observations[::2], observations[:1, 0, :2]):
        assert operation(array).numpy() == array.size
        tensor, in_place = operation._tensor(array), array is observations
        observations[:], elsewhere[:] = 2, 2
        assert (tensor.numpy() == (2 if in_place else 1)).all() and tensor.shape == array.shape
        observations[:], elsewhere[:] = 1, 1


def test_tensorflow_and_jax_agree(tmp_path):
    """Losses, gradients and the updated weights, from the same weights and batch; three sequences, so JAX pads."""
    other = next(name for name in devices.BACKENDS if name != BACKEND)
    pytest.importorskip(other)
    learners = {kind: make_learner(config_of(kind), kind=kind) for kind in KINDS}
    for kind, learner in learners.items():
        np.savez(tmp_path / f"{kind}.npz", **learner.get_state())
    command = [sys.executable, __file__, str(tmp_path)]
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "KERAS_BACKEND": other, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, check=True, env=environment)
    for kind, learner in learners.items():
        one, two = update(learner, kind), dict(np.load(tmp_path / f"{kind}_after.npz"))
        assert one.keys() == two.keys()
        for name, array in one.items():
            scale = 10 if name.startswith("optimizer/") else 1  # to the gradients' size
            np.testing.assert_allclose(scale * array, scale * two[name], atol=1e-4, err_msg=f"{kind} {name}")


def config_of(kind):
    return dataclasses.replace(CONFIG, objective_args={}) if kind == "lstm" else CONFIG  # V-trace, as in the batch


def update(learner, kind):
    batch, inputs = make_batch(), (seen(make_batch()),)
    if kind == "lstm":
        batch, inputs = with_vtrace(batch), (*inputs, make_past(21, 1))
    outputs = [*learner.predict("base", *inputs), *learner.predict("fit", *inputs)]
    metrics = learner.train(batch, 1e-4)
    found = {f"output/{place}": output for place, output in enumerate(outputs)}
    return {**found, **{f"metric/{k}": np.array(v) for k, v in metrics.items()}, **learner.get_state()}


if __name__ == "__main__":
    devices.select(BACKEND)
    for kind in KINDS:
        learner = make_learner(config_of(kind), kind=kind)
        learner.set_state(np.load(Path(sys.argv[1]) / f"{kind}.npz"))
        np.savez(Path(sys.argv[1]) / f"{kind}_after.npz", **update(learner, kind))
