"""Tests of the contracts of plug-ins, for their test suites, as in `check_task(MyTask)`."""

from __future__ import annotations

from gunreal.learning.contract import check_network
from gunreal.objectives.contract import check_objective
from gunreal.tasks.contract import IMAGES, check_task

__all__ = ["IMAGES", "check_network", "check_objective", "check_task"]
