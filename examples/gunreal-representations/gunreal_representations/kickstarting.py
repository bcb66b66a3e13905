"""Kickstarting: a trained policy shows a new one what to do, for a part of its training (Schmitt et al. 2018)"""

from __future__ import annotations

import dataclasses
import json
import zipfile

from gunreal.tasks import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class Kickstarting(AuxiliaryTask):
    """Brings the policy close to that of a teacher, on observations of the student's own episodes.

    Options:
      teacher: a policy that `gunreal export RUN policy.keras` wrote, from a run with PPO or A3C. It is required.
      until: share of the training budget over which the influence of the teacher falls to 0.
    """

    name = "kickstart"
    teacher: str = ""
    until: float = 0.5

    def check(self, spec):
        if not self.teacher:
            raise ValueError("it needs a teacher; add --task kickstart.teacher=policy.keras")
        if not 0 < self.until <= 1:
            raise ValueError(f"until is {self.until}: choose a value above 0, and at most 1")
        try:  # without Keras, which must not be loaded before its backend is selected
            with zipfile.ZipFile(self.teacher) as file:
                layers = json.loads(file.read("config.json"))["config"]["layers"]
            known = {layer["name"]: layer["config"] for layer in layers}
            frames, actions = known["observation"], known["policy"]["units"]
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(f"cannot read the teacher ({error}); write it with gunreal export") from error
        if "last_action" in known:
            raise ValueError(f"{self.teacher} is recurrent; choose a teacher without memory")
        found = f"{frames['dtype']} {frames['batch_shape'][1:]} and {actions} actions"
        wanted = f"{spec.dtype} {list(spec.observation)} and {spec.num_actions} actions"
        if found != wanted:
            raise ValueError(f"{self.teacher} is for {found}, but the run has {wanted}; choose another teacher")

    def targets(self, replay, sequences, bootstraps):
        return {}

    def head(self, spec):
        import keras
        from keras import layers, ops

        # Not an attribute of the layer, because Keras would then train it.
        teacher = keras.models.load_model(self.teacher, compile=False)

        class BothPolicies(layers.Layer):
            def call(self, hidden, batch=None, net=None):
                if net is None:
                    return hidden
                rows = ops.reshape(net.observations, (-1, *spec.observation))
                wanted = ops.reshape(teacher({"observation": rows})["logits"], (-1, spec.t_max, spec.num_actions))
                return {"teacher": wanted, "student": net.policy_value(hidden)["logits"]}

        return BothPolicies()

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        wanted, found = (ops.log_softmax(outputs[name]) for name in ("teacher", "student"))
        error = masked_mean(-ops.sum(ops.exp(wanted) * found, axis=-1), batch["mask"])
        entropy = masked_mean(-ops.sum(ops.exp(wanted) * wanted, axis=-1), batch["mask"])
        influence = ops.maximum(1 - batch["progress"] / self.until, 0.0)
        return influence * error, {"divergence": error - entropy}
