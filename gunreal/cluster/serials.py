"""The numbers of nodes over all resumes of a run. Seeds depend on them, so none is used twice."""

from __future__ import annotations

from typing import Any

from gunreal.config.derived import per_process
from gunreal.config.schema import Config
from gunreal.records import checkpoint
from gunreal.runtime.system import next_process

_AGENTS = 160_000  # numbers of agents that one node may use, when one machine resumes the run


def first(resumed: checkpoint.Checkpoint | None) -> int:
    """The number of the first node, which no node has had before the resume. Only node 0 has the seed of the run."""
    if resumed is None:
        return 0
    if "node_serial" in resumed.extra:
        return resumed.extra["node_serial"]
    # One machine wrote this checkpoint. Its processes were counted on from the numbers of all nodes before it.
    return max(1, next_process(resumed, _AGENTS))


def saved(serial: int, config: Config) -> dict[str, Any]:
    """What a checkpoint says of them, for a cluster and for one machine that resumes the run."""
    return {"node_serial": serial, "processes": -(-serial * _AGENTS // per_process(config))}
