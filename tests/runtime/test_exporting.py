"""Exported policies act as the run's own, in Keras and in onnxruntime."""

from __future__ import annotations

import errno
import os
import zipfile

import numpy as np
import pytest

from gunreal.config.schema import Config, ConfigError
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.runtime import exporting
from gunreal.runtime.exporting import check, export
from gunreal.runtime.system import build_learner, on_this_machine

BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")
IMAGES, VECTORS = Spec((1, 44, 44), 2, "uint8", 5), Spec((3,), 1, "float32", 4)
NETWORKS = [
    ("small", IMAGES._replace(vectors=3)),
    ("networks:Strided", IMAGES._replace(state=16)),
    ("lstm", IMAGES._replace(state=32)),
    ("mlp", VECTORS),
]


def disturbed(config, spec):
    """A learner whose weights and moments are not the initial ones."""
    learner, rng = build_learner(on_this_machine(config), spec, ()), np.random.default_rng(0)
    state = learner.get_state()
    for name, array in state.items():
        if name.startswith("weights"):
            state[name] = (array + rng.normal(0, 0.2, array.shape)).astype(np.float32)
        elif name.startswith("statistics"):
            state[name] = (array + rng.uniform(0.1, 0.5, array.shape)).astype(np.float32)
    learner.set_state(state)
    return learner


def inputs(spec, count=64):
    rng = np.random.default_rng(1)
    shape = (count, *spec.observation)
    observation = rng.integers(0, 256, shape, np.uint8) if spec.is_image else rng.normal(size=shape).astype(np.float32)
    if not (spec.state or spec.vectors):
        return observation, None
    shapes = (count, spec.state), (count, 1), (count, 1, spec.vectors)
    state, reward, vector = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return observation, Past(state, rng.integers(-1, spec.num_actions, (count, 1), dtype=np.int32), reward, vector)


def test_the_value_of_dqn_is_its_largest_q_value(tmp_path):
    import keras

    config = Config(objective="dqn", runner="device", network="mlp", hidden=16, backend=BACKEND)
    learner, (observation, _) = disturbed(config, VECTORS), inputs(VECTORS)
    policy = keras.models.load_model(export(config, VECTORS, learner.get_state(), tmp_path / "policy.keras"))
    found = {name: np.asarray(array) for name, array in policy({"observation": observation}).items()}
    np.testing.assert_array_equal(found["value"], found["logits"].max(1))
    np.testing.assert_allclose(found["value"], learner.predict("base", observation)[1], atol=1e-5)


@pytest.mark.parametrize(("kind", "spec"), NETWORKS, ids=lambda x: x if isinstance(x, str) else "")
def test_equal_outputs_in_keras_and_onnxruntime(tmp_path, kind, spec):
    """Those of an LSTM have the next state. Starts of episodes (-1) are among the inputs."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    import keras

    config = Config(network=kind, hidden=16, backend=BACKEND, precision="float32")
    learner = disturbed(config, spec)
    observation, past = inputs(spec)
    own = dict(zip(("logits", "value", "next_state"), learner.predict("base", observation, past), strict=False))
    remembered = ("state", "last_action", "last_reward") if spec.state else ()
    given = {"observation": observation} | {name: getattr(past, name) for name in remembered}
    given |= {"vector": past.vector[:, 0]} if spec.vectors else {}
    assert len(set(own["logits"].argmax(1))) > 1 and (own["logits"].std(0) > 1e-3).all()

    path = export(config, spec, learner.get_state(), tmp_path / "policy.keras")
    found = keras.models.load_model(path)(given)
    with zipfile.ZipFile(path) as archive:
        assert {name.rpartition(".")[2] for name in archive.namelist()} == {"json", "h5"}  # nothing that could run code
    session = runtime.InferenceSession(str(export(config, spec, learner.get_state(), tmp_path / "policy.onnx")))
    names = [output.name for output in session.get_outputs()]
    run = dict(zip(names, session.run(None, given), strict=True))
    for outputs in ({name: np.asarray(x) for name, x in found.items()}, run):
        assert outputs.keys() == own.keys()
        for name, expected in own.items():
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-4)
    assert {x.name for x in session.get_inputs()} == given.keys() and session.get_inputs()[0].shape[0] == "n"
    assert session.get_modelmeta().custom_metadata_map["num_actions"] == str(spec.num_actions)


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "is_installed", lambda name: name != "tf2onnx")
    with pytest.raises(ConfigError, match=r'^an export to ONNX needs tf2onnx; run pip install "gunreal\[onnx\]"$'):
        check(tmp_path / "policy.onnx")
    assert check(tmp_path / "policy.keras").name == "policy.keras"
    with pytest.raises(ConfigError, match="choose a file in an existing, writable folder"):
        check(tmp_path / "none" / "policy.keras")


@pytest.mark.parametrize("suffix", [".keras", ".onnx"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, suffix):
    import keras

    def save(_, path):
        with open(path, "w") as file:
            file.write("half")
        if suffix == ".keras":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    failing = "def to_onnx(_, path, about): open(path, 'w').write('half'); raise OSError(28, 'No space left on device')"
    monkeypatch.setattr(
        exporting, "_CONVERT", exporting._CONVERT.replace("from gunreal.learning.portable import to_onnx", failing)
    )
    monkeypatch.setattr(exporting, "is_installed", lambda name: True)
    config, path = Config(network="mlp", hidden=16, backend=BACKEND), tmp_path / f"policy{suffix}"
    state = build_learner(on_this_machine(config), VECTORS, ()).get_state()
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "save", save)
        with pytest.raises(ConfigError) as found:
            export(config, VECTORS, state, path)
    remedy = "free some space, or choose another folder"
    assert str(found.value) == f"cannot write {path}: No space left on device; {remedy}"
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
