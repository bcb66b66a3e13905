"""BYOL-Explore: what will the averaged features be after the next actions? (Guo et al. 2022)"""

from __future__ import annotations

import dataclasses

from gunreal.tasks.future_prediction import FuturePrediction
from gunreal_representations.spr import mean_cosine


@dataclasses.dataclass(frozen=True)
class ByolExplore(FuturePrediction):
    """A recurrent model starts from "hidden" features, follows the actions, and predicts averaged "conv" features.

    The paper also rewards the error of the predictions of an observation, which were made at the steps before it. This
    task gives no reward, because a bonus depends on at most two observations.
    """

    name = "byol_explore"
    features = "both"
    weight: float = 0.5
    average: float = 0.01
    steps: int = 5

    def head(self, spec):
        from keras import Sequential, layers, ops

        class WorldModel(layers.Layer):
            def __init__(self, task):
                super().__init__()
                self.task = task

            def build(self, shape):
                conv, hidden = shape
                self.cell = layers.GRUCell(hidden[-1])
                self.cell.build((None, spec.num_actions))
                self.predict = Sequential([layers.Dense(self.task.units, activation="relu"), layers.Dense(conv[-1])])
                self.predict.build(hidden)

            def call(self, x, batch=None, net=None):
                state, predictions = x.hidden, []
                if net is None:
                    return state
                actions = ops.one_hot(batch["action"], spec.num_actions, dtype=state.dtype)
                for ahead in range(1, self.task.steps + 1):
                    pairs = actions[:, ahead - 1 : -1], state[:, :-1]
                    action, state = (ops.reshape(x, (-1, x.shape[-1])) for x in pairs)
                    state = ops.reshape(self.cell(action, [state])[0], (-1, spec.t_max - ahead, state.shape[-1]))
                    predictions.append(self.predict(state))
                return {"targets": net.average.features(net.observations).conv, "predictions": predictions}

        return WorldModel(self)

    def loss(self, outputs, batch):
        return 2 - 2 * mean_cosine(outputs["targets"], outputs["predictions"], batch["mask"])
