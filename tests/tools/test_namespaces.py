from __future__ import annotations

import subprocess

import pytest
from measuring import namespaces

from gunreal.config.schema import ConfigError

try:
    namespaces.check()
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)


def test_networks_side_by_side_have_different_addresses(tmp_path, monkeypatch):
    monkeypatch.setattr(namespaces.Network, "_start", lambda self, *what: None)  # no Ray
    networks = [namespaces.Network(tmp_path) for _ in range(2)]
    try:
        for network in networks:
            network.make()
        hosts = [network.address.partition(":")[0] for network in networks]
        assert len(set(hosts)) == 2
        assert [interfaces_of(host) for host in hosts] == [1, 1]
    finally:
        for network in networks:
            network.close()
    assert [interfaces_of(host) for host in hosts] == [0, 0]


def interfaces_of(address):
    command = ["ip", "-oneline", "address", "show", "to", address]
    return len(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())
