"""`spec.json`: the interface of a run's environment, so that its policy can be used without the environment."""

from __future__ import annotations

import json
from pathlib import Path

from gunreal.config import files
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.raw import Raw
from gunreal.experience.spec import Spec
from gunreal.learning import registry

FILE = "spec.json"


def save(run_dir: Path, spec: Spec, raw: Raw) -> None:
    """Writes the interface to a run's folder, as a whole or not at all. Raises OSError."""
    text = json.dumps({"spec": spec._asdict(), "raw": raw.to_json()}, indent=1) + "\n"
    files.replace(run_dir / FILE, text)


def of(run_dir: Path, config: Config) -> tuple[Spec, Raw]:
    """The interface that a run saved. If its folder has none, the environment is opened once.

    Raises:
      ConfigError: the file cannot be read, or as `gunreal.learning.registry.interface`.
    """
    return load(run_dir) or registry.interface(config)[:2]


def load(run_dir: Path) -> tuple[Spec, Raw] | None:
    """The interface in a run's folder, or None if there is no file.

    Raises:
      ConfigError: the file cannot be read. The message is one line that names the fix.
    """
    path = run_dir / FILE
    try:
        found = json.loads(path.read_text())
        lists = {name: tuple(array) for name, array in found["spec"].items() if isinstance(array, list)}
        return Spec(**{**found["spec"], **lists}), Raw.from_json(found["raw"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"cannot read {path} ({type(error).__name__}: {error}); delete it, and the environment is opened instead"
        ) from error
