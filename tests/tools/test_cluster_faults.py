from __future__ import annotations

import os
import tempfile

import cluster_faults
import pytest
from measuring import namespaces
from measuring.cluster_run import Back
from measuring.faults import fill

from gunreal.config.schema import ConfigError


def line(nodes, replaced, *pps):
    return {"nodes": nodes, "replaced": replaced} | {f"node{i}_pps": rate for i, rate in enumerate(pps)}


@pytest.mark.parametrize("away", [line(1, 0, 9.0), line(2, 1, 9.0, 0.0)])
def test_a_node_is_back_when_all_have_acted_since_one_was_away(away):
    back = Back(line(2, 0))
    assert not back(line(2, 0, 9.0, 9.0))
    assert not back(away)
    assert not back(line(2, 1, 9.0, 0.0))
    assert back(line(2, 1, 0.0, 9.0))


def test_a_disk_is_filled_to_the_last_byte(tmp_path):
    """A limit on the size of files stands in for a disk."""
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20 + 5000, before[1]))
    try:
        assert fill(tmp_path).stat().st_size == 2**20 + 5000
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def powerless(tmp_path, monkeypatch):
    """Root without the capabilities to make networks and to mount disks, as in most containers."""
    for name in ("ip", "mount"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name}: >&2\necho Operation not permitted. >&2\nexit 2\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(namespaces, "check", lambda: None)


def test_a_network_that_root_may_not_make(powerless, tmp_path):
    with pytest.raises(ConfigError, match="ip link add .* failed: ip: Operation not permitted.; it needs root"):
        namespaces.Network(tmp_path).make()


def test_a_disk_that_root_may_not_mount(powerless, capsys):
    assert cluster_faults.main(["--faults", "run-disk-full"]) == 1
    error = capsys.readouterr().err
    assert (
        f"none {tempfile.gettempdir()}/" in error
        and "mount: Operation not permitted" in error
        and error.count("\n") == 1
    )
