from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gunreal.records import checkpoint

STATE = {
    "torso/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "ring0/frame": np.arange(24, dtype=np.uint8).reshape(2, 3, 4).transpose(2, 0, 1),
    "scalar": np.array(3, np.int64),
    "empty": np.zeros((0, 4), np.float16),
}


def digest(state):
    """SHA-256 of arrays with their names, shapes and types: equal only where every bit is."""
    sha = hashlib.sha256()
    for name in sorted(state):
        array = np.ascontiguousarray(state[name])
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def names(run_dir) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_roundtrip_is_exact(tmp_path):
    extra = {"metrics": {"step": 12, "scores": [1.5, -21.0]}, "nothing": None}
    path = checkpoint.save(tmp_path, 12, STATE, extra, {"serial": b"\x00\xff" * 9, "none": b""}, score=1.5)
    assert path.name == "step_000000000012.npz"
    found = checkpoint.load(tmp_path)
    assert (found.path, found.step, found.score, found.extra) == (path, 12, 1.5, extra)
    assert found.blobs == {"serial": b"\x00\xff" * 9, "none": b""}
    assert digest(found.state) == digest(STATE)
    np.testing.assert_array_equal(np.load(path)["torso/kernel"], STATE["torso/kernel"])


def test_the_newest_and_the_best_are_kept(tmp_path):
    for step, score in ((10, 1.0), (20, 5.0), (30, None), (40, float("nan")), (50, 2.0)):
        checkpoint.save(tmp_path, step, {"x": np.array(step)}, {}, score=score, keep=2)
    assert names(tmp_path) == ["best.npz", "step_000000000040.npz", "step_000000000050.npz"]
    assert checkpoint.load(tmp_path).state["x"] == 50
    best = checkpoint.load(tmp_path, "best")
    assert (best.step, best.score, int(best.state["x"])) == (20, 5.0, 20)
    checkpoint.save(tmp_path, 60, {"x": np.array(60)}, {}, score=5.0, keep=2)
    assert checkpoint.load(tmp_path, "best").step == 60  # of equals, the longer trained one


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, call=call: done.append(name) or call(*args))
    checkpoint.save(tmp_path, 1, STATE, {})
    assert done == ["fsync", "replace", "fsync"]  # the last one is of the folder


def test_a_best_one_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    replace = os.replace

    def fail_for_the_best(source, target):
        if target.name == "best.npz":
            raise OSError(28, "No space left on device")
        replace(source, target)

    checkpoint.save(tmp_path, 1, STATE, {}, score=1.0)
    monkeypatch.setattr(os, "replace", fail_for_the_best)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, 2, STATE, {}, score=2.0)
    assert checkpoint.load(tmp_path, "best").step == 1


def test_best_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    checkpoint.save(tmp_path, 1, STATE, {}, score=0.0)
    assert checkpoint.load(tmp_path, "best").step == 1
    assert names(tmp_path) == ["best.npz", "step_000000000001.npz"]


def test_a_checkpoint_is_found_by_its_step(tmp_path):
    path = checkpoint.save(tmp_path, 7, STATE, {}, score=1.0)
    assert checkpoint.find(tmp_path, 7) == checkpoint.find(tmp_path, "7") == path
    assert checkpoint.load(tmp_path, "7").step == 7
    for unknown in (5, -1, "x" * 300, tmp_path / ("x" * 300)):
        with pytest.raises(FileNotFoundError, match=r"^no checkpoint .*; available: best, 7$"):
            checkpoint.find(tmp_path, unknown)


def test_resuming_from_an_earlier_checkpoint_removes_later_ones(tmp_path):
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, step, STATE, {})
    found = checkpoint.load(tmp_path, tmp_path / "checkpoints" / "step_000000000010.npz")
    assert checkpoint.load(tmp_path, "step_000000000010.npz").path == found.path  # as messages list it
    checkpoint.save(tmp_path, found.step + 5, STATE, {}, keep=3)
    assert names(tmp_path) == ["step_000000000010.npz", "step_000000000015.npz"]
    checkpoint.save(tmp_path, 15, STATE, {"again": 1}, keep=3)
    assert checkpoint.load(tmp_path).extra == {"again": 1}


