"""The progress of a run on the screen: a live panel in a terminal, and one line per metrics line elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gunreal.config.schema import Config
from gunreal.config.warning import warn

_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 4096


class _Console(Console):
    """Standard output. It leaves the program running if its reader is gone, as in `gunreal train | head`."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("nothing reads standard output")


class Display:
    """A context manager that shows the snapshots of `RunMetrics`, by default on standard output.

    Its errors never stop training.
    """

    def __init__(self, config: Config, console: Console | None = None):
        self._config = config
        # The variable FORCE_COLOR makes rich take a file for a terminal.
        is_file = sys.stdout is None or not sys.stdout.isatty()
        self._console = console or _Console(force_terminal=False if is_file else None)
        self._scores: deque[float] = deque(maxlen=_POINTS)
        self._first: tuple[int, float] | None = None  # step and seconds at the first snapshot since the start or resume
        self._live: Live | None = None
        self._broken = False

    def __enter__(self) -> Display:
        if self._console.is_terminal and not self._console.is_dumb_terminal:  # on which rich would draw nothing
            with self._guard():
                self._live = Live(console=self._console, auto_refresh=False, transient=False)
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with self._guard():
                self._live.stop()
            self._live = None

    def update(self, snapshot: Mapping[str, Any]) -> None:
        """Shows one snapshot."""
        with self._guard():
            if self._broken:
                return
            self._first = self._first or (snapshot["step"], snapshot["seconds"])
            if snapshot.get("score_mean") is not None:
                self._scores.append(snapshot["score_mean"])
            if self._live is not None:
                self._live.update(self.render(snapshot), refresh=True)
            else:
                self._console.out(self.line(snapshot), highlight=False)
                self._console.file.flush()
        if snapshot.get("eval_step") is not None:
            mean, std = _number(snapshot["eval_score_mean"]), _number(snapshot["eval_score_std"])
            self.message(f"evaluation of step {snapshot['eval_step']:,}: score {mean} (standard deviation {std})")

    def message(self, text: str) -> None:
        """Prints a line, above the panel if there is one."""
        with self._guard():
            if not self._broken:
                self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def _guard(self) -> Any:
        try:
            yield
        except Exception as error:  # such as a closed pipe or an odd terminal size; training continues
            if not self._broken:
                self._broken = True
                warn(f"the display stopped ({error!r}); see metrics.jsonl")

    def eta(self, snapshot: Mapping[str, Any]) -> float | None:
        """Seconds until the budget is used up, at the mean speed since the start or resume. None if unknown."""
        step, seconds = self._first or (0, 0.0)
        done, taken = snapshot["step"] - step, snapshot["seconds"] - seconds
        speed = done / taken if done > 0 and taken > 0 else snapshot.get("pps") or 0.0
        return max(0, self._config.steps - snapshot["step"]) / speed if speed > 0 else None

    def line(self, s: Mapping[str, Any]) -> str:
        """One line of plain text, with the same aligned columns every time."""
        score, best = (f"{_number(s.get(key)):>8}" for key in ("score_mean", "score_max"))
        losses = " ".join(f"{name}={_number(value, 4)}" for name, value in _losses(s))
        return (
            f"{_count(s['step']):>7}/{_count(self._config.steps)} {_share(s, self._config):>4.0%}  "
            f"{_time(s['seconds']):>8} left {_time(self.eta(s)):>8}  pps {_number(s.get('pps'), 0):>7}  "
            f"tps {_number(s.get('tps'), 0):>7}  score {score} max {best} "
            f"({s.get('episodes') or 0:>6} ep)  lag {_number(s.get('policy_lag'), 1):>5}  "
            f"N {s.get('agents')}/{s.get('predictors')}/{s.get('trainers')}  {_memory(s)}  {losses}"
            f"{_skipped(s)}"
        ).rstrip()

    def render(self, s: Mapping[str, Any]) -> RenderableType:
        """The live panel."""
        config = self._config
        title = Text.assemble((" gunreal ", "bold reverse cyan"), " ", (self._config.name, "bold"))
        env = Text.assemble((config.env, "bold green"), "  tasks ", (", ".join(config.tasks) or "none", "magenta"))
        width = max(20, min(self._console.width, 100) - 6)
        tables = [self._speed(s), self._system(s), self._learning(s)]
        columns = Table.grid(padding=(0, 4))
        if width >= 70:
            columns.add_row(*tables)
        else:
            for table in tables:
                columns.add_row(table)
        parts: list[RenderableType] = [env, Text(), self._progress(s), Text(), self._score(s, width), Text(), columns]
        if "nodes" in s:
            parts += [Text(), _nodes(s)]
        return Panel(
            Group(*parts), title=title, title_align="left", border_style="cyan", width=min(self._console.width, 100)
        )

    def _progress(self, s: Mapping[str, Any]) -> RenderableType:
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(ratio=1)
        row.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(total=1.0, completed=_share(s, self._config), complete_style="cyan", finished_style="green")
        row.add_row(
            bar,
            Text.assemble(
                (f"{_share(s, self._config):.1%}", "bold"),
                f"  {_count(s['step'])} of {_count(self._config.steps)} steps  {_time(s['seconds'])} taken  ",
                (f"{_time(self.eta(s))} left", "bold"),
            ),
        )
        return row

    def _score(self, s: Mapping[str, Any], width: int) -> RenderableType:
        episodes = s.get("episodes") or 0
        text = Text.assemble(
            ("score ", "dim"),
            (_number(s.get("score_mean")), "bold yellow"),
            ("  max ", "dim"),
            _number(s.get("score_max")),
            (f"  of the last {min(100, episodes)} of {episodes:,} episodes", "dim"),
        )
        return Group(text, Text(sparkline(self._scores, width), "yellow", no_wrap=True))

    def _speed(self, s: Mapping[str, Any]) -> Table:
        rows = [("PPS", _number(s.get("pps"), 0)), ("TPS", _number(s.get("tps"), 0))]
        rows += [("policy lag", f"{_number(s.get('policy_lag'), 1)}  max {_number(s.get('policy_lag_max'), 0)}")]
        rows += [("updates", f"{s.get('updates') or 0:,}")]
        rows += [(name, str(s[name])) for name in ("skipped", "restarts") if s.get(name)]
        return _pairs("speed", rows)

    def _system(self, s: Mapping[str, Any]) -> Table:
        rows = [
            ("N_A N_P N_T", f"{s.get('agents')}  {s.get('predictors')}  {s.get('trainers')}"),
            ("memory", _memory(s)),
        ]
        names = [key.removeprefix("queue_") for key in s if key.startswith("queue_")]
        for name in names:
            rows += [(f"queue {name}", f"{_number(s[f'queue_{name}'], 0)}  batch {_number(s.get(f'batch_{name}'), 0)}")]
        return _pairs("system", rows)

    def _learning(self, s: Mapping[str, Any]) -> Table:
        rows = [(f"loss {name}", _number(value, 4)) for name, value in _losses(s)]
        rows += [("entropy", _number(s.get("entropy"), 3)), ("gradient", _number(s.get("grad_norm"), 3))]
        rate = s.get("learning_rate")
        return _pairs("learning", [*rows, ("rate", "-" if rate is None else f"{rate:.2e}")])


