"""Compares the speed of gunreal with other systems' on the same cores: `python tools/compare_peers.py [-- FLAGS]`.

Each system that can be imported trains on Pong in turn, in a process of its own, with the same network and the same
protocol (`tools/peers.py` says which). Rounds go forth and back (A B C C B A); their medians are compared.
A system in another virtual environment is named with --python. FLAGS go to every gunreal.
Exit code: 0; 1 where a system that is present failed; 2 where the input was bad.

A system may be measured with other settings of its own, which finds its best ones:

  python tools/compare_peers.py --peers sb3,sb3:threads=1,sb3:envs=16:n_steps=5 --python sb3=~/venvs/peers/bin/python
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import peers
from command_line import Parser
from gauge import Failed, Gauge

from gunreal.config.flags import from_flags
from gunreal.config.schema import ConfigError, close_match

DRIVERS = Path(__file__).with_name("peers.py")
COMPARED = ("rate", "cpu_ms", "memory")
NOISE = 0.05  # share of the cores that others may take before the figures are called in doubt


class Contestant(NamedTuple):
    """A system with its settings.

    Attributes:
      label: as it was named: `sb3:threads=1`.
      name: the key of `peers.PEERS`.
      settings: its driver's keyword arguments that are not its defaults.
      python: its interpreter.
    """

    label: str
    name: str
    settings: dict[str, Any]
    python: str

    @property
    def is_ours(self) -> bool:
        """Whether it is this library."""
        return peers.PEERS[self.name].flags is not None

    def command(self) -> list[str]:
        """Starts its driver."""
        return [self.python, str(DRIVERS), self.name, "--settings", json.dumps(self.settings)]


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[Contestant]]:
    """The options, and who is compared.

    Raises:
      ConfigError: a bad option.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    known = "\n".join(f"  {name:<14} {peer.title}; settings: {_settings(name)}" for name, peer in peers.PEERS.items())
    parser = Parser("compare_peers.py", __doc__, epilog=f"systems:\n{known}")
    parser.add_argument(
        "--peers", default=",".join(peers.PEERS), metavar="A,B", help="who, in this order (default all)"
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="interpreter of a system (default this one)"
    )
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="measurements of each (default 4)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="of a measurement (default 30)")
    parser.add_argument("--warmup", type=float, default=10.0, metavar="S", help="before it (default 10)")
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="that each may use (default 2)")
    parser.add_argument("--json", default="", metavar="FILE", help="for the results")
    args = parser.parse_args(argv[:end])
    if args.rounds < 1 or args.seconds <= 0 or args.warmup < 0:
        raise ConfigError("rounds has to be at least 1, seconds above 0 and warmup at least 0; correct them")
    if args.json and not Path(args.json).resolve().parent.is_dir():
        raise ConfigError(f"the folder of --json {args.json} does not exist; make it, or name another")
    pythons = dict(_interpreter(text) for text in args.python)
    labels = args.peers.split(",")
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise ConfigError(f"{twice[0]} is named twice; leave one out of --peers")
    return args, [_contestant(label, pythons, argv[end + 1 :]) for label in labels]


def _settings(name: str) -> str:
    peer = peers.PEERS[name]
    own = "any training flag" if peer.flags is not None else ""
    return own or ", ".join(f"{key}={value:d}" for key, value in peers.settings(peer.drive).items())


def _known(name: str) -> str:
    if name not in peers.PEERS:
        hint = close_match(name, peers.PEERS) or f"; choose among {', '.join(peers.PEERS)}"
        raise ConfigError(f"unknown system {name!r}{hint}")
    return name


