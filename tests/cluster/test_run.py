"""A run on two nodes as a user starts it: what it leaves, and that it survives what happens to its processes."""

from __future__ import annotations

import importlib.util
import os
import signal

import numpy as np
import psutil
import pytest
from scripted_env import POISONED, SLOW
from training import Training, is_gone, wait_until

from gunreal.records import checkpoint

if importlib.util.find_spec("ray") is None:  # not imported: that would fix its authentication for this process
    pytest.skip("needs Ray", allow_module_level=True)
FLAGS = ["--agents", 2, "--agents_per_process", 2, "--hidden", 16, "--min_batch", 20]
FLAGS += ["--backend", "jax" if importlib.util.find_spec("jax") else "tensorflow"]  # where nodes start sooner
CLUSTER = [*FLAGS, "--t_max", 5, "--runner", "cluster", "--nodes", 2, "--node_timeout", 60, "--metrics_seconds", 1]


def processes(run: Training, name: str) -> list[psutil.Process]:
    """The processes of the run that Ray calls `ray::NAME`."""
    found = []
    for child in psutil.Process(run.popen.pid).children(recursive=True):
        try:
            found += [child] if child.cmdline()[:1] == [f"ray::{name}"] or f"ray::{name}." in child.cmdline()[0] else []
        except (psutil.Error, IndexError):
            continue
    return found


def process(run: Training, name: str) -> psutil.Process:
    """The first of them; Ray changes the name of a process while it runs, so that there may be none for a moment."""
    wait_until(lambda: processes(run, name), what=f"no process {name}\n{run.stderr}")
    found = processes(run, name)
    return found[0] if found else process(run, name)


def last(run: Training, name: str, default=0):
    lines = run.lines()
    return lines[-1].get(name) if lines and lines[-1].get(name) is not None else default


