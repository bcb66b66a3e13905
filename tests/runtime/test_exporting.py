"""Exported policies act as the run's own, in Keras and in onnxruntime."""

from __future__ import annotations

import importlib.util
import os
import zipfile

import numpy as np
import pytest

from gunreal.config.schema import Config, ConfigError
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.runtime.exporting import check, export
from gunreal.runtime.system import build_learner

BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")
IMAGES, VECTORS = Spec((1, 44, 44), 2, "uint8", 5), Spec((3,), 1, "float32", 4)
NETWORKS = [
    ("small", IMAGES),
    ("networks:Strided", IMAGES._replace(state=16)),
    ("lstm", IMAGES._replace(state=32)),
    ("mlp", VECTORS),
]


def disturbed(config, spec):
    """A learner whose weights and moments are not the initial ones."""
    learner, rng = build_learner(config, spec, ()), np.random.default_rng(0)
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
    if not spec.state:
        return observation, None
    state = rng.normal(size=(count, spec.state)).astype(np.float32)
    action = rng.integers(-1, spec.num_actions, (count, 1), dtype=np.int32)
    return observation, Past(state, action, rng.normal(size=(count, 1)).astype(np.float32))


@pytest.mark.parametrize(("kind", "spec"), NETWORKS, ids=lambda x: x if isinstance(x, str) else "")
def test_equal_actions_in_keras_and_onnxruntime(tmp_path, kind, spec):
    """Also equal values, and the next state of an LSTM. Starts of episodes (-1) are among the inputs."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    import keras

    config = Config(network=kind, hidden=16, backend=BACKEND, precision="float32")
    learner = disturbed(config, spec)
    observation, past = inputs(spec)
    own = dict(zip(("logits", "value", "next_state"), learner.predict("base", observation, past), strict=False))
    given = {"observation": observation} | (past._asdict() if past else {})
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
        np.testing.assert_array_equal(outputs["logits"].argmax(1), own["logits"].argmax(1))
        for name, expected in own.items():
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-5)
    assert {x.name for x in session.get_inputs()} == given.keys() and session.get_inputs()[0].shape[0] == "n"
    assert session.get_modelmeta().custom_metadata_map["num_actions"] == str(spec.num_actions)


@pytest.mark.parametrize(
    ("name", "message"),
    [("policy.pt", "write FILE.keras or FILE.onnx"), ("none/policy.keras", "choose a file in an existing")],
)
def test_bad_paths(tmp_path, name, message):
    with pytest.raises(ConfigError, match=message):
        check(tmp_path / name)


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tf2onnx" else name)
    with pytest.raises(ConfigError, match=r'^an export to ONNX needs tf2onnx; run pip install "gunreal\[onnx\]"$'):
        check(tmp_path / "policy.onnx")
    assert check(tmp_path / "policy.keras").name == "policy.keras"