@pytest.mark.parametrize("share", [0, 0.5, 0.97])
def test_a_torn_newest_one_is_skipped(tmp_path, capsys, share):
    checkpoint.save(tmp_path, 1, STATE, {})
    path = checkpoint.save(tmp_path, 2, STATE, {})
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert checkpoint.load(tmp_path).step == 1
    warning = capsys.readouterr().err
    assert str(path) in warning and "is damaged" in warning and warning.count("\n") == 1
    with pytest.raises(FileNotFoundError, match="is damaged"):
        checkpoint.load(tmp_path, path)


def test_a_flipped_bit_is_detected(tmp_path):
    """One in every byte of a small file: what is loaded is what was written, or it is called damaged."""
    state = {"a": np.arange(2, dtype=np.uint8), "b": np.arange(2, dtype=np.uint8)}
    path = checkpoint.save(tmp_path, 7, state, {"x": 1}, {"c": b"ab"}, score=1.0)
    data, damaged = path.read_bytes(), 0
    for place, value in enumerate(data):
        path.write_bytes(data[:place] + bytes([value ^ 1 << place % 8]) + data[place + 1 :])
        try:
            found = checkpoint.load(tmp_path, path)
        except FileNotFoundError:
            damaged += 1
            continue
        assert digest(found.state) == digest(state) and (found.step, found.score) == (7, 1.0), place
        assert (found.extra, found.blobs) == ({"x": 1}, {"c": b"ab"}), place
    assert damaged > len(data) / 2
    with zipfile.ZipFile(path, "a") as archive:  # with a valid CRC
        archive.writestr("more.npy", archive.read("a.npy"))
    with pytest.raises(FileNotFoundError, match="is damaged .its content has changed"):
        checkpoint.load(tmp_path, path)


def test_a_damaged_best_one_is_replaced(tmp_path):
    checkpoint.save(tmp_path, 1, STATE, {}, score=100.0)
    (tmp_path / "checkpoints" / "best.npz").unlink()
    (tmp_path / "checkpoints" / "best.npz").write_bytes(b"PK\x03\x04 torn")
    checkpoint.save(tmp_path, 2, STATE, {}, score=1.0)
    assert checkpoint.load(tmp_path, "best").step == 2


def test_the_best_one_alone_is_the_newest(tmp_path):
    (checkpoint.save(tmp_path, 7, STATE, {}, score=1.0)).unlink()
    assert names(tmp_path) == ["best.npz"] and checkpoint.load(tmp_path).step == 7


def test_none_at_all(tmp_path):
    for which in ("newest", "best", tmp_path / "other.npz"):
        with pytest.raises(FileNotFoundError) as caught:
            checkpoint.load(tmp_path, which)
        assert "\n" not in str(caught.value)


def test_object_arrays_are_rejected_and_leave_no_file(tmp_path):
    with pytest.raises(ValueError, match="Object arrays"):
        checkpoint.save(tmp_path, 1, {"x": np.array([None])}, {})
    assert names(tmp_path) == []


def test_a_kill_while_saving_leaves_the_older_ones(tmp_path):
    checkpoint.save(tmp_path, 1, STATE, {})
    code = (
        "import sys, numpy as np; from gunreal.records import checkpoint\n"
        "state = {str(i): np.zeros(1 << 20, np.uint8) for i in range(64)}\n"
        f"step = 1\nwhile True: step += 1; checkpoint.save({str(tmp_path)!r}, step, state, {{}}, keep=1)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    while not list((tmp_path / "checkpoints").glob("*.tmp")):
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert checkpoint.load(tmp_path).step >= 1
    checkpoint.save(tmp_path, 10**9, STATE, {})
    assert not any(name.endswith(".tmp") for name in names(tmp_path))
