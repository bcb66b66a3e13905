"""The help text of the training commands: their flags, by section."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Container

from gunreal.config.schema import FIELDS, GROUPS

FILES = {
    "config": "TOML file with values that replace the defaults",
    "resume": "Name or folder of a run to continue",
}
TASK_WEIGHT = "Task weights, as in pc=0.05,vr=1. Short for --task pc.weight=0.05,vr.weight=1"
HELP = {"help": "Show the most common flags and exit", "helpfull": "Show all flags and exit"}
RESUME_HELP = {"help": "Show the flags that may change and exit"}
COMMON = frozenset(
    ("config", "resume", "help", "helpfull")
    + ("env", "env_args", "observation", "tasks", "task", "task_weight", "logdir", "name", "steps", "seed")
    + ("runner", "agents", "nodes", "backend", "network", "objective", "learning_rate", "entropy", "discount")
)


def text(program: str, shown: Container[str] | None, resumes: bool = False) -> str:
    """The help text.

    Args:
      program: the command as it was called, such as "gunreal train".
      shown: names of the flags to show. None shows all.
      resumes: whether the command resumes a run. The flags then have no defaults, because the run keeps its values.
    """
    parts = {"Files": FILES}
    for group, names in GROUPS.items():
        parts[group.__name__] = {name: _about(FIELDS[name], not resumes) for name in names}
    parts["Tasks"]["task_weight"] = TASK_WEIGHT
    parts["Help"] = RESUME_HELP if resumes else HELP
    run = " RUN" if program.endswith(" resume") else ""
    lines = [f"usage: {program}{run} [--flag value] ..."]
    if resumes:
        lines += ["", "Settings whose flags are not given keep their values."]
    for title, flags in parts.items():
        described = [_flag(name, help) for name, help in flags.items() if shown is None or name in shown]
        if described:
            lines += ["", f"{title}:", *described]
    return "\n".join(lines)


def _about(field: dataclasses.Field, with_default: bool) -> str:
    help, default = field.metadata["help"], field.default
    if "choices" in field.metadata and ":" not in help:
        help += f": {', '.join(field.metadata['choices'])}"
    if not with_default or default in (dataclasses.MISSING, "", ()):
        return help
    return f"{help} (default {str(default).lower() if isinstance(default, bool) else default})"


def _flag(name: str, help: str) -> str:
    return textwrap.fill(f"--{name:<22} {help}", 110, initial_indent="  ", subsequent_indent=" " * 27)
