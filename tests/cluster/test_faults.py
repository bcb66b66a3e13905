"""Faults of computers and disks, in a training on real processes. Their networks and disks need Linux and root."""

from __future__ import annotations

import importlib.util
import os
from unittest import mock

import pytest
from measuring import namespaces
from measuring.faults import measure

from gunreal.config.schema import ConfigError

if importlib.util.find_spec("ray") is None:
    pytest.skip("needs Ray", allow_module_level=True)
try:
    namespaces.check()
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["run-disk-full", "network-cut"])
def test_training_goes_on_and_all_nodes_take_part_again(name):
    """`measure` fails otherwise."""
    with mock.patch.dict(os.environ):  # Ray's settings for several computers
        assert measure(name).back > 0
