"""A run on a Ray cluster of several machines, which come and go. Each machine is a raylet of its own."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import psutil
import pytest
import scripted_env
from training import TESTS, Training, is_gone, wait_until

LOCAL = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # Ray reads it once per process
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
FLAGS = ["--env", scripted_env.SCRIPTED, "--env_args", "pause=0.01", "--agents", 2, "--agents_per_process", 2]
FLAGS += ["--hidden", 16, "--min_batch", 20]
CLUSTER = [*FLAGS, "--t_max", 5, "--metrics_seconds", 1, "--steps", "50M"]


@pytest.fixture
def machines(monkeypatch):
    """A cluster with one machine."""
    for name, value in {**LOCAL, "PYTHONPATH": str(TESTS)}.items():
        monkeypatch.setenv(name, os.environ.get(name, value))
    utils = pytest.importorskip("ray.cluster_utils")
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def installed_first(folder: Path, name: str, text: str) -> dict[str, str]:
    """Environment variables of a machine on which this file hides another one of the same name."""
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}


NO_TENSORFLOW = """
import importlib.util

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *args: None if name == "tensorflow" else find_spec(name, *args)
"""


def different_machines(folder: Path) -> dict[str, dict[str, str]]:
    """Machines that cannot take part: why, and their environment variables."""
    old = "import gunreal.config.version\n\ngunreal.config.version.VERSION = '0.0.9'\n"
    return {
        "it has gunreal 0.0.9 instead of ": installed_first(folder / "old", "sitecustomize.py", old),
        "its scripted_env:Scripted-v0 has num_actions 4 instead of 3": {scripted_env.ACTIONS: "4"},
        "the backend tensorflow is not installed": installed_first(folder / "bare", "sitecustomize.py", NO_TENSORFLOW),
    }


def test_machines_leave_and_join(machines, tmp_path):
    worker = machines.add_node(num_cpus=1)
    where = ("--runner", "cluster", "--address", machines.address)
    run = Training(tmp_path, *CLUSTER, *where, "--gradient_dtype", "bfloat16")

    def has(nodes):
        return (run.lines() or [{}])[-1].get("nodes") == nodes

    def goes_on(nodes):
        wait_until(lambda: has(nodes), what=f"not {nodes} nodes\n{run.stderr}")
        before = run.lines()[-1]["updates"]
        wait_until(lambda: run.lines()[-1]["updates"] > before + 5 and has(nodes), what=f"no updates\n{run.stderr}")

    goes_on(2)
    machines.remove_node(worker, allow_graceful=False)  # kills all of its processes
    goes_on(1)
    reasons = {f"takes no part: {why}": variables for why, variables in different_machines(tmp_path).items()}
    for line, variables in reasons.items():
        machines.add_node(num_cpus=1, env_vars=variables)
        wait_until(lambda line=line: line in run.stderr, what=f"not refused\n{run.stderr}")
    machines.add_node(num_cpus=1)
    goes_on(2)
    assert all(run.stderr.count(line) == 1 for line in reasons)
    run.popen.terminate()
    assert run.popen.wait(60) == 0, run.stderr
    assert run.lines()[-1]["stopped_by"] == "SIGTERM" and run.checkpoints()


def test_the_others_end_when_the_first_machine_is_lost(machines, tmp_path):
    """On their own. By default, Ray gives the first one a minute to come back, and here five seconds."""
    other = machines.add_node(num_cpus=1, env_vars={"RAY_gcs_rpc_server_reconnect_timeout_s": "5"})
    with Training(tmp_path, *CLUSTER, "--runner", "cluster", "--address", machines.address) as run:
        wait_until(lambda: (run.lines() or [{}])[-1].get("nodes") == 2 and run.checkpoints(), what=run.stderr)
        raylet = psutil.Process(other.all_processes["raylet"][0].process.pid)
        of_other = [raylet.pid, *(child.pid for child in raylet.children(recursive=True) if not is_helper(child))]
        run.popen.kill()
        machines.remove_node(machines.head_node, allow_graceful=False)  # kills all of its processes
        wait_until(lambda: all(map(is_gone, of_other)), what="processes are left on the other machine")


def is_helper(process: psutil.Process) -> bool:
    """Whether this is one of Ray's helpers, which end a minute later, or has just ended."""
    try:
        return process.cmdline()[0].endswith("Agent")
    except (psutil.Error, IndexError):
        return True


def test_a_cluster_that_is_not_there(tmp_path):
    run = Training(tmp_path, *CLUSTER, "--runner", "cluster", "--address", "127.0.0.1:1")
    assert run.popen.wait(120) == 2
    assert run.stderr.strip().splitlines()[-1].startswith("gunreal: cannot join the Ray cluster at 127.0.0.1:1")
    assert not run.path.exists()
