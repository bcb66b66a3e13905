"""`gunreal COMMAND`: trains, evaluates, resumes, plots and lists runs, and lists what is installed.

`python -m gunreal` is the same command. Only the modules of the given command are loaded.
"""

from __future__ import annotations

import importlib
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from gunreal import __version__
from gunreal.config.process import set_up
from gunreal.config.schema import ConfigError, close_match
from gunreal.config.warning import warn
from gunreal.envs.step import AgentFailure

LISTS = {
    "tasks": "List auxiliary tasks, their options, and whether they fit an environment",
    "networks": "List networks and their options",
    "objectives": "List objectives and their options",
    "envs": "List environments by family, and how to install those that are missing",
    "zoo": "List trained agents, their scores and the commands that train them",
}
COMMANDS = {
    "train": "Train a policy",
    "resume": "Continue a run",
    "evaluate": "Play episodes with a trained policy and report their scores",
    "watch": "Play a run step by step in the browser, and see what its network sees",
    "export": "Write the policy of a run for other programs, as .keras or .onnx",
    "sweep": "Train several settings with several seeds, and compare them",
    "compare": "Compare the scores of settings over seeds and environments",
    "check": "Check a task, a network or an objective of your own",
    "plot": "Draw the learning curves of runs",
    "runs": "List runs and their scores",
    "push": "Upload a run to the Hugging Face Hub",
    "pull": "Download a run from the Hugging Face Hub",
    "doctor": "Report what is installed, what works, and how fast this machine trains",
    **LISTS,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code, which the page Commands explains."""
    path, *words = argv or sys.argv
    program = "python -m gunreal" if Path(path).name == "__main__.py" else "gunreal"
    try:
        set_up()
        try:
            code = _run(program, words)
        except SystemExit as end:  # such as that of --help
            if not isinstance(end.code, int):
                raise
            code = end.code
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a pipe may be found broken
        return code
    except (ConfigError, AgentFailure) as error:
        warn(str(error))
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:  # such as while modules are imported
        warn("interrupted")
        return 130
    except BrokenPipeError:  # as in `gunreal envs | head`
        if not _is_closed(sys.stdout):
            raise  # by something else, such as an environment
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the flush at the exit
        return 1


def _is_closed(stream: TextIO | None) -> bool:
    """Whether the program that reads the stream has ended."""
    try:
        descriptor = stream.fileno()  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):  # it is None, closed or not a file
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are reported in any case
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def usage(program: str) -> str:
    """The help text."""
    lines = [f"  {name:<10} {help}" for name, help in COMMANDS.items()]
    end = [f"{program} COMMAND --help explains the flags of a command.", f"{program} --version prints the version."]
    return "\n".join([f"usage: {program} COMMAND ...", "", *lines, "", *end])


def _run(program: str, words: Sequence[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(usage(program))
        return 0
    if words[0] == "--version":
        print(f"gunreal {__version__}")
        return 0
    command, *rest = words
    argv = [f"{program} {command}", *rest]
    if command not in COMMANDS:
        hint = close_match(command, COMMANDS) or f"; use one of {', '.join(COMMANDS)}"
        raise ConfigError(f"unknown command {command!r}{hint}")
    if command in LISTS:
        from gunreal import listing

        return listing.main(command, argv)
    if command in ("push", "pull"):
        from gunreal import hub

        return hub.main(command, argv)
    module: Any = importlib.import_module(f"gunreal.{'train' if command == 'resume' else command}")
    if module.__name__ == "gunreal.train":
        module.command(argv if command == "train" else _resumed(argv))
    return module.main(argv)


def _resumed(argv: list[str]) -> list[str]:
    """The command line of a resume, in the flags of a training."""
    program, *words = argv
    if words and words[0] in ("-h", "--help", "--helpfull"):
        words = ["RUN", "--help"]
    if not words or words[0].startswith("-"):
        raise ConfigError(f"name the run first, as in {program} NAME --steps 2M")
    return [program, "--resume", *words]


if __name__ == "__main__":
    sys.exit(main())
