"""Makes the learner of the selected backend.

Only `devices.py`, `tensorflow_learner.py` and `jax_learner.py` import `tensorflow`, and only they and what belongs to
device runs import `jax`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gunreal.learning.learner import Learner

if TYPE_CHECKING:
    from gunreal.config.schema import Config
    from gunreal.learning.network import Network


def make_learner(network: Network, config: Config) -> Learner:
    """Makes the learner for the selected backend."""
    import keras

    if keras.backend.backend() == "jax":
        from gunreal.learning.jax_learner import JaxLearner

        return JaxLearner(network, config)
    from gunreal.learning.tensorflow_learner import TensorFlowLearner

    return TensorFlowLearner(network, config)
