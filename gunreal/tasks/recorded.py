"""The fields that the tasks of a run record with each step. Their names are unique."""

from __future__ import annotations

from collections.abc import Sequence

from gunreal.config.schema import ConfigError
from gunreal.experience.segment import Layout
from gunreal.experience.spec import RecordedField, Spec
from gunreal.learning.task import AuxiliaryTask


def tasks_of_agents(tasks: Sequence[AuxiliaryTask], spec: Spec) -> tuple[AuxiliaryTask, ...]:
    """The tasks that learn from the agents' replay, and not from a recording."""
    return tuple(task for task in tasks if not task.source(spec))


def recorded_fields(tasks: Sequence[AuxiliaryTask], spec: Spec) -> dict[str, RecordedField]:
    """The recorded fields of all tasks, by name.

    Two tasks may share a field if they describe it in the same way.

    Raises:
      ConfigError: a name is one of the ring's own arrays or contains "." or ":", or two tasks record different fields
        with the same name.
    """
    full = spec._replace(state=1, bonus=True, bonus_discount=0.5, vectors=1)
    own = {*Layout(full, 1, 1, 1, {}, 1, {}).arrays(), "start"}  # of agent processes, and of a device's store
    found: dict[str, RecordedField] = {}
    recorded_by: dict[str, str] = {}
    for task in tasks:
        for name, field in task.record(spec).items():
            if name in own or "." in name or ":" in name:
                raise ConfigError(f"task {task.name!r} records {name!r}, a reserved name: choose another name")
            if found.setdefault(name, field) != field:
                raise ConfigError(
                    f"task {task.name!r} records {name!r}, which task {recorded_by[name]!r} records differently: "
                    "choose another name"
                )
            recorded_by.setdefault(name, task.name)
    return found
