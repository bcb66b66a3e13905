from __future__ import annotations

import types

import pytest

from gunreal.cluster.engine import Engine
from gunreal.config.schema import ConfigError


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("", "free some space in /tmp and /dev/shm, or see Ray's logs"), ("auto", "start it with ray start --head, or")],
)
def test_an_error_of_ray_names_what_to_do(address, remedy):
    """Only a cluster has an address and a token."""

    def fail(**options):
        raise RuntimeError("Failed to start.\nA log.")

    found = Engine.__new__(Engine)
    found.ray = types.SimpleNamespace(init=fail)
    with pytest.raises(ConfigError) as caught:
        found._connect(address)
    text = str(caught.value)
    assert f"Failed to start; {remedy}" in text and "\n" not in text
    assert ("address" in text) == ("token" in text) == bool(address)
