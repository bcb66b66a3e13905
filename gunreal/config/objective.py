"""The part of an objective on which the settings of a run depend. `gunreal.Objective` is all of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from gunreal.config import plugins
from gunreal.config.schema import Config


class Uses(NamedTuple):
    """How often a training batch is used.

    Attributes:
      epochs: number of passes over the batch.
      minibatches: number of parts into which each pass divides it, with one update for each.
      overlap: number of epochs, counted from the last one, in which agents already take their next rollouts.
    """

    epochs: int = 1
    minibatches: int = 1
    overlap: int = 1

    @property
    def is_once(self) -> bool:
        """Whether there is one update with the whole batch."""
        return self.epochs == self.minibatches == 1


class Phase(NamedTuple):
    """Further updates, with another loss, after every so many training batches.

    Attributes:
      batches: number of training batches after which the phase comes, and from which it learns.
      epochs: number of passes over these batches, in a new order each. Minibatches are those of `Uses`.
    """

    batches: int
    epochs: int = 1


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings:
    """What an objective says about the settings of its runs.

    Attributes:
      name: name of the objective, as in `--objective name`.
      replays: whether it learns from sequences of the replay, and not from new rollouts. It then runs on devices only.
      has_policy: whether the network's logits are those of a policy. If not, they are Q values.
      values_bonuses: whether it learns "bonus_value" of its outputs, see `AuxiliaryTask.bonus_discount`.
    """

    name: ClassVar[str]
    replays: ClassVar[bool] = False
    has_policy: ClassVar[bool] = True
    values_bonuses: ClassVar[bool] = False

    def settings(self, config: Config) -> Mapping[str, Any]:
        """The values of the settings "learning_rate", "entropy" and "min_batch" that are "auto"."""
        return {"learning_rate": 5e-4, "entropy": 0.01, "min_batch": 80}

    def without_effect(self, config: Config) -> Sequence[str]:
        """Names of the settings that have no effect on this objective."""
        return ()

    def check(self, config: Config) -> None:
        """Raises ValueError, with a message of one line that names the fix, if the objective does not fit the run."""

    def resolved(self, config: Config) -> Self:
        """The objective with the options that it chooses by itself."""
        return self

    def uses(self) -> Uses:
        """How often a training batch is used."""
        return Uses()

    def phase(self) -> Phase | None:
        """Further updates with `Objective.phase_loss`, or None."""
        return None


OBJECTIVE = plugins.Kind("objective", "gunreal.objectives", ObjectiveSettings, ())
_installed = functools.cache(functools.partial(plugins.load_class, OBJECTIVE))


def load_objective(config: Config) -> Any:
    """The configured `gunreal.Objective` with its options.

    Raises:
      ConfigError: the objective or an option is unknown, a value has the wrong type, or a plug-in cannot be imported.
    """
    name = config.objective
    found = plugins.load_class(OBJECTIVE, name) if ":" in name else _installed(name)  # a module may be loaded again
    return plugins.build(OBJECTIVE, found, config.objective_args)
