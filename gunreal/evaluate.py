"""`gunreal evaluate RUN`: plays episodes with a trained policy and reports its scores.

A score is the sum of an episode's raw rewards. The protocol (frame skip, no-ops or sticky actions) is the one used in
training.

Actions are sampled from the policy, as in A3C, GA3C and UNREAL. `--policy argmax` takes the most probable action
instead. Without sticky actions an Atari game has only about 30 different starts, so argmax repeats the same few
episodes.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from gunreal.acting.episodes import MAX_STEPS, play, summarize
from gunreal.config import folders
from gunreal.config.arguments import Arguments, at_least
from gunreal.config.schema import FIELDS, ConfigError
from gunreal.config.warning import warn
from gunreal.records.recordings import Writer
from gunreal.records.video import NotWritten, Recorder
from gunreal.run import Run, load


def _parser(program: str) -> Arguments:
    parser = Arguments(program, "Plays episodes with the policy of a run, and reports their scores.")
    parser.add_run(policy=True)
    add, protocols = parser.add_argument, FIELDS["protocol"].metadata["choices"]
    add("--episodes", type=at_least(1), default=30, metavar="N", help="number of episodes to play (default: 30)")
    add("--protocol", choices=protocols, help="Atari protocol (default: the run's own)")
    add("--seed", type=at_least(0), default=1, metavar="N", help="random seed of the episodes (default: 1)")
    longest = f"maximum episode length in agent steps (default: {MAX_STEPS})"
    add("--max_steps", type=at_least(1), default=MAX_STEPS, metavar="N", help=longest)
    add("--video", metavar="FILE.mp4", help="name of a file for a video of the first episode")
    add("--record", metavar="FOLDER", help="folder of a new data set with the episodes, in Minari's format")
    add("--json", action="store_true", help="print a JSON object instead of a table")
    return parser


def _open(options: Any) -> Run:
    """The run, with the configuration to evaluate it with."""
    run = load(folders.find(options.run, options.logdir), options.checkpoint)
    if options.protocol:
        if not run.config.env.startswith("ALE/"):
            raise ConfigError(f"--protocol applies to Atari games only, not to {run.config.env}; leave it out")
        run.config = dataclasses.replace(run.config, protocol=options.protocol)
    return run


def evaluate(options: Any) -> tuple[dict[str, Any], NotWritten | None]:
    """Plays the episodes. Returns the dict that `--json` prints, and why there is no video, if there should be one."""
    run = _open(options)
    about = {"run": str(run.path), "env": run.config.env, "checkpoint": str(run.checkpoint), "step": run.step}
    about |= {"policy": options.policy, "protocol": run.config.protocol, "seed": options.seed}
    # Both reject a bad path before anything slow starts.
    recorder = Recorder(options.video, run) if options.video else None
    writer = Writer(options.record, run.spec, run.config.env) if options.record else None
    learner, sample = run.actor_critic, options.policy == "sample"
    how: dict[str, Any] = {"seed": options.seed, "sample": sample, "max_steps": options.max_steps}
    played, failure = [], None
    try:
        with recorder or contextlib.nullcontext(), writer or contextlib.nullcontext():
            how |= {"watch": recorder, "keep": writer.step if writer else None}
            for episode in play(learner, run.config, run.spec, options.episodes, **how):
                played.append(episode)
                if writer:
                    writer.end(episode)
                _show_progress(len(played), options.episodes)
    except NotWritten as error:
        failure = error
    return about | summarize(played), failure


def _show_progress(played: int, episodes: int) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        end = "\n" if played == episodes else ""
        print(f"\rplayed {played} of {episodes} episodes", end=end, file=sys.stderr, flush=True)


def _table(result: dict[str, Any]) -> str:
    columns = ("mean", "median", "std", "min", "max", "episodes", "mean_length")
    cells = [f"{result[name]:.2f}" if isinstance(result[name], float) else str(result[name]) for name in columns]
    widths = [max(len(name), len(cell)) + 2 for name, cell in zip(columns, cells, strict=True)]
    protocol = f", {result['protocol']} protocol" if result["env"].startswith("ALE/") else ""
    lines = [
        f"{Path(result['run']).name}: {result['env']}{protocol}, at step {result['step']:,}, policy {result['policy']}",
        "".join(f"{name.replace('_', ' '):>{width}}" for name, width in zip(columns, widths, strict=True)),
        "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)),
    ]
    if result["cut"]:
        lines.append(f"{result['cut']} of the episodes were cut at --max_steps; their scores count up to that step")
    return "\n".join(lines)


@contextlib.contextmanager
def _prints_to_stderr() -> Iterator[None]:
    """Sends to standard error what environments print to standard output, in Python, in C or in other processes."""
    with open(os.devnull, "w") as nowhere:
        errors = nowhere if sys.stderr is None else sys.stderr
        target = 2 if _is_open(sys.__stderr__) else nowhere.fileno()
        with _descriptor_1_as(target, sys.stdout), contextlib.redirect_stdout(errors):
            yield


@contextlib.contextmanager
def _descriptor_1_as(target: int, stdout: TextIO | None) -> Iterator[None]:
    if not _is_open(sys.__stdout__):  # the number may be that of any other file
        yield
        return
    _flush(stdout)
    kept = os.dup(1)
    try:
        os.dup2(target, 1)
        yield
    finally:
        _flush(stdout)
        os.dup2(kept, 1)
        os.close(kept)


def _is_open(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed


def _flush(stdout: TextIO | None) -> None:
    """Writes out what Python and C hold back, which would otherwise appear once descriptor 1 is another file."""
    with contextlib.suppress(OSError, ValueError):  # its reader is gone, or it is closed
        if stdout is not None:
            stdout.flush()
    with contextlib.suppress(OSError, ValueError):  # the C library has another name for it
        library = ctypes.CDLL(None)
        library.fflush(ctypes.c_void_p.in_dll(library, "stdout"))


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit code, 1 if the video could not be written."""
    options = _parser(argv[0]).parse_args(argv[1:])
    with _prints_to_stderr() if options.json else contextlib.nullcontext():
        result, failure = evaluate(options)
    print(json.dumps(result) if options.json else _table(result))
    if failure:
        warn(str(failure))
        return 1
    if options.video and not options.json:
        print(f"video of the first episode: {options.video}")
    if options.record and not options.json:
        print(f"recording of all episodes: {options.record}")
    return 0