def _interpreter(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    python = shutil.which(os.path.expanduser(path))
    if python is None:
        raise ConfigError(f"--python {text}: {path or 'nothing'} is no program; write --python {name}=/path/bin/python")
    return _known(name), python


def _contestant(label: str, pythons: Mapping[str, str], rest: Sequence[str]) -> Contestant:
    name, *words = label.split(":")
    peer = peers.PEERS[_known(name)]
    if peer.flags is not None:
        flags = [*peer.flags, *rest, *(f"--{word}" for word in words)]
        from_flags([name, *flags])  # raises ConfigError before anything starts
        chosen: dict[str, Any] = {"flags": flags}
    else:
        chosen, default = {}, peers.settings(peer.drive)
        for word in words:
            key, _, value = word.partition("=")
            try:
                chosen[key] = type(default[key])(int(value))
            except (KeyError, ValueError):
                raise ConfigError(f"{label}: write whole numbers for {_settings(name)}; not {word!r}") from None
    return Contestant(label, name, chosen, pythons.get(name, sys.executable))


def describe(contestant: Contestant) -> dict[str, Any]:
    """The `versions` that the contestant is made of, and all its `settings`.

    Raises:
      Failed: it can't be imported; the message is the reason.
    """
    probe = subprocess.run(contestant.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if probe.returncode:
        raise Failed((probe.stderr or probe.stdout).strip().rpartition("\n")[2] or f"code {probe.returncode}")
    return json.loads(probe.stdout.strip().rpartition("\n")[2])


def measure(contestant: Contestant, warmup: float, seconds: float) -> dict[str, Any]:
    """One measurement: see `Gauge.measure`. Raises Failed."""
    with (
        tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder,
        Gauge(contestant.command(), Path(folder)) as gauge,
    ):
        return gauge.measure(warmup, seconds)


def compare(contestants: Sequence[Contestant], rounds: int, warmup: float, seconds: float) -> dict[str, dict[str, Any]]:
    """Measures the contestants in turn, forth and back; says each figure on standard error.

    Returns:
      By label: `versions`, `settings` and `rounds`, or why it is `absent` or has `failed`.
    """
    results: dict[str, dict[str, Any]] = {}
    for contestant in contestants:
        row = results[contestant.label] = {
            "title": peers.PEERS[contestant.name].title,
            "is_ours": contestant.is_ours,
        }
        try:
            row |= describe(contestant) | {"rounds": []}
        except Failed as error:
            row["absent"] = f"{error}; {peers.PEERS[contestant.name].install}"
            if contestant.python == sys.executable and not contestant.is_ours:
                row["absent"] += f", and --python {contestant.name}=PATH where that is not here"
    for number in range(rounds):
        for contestant in contestants if number % 2 == 0 else reversed(contestants):
            row = results[contestant.label]
            if "absent" in row or "failed" in row:
                continue
            try:
                found = measure(contestant, warmup, seconds)
            except Failed as error:
                row["failed"] = str(error)
                say(f"round {number + 1}: {contestant.label} {error}")
                continue
            row["rounds"].append(found)
            figures = f"{found['rate']:,.0f} agent steps/s, {found['cpu_ms']:.2f} CPU ms a step"
            say(f"round {number + 1}: {contestant.label} {figures}; others took {found['others']:.0%} of the cores")
    return results


def summarise(results: dict[str, dict[str, Any]]) -> str | None:
    """Adds `median`s over the rounds, and their `ratio`s to the fastest system that is not ours.

    Returns:
      That system's label; None if there is none.
    """
    good = {label: row for label, row in results.items() if row.get("rounds") and "failed" not in row}
    for row in good.values():
        row["median"] = {key: statistics.median(found[key] for found in row["rounds"]) for key in row["rounds"][0]}
    rates = {label: row["median"]["rate"] for label, row in good.items() if not row["is_ours"]}
    best = max(rates, key=lambda label: rates[label], default=None)
    if best is not None:
        reference = good[best]["median"]
        for row in good.values():
            row["ratio"] = {key: row["median"][key] / reference[key] for key in COMPARED}
    return best


def table(results: Mapping[str, Mapping[str, Any]], best: str | None) -> str:
    """The results as text."""
    width = max(len("gunreal-tasks"), *(len(label) for label in results)) + 2
    heads = ("agent steps/s", "x best peer", "CPU ms/step", "x", "memory MB", "x", "others %")
    lines = [" " * width + "".join(f"{head:>15}" for head in heads)]
    notes = [f"best peer: {best}" if best else "no peer was measured, so there is nothing to compare with"]
    for label, row in results.items():
        for state in ("absent", "failed"):
            if state in row:
                notes.append(f"{label} ({row['title']}) {state}: {row[state]}")
        if "median" not in row:
            continue
        median, ratio = row["median"], row.get("ratio")
        shown = {"rate": f"{median['rate']:,.0f}", "cpu_ms": f"{median['cpu_ms']:.2f}"}
        shown["memory"] = f"{median['memory'] / 1e6:,.0f}"
        cells = [cell for key in COMPARED for cell in (shown[key], f"{ratio[key]:.2f}" if ratio else "-")]
        cells.append(f"{100 * median['others']:.0f}")
        lines.append(f"{label:<{width}}" + "".join(f"{cell:>15}" for cell in cells))
        if median["others"] > NOISE:
            notes.append(
                f"{label}: other programs took {median['others']:.0%} of the cores; measure on a quiet machine"
            )
    return "\n".join([*lines, *notes])


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def on_cores(count: int) -> Iterator[None]:
    """This process and those that it starts use so many cores.

    Raises:
      ConfigError: there are not so many.
    """
    allowed = os.sched_getaffinity(0)
    if not 0 < count <= len(allowed):
        raise ConfigError(f"cores is {count}, but this process may use 1 to {len(allowed)}; correct --cores")
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def main(argv: Sequence[str]) -> int:
    """The command; returns the exit code."""
    try:
        args, contestants = parse(argv)
        with on_cores(args.cores):
            results = compare(contestants, args.rounds, args.warmup, args.seconds)
    except ConfigError as error:
        say(f"compare_peers.py: {error}")
        return 2
    except KeyboardInterrupt:
        say("compare_peers.py: interrupted")
        return 128 + signal.SIGINT
    best = summarise(results)
    print(table(results, best))
    if args.json:
        whole = {"cores": args.cores, "seconds": args.seconds, "warmup": args.warmup, "best_peer": best}
        Path(args.json).write_text(json.dumps(whole | {"systems": results}, indent=1) + "\n")
    return 1 if any("failed" in row for row in results.values()) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