def goes_on(run: Training, what: str, nodes: int = 2) -> None:
    """Waits until all nodes are there again and updates go on."""
    wait_until(lambda: last(run, "nodes") == nodes, what=f"{what}: a node is missing\n{run.stderr}")
    before = last(run, "updates")
    wait_until(lambda: last(run, "updates") > before + 5, what=f"{what}: no updates\n{run.stderr}")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run that all tests of this file disturb, one after the other."""
    folder = tmp_path_factory.mktemp("cluster")
    poisoned = ["--env", POISONED, "--env_args", f"marks={folder}"]
    with Training(folder, *poisoned, *CLUSTER, "--steps", "50M") as training:
        yield training


def test_two_nodes_train_one_network(run):
    goes_on(run, "start")

    def of_both() -> list[dict]:  # on a busy machine, there are seconds without an update
        lines = [line for line in run.lines() if (line["contributions"] or 0) > 1.2 and line["agents"] == 4]
        return [line for line in lines if (line.get("node1_pps") or 0) > 0 and line["episodes"]]

    wait_until(of_both, what="only one node contributes")
    line = of_both()[-1]
    assert (line["nodes"], line["refused"]) == (2, 0)
    assert line["step"] > 0 and line["traffic_mb"] > 0 and line["grad_norm"] > 0
    assert line["policy_lag"] is not None and line["round_ms"] > line["overhead_ms"]
    assert process(run, "Node").nice() == psutil.Process(run.popen.pid).nice()


def test_the_run_listens_on_the_loopback_only_and_has_a_token(run):
    for child in psutil.Process(run.popen.pid).children(recursive=True):
        try:
            addresses = {c.laddr.ip for c in child.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
            environment, name = child.environ(), child.name()
        except psutil.Error:
            continue
        assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, child.cmdline()
        if "raylet" in name:
            assert environment["RAY_AUTH_MODE"] == "token" and len(environment["RAY_AUTH_TOKEN"]) == 64


def test_a_node_whose_gradients_are_not_finite_is_ignored_until_it_is_well(run):
    goes_on(run, "start")
    (run.folder / "poison").touch()
    wait_until(lambda: last(run, "refused") > 0, what=f"nobody noticed\n{run.stderr}")
    goes_on(run, "infinity")

    def is_well():
        before, line = run.lines()[-2:]
        well = line["grad_norm"] is not None and (line["contributions"] or 0) > 1.2
        return well and line["refused"] == before["refused"]

    wait_until(is_well, what="the node does not contribute again")
    assert any(np.isfinite(line["grad_norm"] or np.inf) for line in run.lines()[-5:])  # infinity is written as null


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_that_is_lost_is_replaced(run, number):
    goes_on(run, "start")
    before, told = last(run, "replaced"), len(run.stderr)
    process(run, "Node").send_signal(number)
    wait_until(lambda: last(run, "replaced") > before, what=f"nobody noticed\n{run.stderr}")
    assert ("its process is stopped" in run.stderr[told:]) == (number == signal.SIGSTOP)
    goes_on(run, number.name)


def test_a_reducer_that_is_lost_is_replaced(run):
    goes_on(run, "start")
    before, updates = last(run, "replaced"), last(run, "updates")
    process(run, "Reducer").kill()
    wait_until(lambda: last(run, "replaced") > before, what=f"nobody noticed\n{run.stderr}")
    goes_on(run, "reducer")
    assert last(run, "updates") > updates


def test_a_coordinator_is_killed_two_nodes_go_on_ctrl_c_ends_them_and_one_machine_goes_on(tmp_path):
    """Nothing is left of either, and what only a number beside the image tells is learned, beside a demanding task."""
    told = ["--env", "recall:Recall", "--env_args", "wait=0,shown=0,told=true", "--frame_size", 20, "--frame_stack", 1]
    told += ["--network", "mlp", "--learning_rate", 0.01, "--tasks", "rich_task:Rich"]
    with Training(tmp_path, *told, *CLUSTER, "--steps", "50M", "--sync", "off") as run:
        wait_until(run.checkpoints, what=f"no checkpoint\n{run.stderr}")
        wait_until(lambda: last(run, "staleness") > 0, what="no gradient is stale")
        children = [child.pid for child in psutil.Process(run.popen.pid).children(recursive=True)]
        run.popen.kill()
        wait_until(lambda: all(map(is_gone, children)), "processes are left")
    killed, updates = checkpoint.load(run.path), last(run, "updates")
    with Training(tmp_path, "--resume", "run") as run:
        goes_on(run, "resume")
        wait_until(lambda: last(run, "score_mean") > 0.9, what=f"it does not learn\n{run.stderr}")
        children = [child.pid for child in psutil.Process(run.popen.pid).children(recursive=True)]
        os.killpg(run.popen.pid, signal.SIGINT)  # as a terminal sends it
        assert run.end() == 0, run.stderr
        assert run.lines()[-1]["stopped_by"] == "SIGINT"
        wait_until(lambda: all(map(is_gone, children)), "processes are left")
    before, line = checkpoint.load(run.path), run.lines()[-1]
    assert all(np.isfinite(array).all() for array in before.state.values()) and len(line["weights_sha256"]) == 64
    assert int(before.state["version"]) == int(before.state["optimizer/updates"]) == line["updates"] > updates
    assert before.step > killed.step
    names = ("average/rich/torso/fc2/kernel", "state/rich/mean", "state/rich/shift")
    assert [np.array_equal(before.state[name], killed.state[name]) for name in names] == [False, False, True]
    with Training(tmp_path, "--resume", "run", "--steps", before.step + 400, "--runner", "parallel") as resumed:
        assert resumed.end() == 0, resumed.stderr
    after = checkpoint.load(run.path)
    assert after.step >= before.step + 400 and after.state["version"] > before.state["version"]
    assert not np.array_equal(after.state["weights/policy/kernel"], before.state["weights/policy/kernel"])


def test_a_head_that_is_killed_ends_the_run_in_order(tmp_path):
    """Its reducer dies as well, so that another is wanted, and Ray would try to start it until it aborts the run."""
    with Training(tmp_path, "--env", SLOW, *CLUSTER, "--steps", "50M") as run:
        goes_on(run, "start")
        children = psutil.Process(run.popen.pid).children(recursive=True)
        process(run, "Reducer").kill()
        next(child for child in children if child.name() == "gcs_server").kill()
        assert run.end() == 1
        assert "gunreal: the head of the Ray cluster at " in run.stderr.splitlines()[-1]
        assert run.lines()[-1]["stopped_by"] == "error" and run.lines()[-1]["weights_sha256"]
        assert checkpoint.load(run.path).step == run.lines()[-1]["step"] > 0
        wait_until(lambda: all(is_gone(child.pid) for child in children), what="processes are left")
