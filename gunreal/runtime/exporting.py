"""Export of a policy as a file that other programs can use: `.keras` or `.onnx`."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gunreal.config.packages import is_installed
from gunreal.config.process import python, told
from gunreal.config.schema import Config, ConfigError
from gunreal.experience.spec import Spec
from gunreal.records.writable import check_writable

_ONNX = ("onnx", "tensorflow", "tf2onnx")
# In a process of its own, because the conversion needs TensorFlow, and tf2onnx changes NumPy.
_CONVERT = """import json, os
os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
from gunreal.learning.portable import to_onnx
try:
    to_onnx(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
except OSError as error:
    print(error.strerror or error, file=sys.stderr)
    sys.exit(os.EX_IOERR)"""


def check(path: str | Path) -> Path:
    """Checks that a policy can be exported to `path`, before anything slow starts.

    Raises:
      ConfigError: the suffix is neither `.keras` nor `.onnx`, the file cannot be written, or a package is missing.
    """
    path = Path(path)
    if path.suffix not in (".keras", ".onnx"):
        raise ConfigError(f"cannot export to {path}; write FILE.keras or FILE.onnx")
    check_writable(path)
    missing = [name for name in _ONNX if not is_installed(name)]
    if path.suffix == ".onnx" and missing:
        raise ConfigError(f'an export to ONNX needs {" and ".join(missing)}; run pip install "gunreal[onnx]"')
    return path


def export(config: Config, spec: Spec, state: Mapping[str, np.ndarray], path: str | Path) -> Path:
    """Writes the policy and value. `gunreal.learning.portable.portable` describes inputs and outputs.

    An existing file is replaced when the new one is complete. `state` is as returned by `Learner.get_state`.

    Raises:
      ConfigError: see `check`, the file cannot be written, or the conversion to ONNX failed.
    """
    path = check(path)
    from gunreal.runtime.system import build_learner

    # A CPU has no convolutions of the other layout in every framework, and ONNX no bfloat16 in most of its operations.
    portable_config = dataclasses.replace(config, layout="nhwc", precision="float32")
    learner = build_learner(portable_config, spec, ())
    from gunreal.learning.portable import portable

    for name, variable in learner.network.variables.items():  # where a JAX learner has the initial values
        variable.assign(state[name])
    model = portable(learner.network, has_policy=learner.objective.has_policy)
    about = {"env": config.env, "num_actions": str(spec.num_actions), "stack": str(spec.stack)}
    try:
        with tempfile.TemporaryDirectory(prefix=".gunreal-export-", dir=path.parent) as folder:
            written = Path(folder, "policy.keras")
            model.save(written)
            if path.suffix == ".onnx":
                written = _convert(written, about)
            os.replace(written, path)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot write {path}: {reason}; free some space, or choose another folder") from error
    return path


def _convert(source: Path, about: Mapping[str, str]) -> Path:
    """Writes an ONNX file next to `source`. Raises OSError if it cannot be written."""
    target = source.with_suffix(".onnx")
    done = subprocess.run(
        [*python(_CONVERT), str(source), str(target), json.dumps(about)],
        input=told(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}").splitlines()[-1]
        if done.returncode == os.EX_IOERR:
            raise OSError(reason)
        raise ConfigError(f"cannot convert the network to ONNX: {reason}; export FILE.keras instead")
    return target
