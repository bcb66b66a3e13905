"""Tests of the contracts of plug-ins: call `check_task(MyTask)` or `check_network(MyNetwork)` in their test suites."""

from __future__ import annotations

from gunreal.learning.contract import check_network
from gunreal.tasks.contract import IMAGES, check_task

__all__ = ["IMAGES", "check_network", "check_task"]
