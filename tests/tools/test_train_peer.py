"""Ending a system that trains, by one that only looks like it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from peer_standins import learner
from training import is_gone, wait_until

HANGS = """
import signal, subprocess
train_peer._PATIENCE = {patience}
worker = subprocess.Popen(["sh", "-c", "trap '' TERM; while true; do sleep 1; done"])
open(curve.folder / "worker", "w").write(str(worker.pid))
curve.start()
curve.report(7)
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize(("patience", "signals"), [(60, 2), (0.5, 1)])
def test_a_system_that_hangs_is_ended(tmp_path, patience, signals):
    """By a second signal, or after some time. Nothing that it has started stays."""
    python = learner(tmp_path / "python", HANGS.format(patience=patience))
    words = [python, "train_peer.py", "sb3-ppo", "--out", str(tmp_path / "run")]
    worker = tmp_path / "run" / "worker"
    with subprocess.Popen(words, start_new_session=True) as process:
        try:
            wait_until(lambda: (worker.exists() and worker.read_text()) or process.poll() is not None)
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.3)  # two signals at the same time would be one
            process.wait(20)
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    wait_until(lambda: is_gone(int(worker.read_text())))
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["stopped_by"]) == (7, "SIGTERM")
