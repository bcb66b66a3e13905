"""Checkpoints: everything needed to resume a run, in one file that is written atomically.

`checkpoints/step_000001234567.npz` is an uncompressed zip file that `numpy.load` can open. It contains one `.npy`
member per array, `meta.json` and the blobs. Each member has a CRC, and `meta.json` has a SHA-256 of all names and
contents, so a damaged file is detected when it is read. `best.npz` is a hard link to the checkpoint with the best
score.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from gunreal.config.schema import ConfigError
from gunreal.config.values import one_line
from gunreal.config.warning import warn

_META = "meta.json"
_BLOBS = "blobs/"
_BEST = "best.npz"
DEVICE = "device"  # start of the names of what a device run saves besides the learner
_NOT_LEARNED = ("ring", DEVICE)  # a serial run saves its rings
_SHA256 = "sha256"
_DAMAGED = (OSError, EOFError, KeyError, ValueError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)


class NoCheckpoint(ConfigError, FileNotFoundError):
    """There is no intact checkpoint. The message is one line."""


class Checkpoint(NamedTuple):
    """A loaded checkpoint.

    Attributes:
      extra: further state that was saved as JSON.
      step: number of agent steps when it was saved.
      score: score that determines the best checkpoint, or None.
    """

    state: dict[str, np.ndarray]
    extra: dict[str, Any]
    blobs: dict[str, bytes]
    path: Path
    step: int
    score: float | None

    def is_whole(self) -> bool:
        """Whether it has the optimizer and the heads of the tasks, and not only a policy."""
        return any(name.startswith("optimizer/") for name in self.state)

    def learned(self) -> dict[str, np.ndarray]:
        """The arrays of the learner, for `Learner.set_state`. Half precision, as in the zoo, becomes float32."""
        found = {name: array for name, array in self.state.items() if not name.startswith(_NOT_LEARNED)}
        return {name: x.astype(np.float32) if x.dtype == np.float16 else x for name, x in found.items()}


def weights_sha256(state: Mapping[str, np.ndarray]) -> str:
    """Hash of a learner's state without the optimizer's, in order. Equal hashes mean equal networks."""
    digest = hashlib.sha256()
    for name, array in state.items():
        if name != "version" and not name.startswith("optimizer/"):
            digest.update(np.asarray(array).tobytes())
    return digest.hexdigest() if state else ""


def save(
    run_dir: str | Path,
    step: int,
    state: Mapping[str, np.ndarray],
    extra: Mapping[str, Any],
    blobs: Mapping[str, bytes] | None = None,
    score: float | None = None,
    keep: int = 3,
) -> Path:
    """Writes a checkpoint. Removes all others except the newest `keep` and the best.

    Checkpoints of later steps are removed too. They were made obsolete by resuming from an earlier one.

    Args:
      state: arrays of any shape and plain dtype, by name.
      extra: further state that `json.dumps` accepts.
      score: score of the checkpoint; higher is better. With None or NaN it cannot be the best.
      keep: number of newest checkpoints to keep.

    Returns:
      The path of the checkpoint.

    Raises:
      OSError: the disk is full or not writable. Older checkpoints are unchanged.
    """
    folder = Path(run_dir) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    score = None if score is None or math.isnan(score) else float(score)
    path = _path(folder, step)
    _remove(folder.glob("*.tmp"))  # left behind by a killed process
    temporary = path.with_suffix(".tmp")
    try:
        with open(temporary, "wb") as file:
            _write(file, {"step": step, "score": score, "extra": dict(extra)}, state, blobs or {})
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if score is not None and score >= _best_score(folder):
        _link(path, folder / _BEST)
    _sync_folder(folder)
    files = _files(run_dir)
    current = [other for other in files if _step(other) <= step]
    _remove(set(files) - set(current[-keep:]))
    return path


def exists(run_dir: str | Path) -> bool:
    """Whether a run has written a checkpoint, whole or damaged."""
    return any((Path(run_dir) / "checkpoints").glob("*.npz"))


def load(run_dir: str | Path, which: str | int | Path = "newest") -> Checkpoint:
    """Reads and verifies a checkpoint.

    Args:
      which: "newest", "best", a step, the name of one of its checkpoints, or the path of a file. "newest" skips damaged
        files with a warning on stderr.

    Raises:
      NoCheckpoint: there is no intact checkpoint.
    """
    if which == "newest":
        best = Path(run_dir) / "checkpoints" / _BEST
        files = [*([best] if best.is_file() else []), *_files(run_dir)]
        for path in reversed(files):
            try:
                return _read(path)
            except _DAMAGED as error:
                warn(f"{path} is damaged ({error}); trying another one")
        if files:
            raise NoCheckpoint(f"{run_dir} has no readable checkpoint; start a new run")
        raise NoCheckpoint(f"{run_dir} has no checkpoint yet; wait for the first one, or resume the run")
    path = find(run_dir, which)
    try:
        return _read(path)
    except _DAMAGED as error:
        raise NoCheckpoint(f"{path} is damaged ({error}); {_listed(run_dir)}") from error


def newest_step(run_dir: str | Path) -> int:
    """The agent steps of the newest checkpoint according to its name, or -1 if there is none."""
    return max(map(_step, _files(run_dir)), default=-1)


def find(run_dir: str | Path, which: str | int | Path) -> Path:
    """The file of a checkpoint: "best", a step, the name of one of the run's checkpoints, or a path.

    Raises:
      NoCheckpoint: there is no such file.
    """
    folder, name = Path(run_dir) / "checkpoints", str(which)
    inside = _path(folder, int(name)) if name.isdecimal() else folder / (_BEST if name == "best" else name)
    path = inside if name == "best" or os.path.isfile(inside) else Path(name)
    if not os.path.isfile(path):  # unlike Path.is_file, it accepts a name that is too long
        raise NoCheckpoint(one_line(f"no checkpoint {path}; {_listed(run_dir)}"))
    return path


def _listed(run_dir: str | Path) -> str:
    best = ["best"] if (Path(run_dir) / "checkpoints" / _BEST).is_file() else []
    names = ", ".join([*best, *(str(_step(path)) for path in _files(run_dir))])
    return f"available: {names}" if names else f"{run_dir} has none"


def _files(run_dir: str | Path) -> list[Path]:
    """The numbered checkpoints, oldest first."""
    return sorted((Path(run_dir) / "checkpoints").glob("step_*.npz"), key=_step)


def _path(folder: Path, step: int) -> Path:
    return folder / f"step_{step:012d}.npz"


def _step(path: Path) -> int:
    digits = path.stem.removeprefix("step_")
    return int(digits) if digits.isdigit() else -1


class _Hashed:
    """A member of the archive that is written to, and hashed on the way."""

    def __init__(self, member: IO[bytes], digest: Any):
        self._member, self._digest = member, digest

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._member.write(data)


def _digest(meta: Mapping[str, Any]) -> Any:
    return hashlib.sha256(json.dumps(meta).encode())


def _write(file: Any, meta: dict[str, Any], state: Mapping[str, np.ndarray], blobs: Mapping[str, bytes]) -> None:
    meta = json.loads(json.dumps(meta))  # converts it to what reading returns, so that the hashes are equal
    digest = _digest(meta)
    # Not compressed, because weights hardly shrink and a run that receives a signal has only seconds to save.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in state.items():
            digest.update(f"{name}.npy".encode())
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(_Hashed(member, digest), np.asanyarray(array), allow_pickle=False)
        for name, blob in blobs.items():
            digest.update((_BLOBS + name).encode() + blob)
            archive.writestr(_BLOBS + name, blob)
        archive.writestr(_META, json.dumps(meta | {_SHA256: digest.hexdigest()}))


def _read(path: Path) -> Checkpoint:
    state: dict[str, np.ndarray] = {}
    blobs: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as archive:
        meta = json.loads(archive.read(_META))
        written = meta.pop(_SHA256)
        digest = _digest(meta)
        for name in archive.namelist():
            if name == _META:
                continue
            data = archive.read(name)  # reads the whole member, which verifies its CRC
            digest.update(name.encode() + data)
            if name.startswith(_BLOBS):
                blobs[name.removeprefix(_BLOBS)] = data
            else:
                array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
                state[name.removesuffix(".npy")] = array
    if written != digest.hexdigest():
        raise ValueError("its content has changed")
    return Checkpoint(state, meta["extra"], blobs, path, meta["step"], meta["score"])


def _best_score(folder: Path) -> float:
    try:
        with zipfile.ZipFile(folder / _BEST) as archive:
            return float(json.loads(archive.read(_META))["score"])
    except (*_DAMAGED, TypeError):
        return -math.inf


def _link(path: Path, name: Path) -> None:
    temporary = name.with_suffix(".tmp")
    try:
        try:
            os.link(path, temporary)
        except OSError:  # the file system has no hard links
            shutil.copyfile(path, temporary)
        os.replace(temporary, name)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not supported by some network file systems; the rename is already done
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(paths: Any) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
