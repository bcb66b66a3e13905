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

from absl import flags

from gunreal.acting.episodes import MAX_STEPS, play, summarize
from gunreal.config import folders
from gunreal.config.flags import read
from gunreal.config.schema import FIELDS, Config, ConfigError
from gunreal.config.warning import warn
from gunreal.envs.step import AgentFailure
from gunreal.records.recordings import Writer
from gunreal.records.video import NotWritten, Recorder
from gunreal.run import Run, load


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    common: dict[str, Any] = {"flag_values": values}
    protocols = FIELDS["protocol"].metadata["choices"]
    flags.DEFINE_integer("episodes", 30, "Number of episodes to play", lower_bound=1, **common)
    flags.DEFINE_string("checkpoint", "newest", "Checkpoint to load: newest, best, a step, or a path", **common)
    flags.DEFINE_enum(
        "policy",
        "sample",
        ["sample", "argmax"],
        "Choice of actions, drawn from the policy (sample) or the most probable ones (argmax)",
        **common,
    )
    flags.DEFINE_enum("protocol", None, protocols, "Atari protocol (default: the run's own)", **common)
    flags.DEFINE_integer("seed", 1, "Random seed of the episodes", lower_bound=0, **common)
    flags.DEFINE_integer("max_steps", MAX_STEPS, "Maximum episode length in agent steps", lower_bound=1, **common)
    flags.DEFINE_string("video", None, "Name of an .mp4 file for a video of the first episode", **common)
    flags.DEFINE_string("record", None, "Folder of a new data set with the episodes, in Minari's format", **common)
    flags.DEFINE_boolean("json", False, "Output as one JSON object", **common)
    flags.DEFINE_string("logdir", Config.logdir, "Folder of runs, used if RUN is a name", **common)
    flags.DEFINE_boolean("help", False, "Show this help and exit", **common)
    values.set_gnu_getopt(True)
    return values


def _parse(argv: Sequence[str]) -> tuple[str, flags.FlagValues]:
    """The name of the run and the flags."""
    values = _define()
    rest = read(values, argv, list(values))
    if values.help:
        print(_usage(argv[0], values))
        raise SystemExit(0)
    if len(rest) != 1:
        raise ConfigError(f"give one run, as in `gunreal evaluate runs/NAME`; got {len(rest)}")
    return rest[0], values


def _usage(program: str, values: flags.FlagValues) -> str:
    lines = [f"usage: {program} RUN [--flag value] ...", "", "  RUN: a run's folder, or its name", ""]
    for name in sorted(values):
        default = values[name].default
        shown = f" (default {default})" if default not in (None, False) else ""
        lines.append(f"  --{name:<12} {values[name].help}{shown}")
    return "\n".join(lines)


def _open(name: str, values: flags.FlagValues) -> Run:
    """The run, with the configuration to evaluate it with."""
    folder = folders.find(name, values.logdir)
    run = load(folder, values.checkpoint)
    if values.protocol:
        if not run.config.env.startswith("ALE/"):
            raise ConfigError(f"--protocol applies to Atari games only, not to {run.config.env}; leave it out")
        run.config = dataclasses.replace(run.config, protocol=values.protocol)
    return run


def evaluate(name: str, values: flags.FlagValues) -> tuple[dict[str, Any], NotWritten | None]:
    """Plays the episodes. Returns the dict that `--json` prints, and why there is no video, if there should be one."""
    try:
        run = _open(name, values)
        about = {"run": str(run.path), "env": run.config.env, "checkpoint": str(run.checkpoint), "step": run.step}
    except FileNotFoundError as error:  # of a checkpoint; one that an environment raises is a failure of its own
        raise ConfigError(str(error)) from error
    about |= {"policy": values.policy, "protocol": run.config.protocol, "seed": values.seed}
    # Both reject a bad path before anything slow starts.
    recorder = Recorder(values.video, run) if values.video else None
    writer = Writer(values.record, run.spec, run.config.env) if values.record else None
    learner, sample = run.actor_critic, values.policy == "sample"
    options: dict[str, Any] = {"seed": values.seed, "sample": sample, "max_steps": values.max_steps}
    played, failure = [], None
    try:
        with recorder or contextlib.nullcontext(), writer or contextlib.nullcontext():
            options |= {"watch": recorder, "keep": writer.step if writer else None}
            for episode in play(learner, run.config, run.spec, values.episodes, **options):
                played.append(episode)
                if writer:
                    writer.end(episode)
                _show_progress(len(played), values.episodes)
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0 for success, 2 for invalid input, 130 if interrupted.

    It is 1 if the environment fails or the video could not be written.
    """
    try:
        name, values = _parse(argv or ["python -m gunreal.evaluate", *sys.argv[1:]])
        with _prints_to_stderr() if values.json else contextlib.nullcontext():
            result, failure = evaluate(name, values)
    except (ConfigError, AgentFailure) as error:
        warn(str(error))
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(result) if values.json else _table(result))
    if failure:
        warn(str(failure))
        return 1
    if values.video and not values.json:
        print(f"video of the first episode: {values.video}")
    if values.record and not values.json:
        print(f"recording of all episodes: {values.record}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
