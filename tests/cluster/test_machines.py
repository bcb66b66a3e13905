"""A run on a Ray cluster of several machines, which come and go. Each machine is a raylet of its own."""

from __future__ import annotations

import os
import secrets

import pytest
from training import Training, wait_until

LOCAL = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
FLAGS = ["--env", "CartPole-v1", "--agents", 2, "--agents_per_process", 2, "--hidden", 16, "--min_batch", 20]
CLUSTER = [*FLAGS, "--t_max", 5, "--metrics_seconds", 1, "--steps", "50M"]


@pytest.fixture
def machines(monkeypatch):
    """A cluster with one machine."""
    for name, value in {**LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32)}.items():
        monkeypatch.setenv(name, os.environ.get(name, value))
    utils = pytest.importorskip("ray.cluster_utils")
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def test_machines_leave_and_join(machines, tmp_path):
    worker = machines.add_node(num_cpus=1)
    run = Training(tmp_path, *CLUSTER, "--cluster", machines.address, "--gradient_dtype", "bfloat16")

    def has(nodes):
        return (run.lines() or [{}])[-1].get("nodes") == nodes

    def goes_on(nodes):
        wait_until(lambda: has(nodes), what=f"not {nodes} nodes\n{run.stderr}")
        before = run.lines()[-1]["updates"]
        wait_until(lambda: run.lines()[-1]["updates"] > before + 5 and has(nodes), what=f"no updates\n{run.stderr}")

    goes_on(2)
    machines.remove_node(worker, allow_graceful=False)  # kills all of its processes
    goes_on(1)
    other = tmp_path / "other" / "gunreal-0.0.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: gunreal\nVersion: 0.0.9\n")
    path = os.pathsep.join([str(other.parent), os.environ.get("PYTHONPATH", "")])
    machines.add_node(num_cpus=1, env_vars={"PYTHONPATH": path})
    line = "takes no part: it has gunreal 0.0.9 instead of "
    wait_until(lambda: line in run.stderr, what=f"not refused\n{run.stderr}")
    machines.add_node(num_cpus=1)
    goes_on(2)
    assert run.stderr.count(line) == 1
    run.popen.terminate()
    assert run.popen.wait(60) == 0, run.stderr
    assert run.lines()[-1]["stopped_by"] == "SIGTERM" and run.checkpoints()


def test_a_cluster_that_is_not_there(tmp_path):
    run = Training(tmp_path, *CLUSTER, "--cluster", "127.0.0.1:1")
    assert run.popen.wait(120) == 2
    assert run.stderr.strip().splitlines()[-1].startswith("gunreal: cannot join the Ray cluster at 127.0.0.1:1")
    assert not run.path.exists()