def sparkline(values: Any, width: int) -> str:
    """Draws `values`, oldest first, with at most `width` block characters. More values are averaged in equal parts."""
    values = list(values)
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in zip(edges, edges[1:], strict=False)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in values)


def _skipped(s: Mapping[str, Any]) -> str:
    return f"  {s['skipped']:,} updates skipped, because they were not finite" if s.get("skipped") else ""


def _nodes(s: Mapping[str, Any]) -> Table:
    """A row for each node of a cluster."""
    table = Table.grid(padding=(0, 3))
    for _ in range(4):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(name, "dim") for name in ("node", "PPS", "lag", "rounds missed")))
    for key in s:
        if key.startswith("node") and key.endswith("_pps"):
            node = key.removesuffix("_pps")
            values = _number(s[key], 0), _number(s[f"{node}_lag"], 1), str(s[f"{node}_missed"])
            table.add_row(node.removeprefix("node"), *values)
    return table


def _pairs(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(Text(title, "bold not dim underline"), "")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _losses(s: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key.removeprefix("loss_"), value) for key, value in s.items() if key.startswith("loss_")]


def _share(s: Mapping[str, Any], config: Config) -> float:
    return min(1.0, s["step"] / config.steps)


def _number(value: Any, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _count(value: float) -> str:
    rounded = float(f"{value:.3g}")  # before the unit is chosen, because 999,500 is 1M and not 1000k
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rounded >= scale:
            return f"{rounded / scale:.3g}{unit}"
    return f"{value:.0f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours // 24}d {hours % 24:02}h" if hours >= 100 else f"{hours}:{minute:02}:{second:02}"


def _memory(s: Mapping[str, Any]) -> str:
    if s.get("memory_bytes") is None:
        return "-"
    used, limit = s["memory_bytes"] / 2**30, (s.get("memory_limit") or 0) / 2**30
    return f"{used:.1f}/{limit:.1f} GiB {used / limit:>3.0%}" if limit else f"{used:.1f} GiB"
