"""The optimizer of all weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gunreal.config.schema import Config


def make_optimizer(config: Config, variables: Sequence[Any]) -> Any:
    """Makes the configured optimizer for `variables`. Every update sets its learning rate.

    Keras's RMSprop adds epsilon inside the square root, as in GA3C's eq. 3.
    """
    from gunreal.learning.building import isolated

    with isolated():
        return _made(config, variables)


def _made(config: Config, variables: Sequence[Any]) -> Any:
    import keras

    if config.optimizer == "adam":
        optimizer = keras.optimizers.Adam(beta_1=config.beta1, beta_2=config.beta2, epsilon=config.epsilon)
    elif config.optimizer == "rmsprop":
        optimizer = keras.optimizers.RMSprop(rho=config.rms_decay, epsilon=config.epsilon)
    else:
        raise ValueError(f"unknown optimizer {config.optimizer!r}; use rmsprop or adam")
    optimizer.build(variables)
    if config.optimizer == "rmsprop" and config.rms_initial:
        for variable in optimizer.variables:
            if variable is not optimizer.iterations and variable is not optimizer.learning_rate:
                variable.assign(np.full(variable.shape, config.rms_initial, np.float32))
    return optimizer
