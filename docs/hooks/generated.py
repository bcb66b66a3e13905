"""Parts of pages that are generated from the code, at `<!-- generated: configuration -->` and similar markers."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
from collections.abc import Callable
from typing import Any

from gunreal.__main__ import COMMANDS, main
from gunreal.config import usage
from gunreal.config.schema import FIELDS
from gunreal.records import metrics

_LIMITS = {"low": "at least {}", "above": "above {}", "high": "at most {}", "below": "below {}"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces the markers of a page. MkDocs calls this before it converts the page to HTML."""
    for name, generate in GENERATORS.items():
        marker = f"<!-- generated: {name} -->"
        if marker in markdown:
            markdown = markdown.replace(marker, generate())
    return markdown


def configuration() -> str:
    """A heading and a table for each section of `gunreal.Config`."""
    parts: list[str] = []
    for section, names in usage.sections().items():
        parts += [f"## {section}", "", "| name | default | meaning |", "|---|---|---|"]
        parts += [_row(name) for name in names]
        parts.append("")
    return "\n".join(parts)


def metrics_table() -> str:
    """The table of `gunreal.records.metrics`, with the sentences below it."""
    return inspect.cleandoc(metrics.__doc__ or "").partition("\n\n")[2]


def commands() -> str:
    """A heading and the help text of each command."""
    return "\n\n".join(f"## gunreal {name}\n\n```text\n{_help(name)}\n```" for name in COMMANDS)


def _help(command: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(["gunreal", command, "--help"])
    return printed.getvalue().strip()


def _row(name: str) -> str:
    field = FIELDS[name]
    meaning = [_escaped(field.metadata["help"])]
    if "choices" in field.metadata:
        meaning.append("one of " + ", ".join(f"`{choice}`" for choice in field.metadata["choices"]))
    rules = [words.format(field.metadata[rule]) for rule, words in _LIMITS.items() if rule in field.metadata]
    if rules:
        meaning.append(" and ".join(rules))
    return f"| `{name}`{{ #{name} }} | {_default(field)} | {'<br>'.join(meaning)} |"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING or field.default in ("", ()):
        return "*empty*"
    value = field.default
    return f"`{str(value).lower() if isinstance(value, bool) else f'{value:,}' if isinstance(value, int) else value}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


GENERATORS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "configuration": configuration,
    "metrics": metrics_table,
}
