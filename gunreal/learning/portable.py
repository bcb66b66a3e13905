"""A network as a Keras model of its own, for use without this library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.experience.replay import Past
from gunreal.learning.network import Network

OUTPUTS = ("logits", "value", "next_state")


def portable(network: Network, *, has_policy: bool = True) -> Any:
    """The policy and value of a network as a functional Keras model with the current weights.

    The scaling and normalization of observations are inside. The moments become constants. `has_policy` is that of the
    objective.

    Inputs, by name:
      observation: `[n, *spec.observation]` of dtype `spec.dtype`.
      state, last_action, last_reward: of a recurrent network only: float32 `[n, spec.state]`, int32 `[n, 1]` (-1 at the
        start of an episode) and float32 `[n, 1]` (clipped as in training).
      vector: with numbers beside an image only, float32 `[n, spec.vectors]`.

    Outputs, by name:
      logits: float32 `[n, num_actions]`. Without a policy, they are Q values.
      value: float32 `[n]`. Without a policy, it is the largest Q value.
      next_state: of a recurrent network only, float32 `[n, spec.state]`.
    """
    import keras

    spec = network.spec
    inputs = {"observation": keras.Input(spec.observation, dtype=spec.dtype, name="observation")}
    if spec.state:
        inputs["state"] = keras.Input((spec.state,), dtype="float32", name="state")
        inputs["last_action"] = keras.Input((1,), dtype="int32", name="last_action")
        inputs["last_reward"] = keras.Input((1,), dtype="float32", name="last_reward")
    if spec.vectors:
        inputs["vector"] = keras.Input((spec.vectors,), dtype="float32", name="vector")
    past = Past(*(inputs.get(name) for name in Past._fields)) if len(inputs) > 1 else None
    outputs = network.predict("base", inputs["observation"], past)
    if not has_policy:
        outputs = outputs[0], keras.ops.max(outputs[0], axis=-1), *outputs[2:]
    return keras.Model(inputs, dict(zip(OUTPUTS, outputs, strict=False)), name="policy")


def to_onnx(source: str | Path, target: str | Path, about: Mapping[str, str]) -> None:
    """Converts the `.keras` file of a `portable` model to ONNX, with entries `about` it in the metadata.

    Keras must have been loaded with TensorFlow, whose graphs tf2onnx reads.
    """
    import keras
    import onnx

    policy = keras.models.load_model(source, compile=False)
    policy({each.name: np.zeros((1, *each.shape[1:]), each.dtype) for each in policy.inputs})  # Keras asks for a call
    policy.export(str(target), format="onnx", verbose=False)
    model = onnx.load(str(target))
    constants = {constant.name for constant in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in constants]  # tf2onnx lists them as inputs too
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for each in (*model.graph.input, *model.graph.output):
        each.type.tensor_type.shape.dim[0].dim_param = "n"
    for key, value in about.items():
        model.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(model)
    onnx.save(model, str(target))
