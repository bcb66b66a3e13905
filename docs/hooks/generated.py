"""Parts of pages that are generated.

`<!-- generated: configuration -->` and similar markers stand for parts that come from the code.
`<!-- table: NAME.csv -->` stands for the table in this file beside the page, and
`<!-- table: NAME.csv by COLUMN -->` for one table, with a heading, for each value of this column. A new row of the file
needs no change of the page.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import csv
import dataclasses
import inspect
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gunreal.__main__ import COMMANDS, main
from gunreal.config import folders
from gunreal.config.schema import FIELDS, GROUPS
from gunreal.records import card, metrics
from gunreal.tasks.recommended import KNOWN

DOCS = Path(__file__).parents[1]
_TABLE = re.compile(r"^<!-- table: (\S+)(?: by (\w+))? -->$", re.M)
_LIMITS = {"low": "at least {}", "above": "above {}", "high": "at most {}", "below": "below {}"}


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    """Replaces the markers of a page. MkDocs calls this before it converts the page to HTML."""
    if page:
        folder = (DOCS / page.file.src_uri).parent
        markdown = _TABLE.sub(lambda found: table(folder / found[1], found[2]), markdown)
    for name, generate in GENERATORS.items():
        marker = f"<!-- generated: {name} -->"
        if marker in markdown:
            markdown = markdown.replace(marker, generate())
    return markdown


def table(path: Path, by: str | None = None) -> str:
    """The rows of a CSV file. A cell is Markdown, or flags of a command if it begins with two hyphens."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not by:
        return _rows(rows, list(rows[0]))
    columns = [column for column in rows[0] if column != by]
    groups = dict.fromkeys(row[by] for row in rows)
    return "\n\n".join(f"## {group}\n\n{_rows([row for row in rows if row[by] == group], columns)}" for group in groups)


def _rows(rows: list[dict[str, str]], columns: list[str]) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(row[column]) for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    text = f"`{text}`" if text.startswith("--") else text.replace("|", "\\|")
    return re.sub(r"`--[^`]*`", lambda flags: flags[0].replace(" --", "` `--"), text)  # a line breaks between flags


def configuration() -> str:
    """A heading and a table for each section of `gunreal.Config`."""
    parts: list[str] = []
    for group, names in GROUPS.items():
        parts += [f"## {group.__name__}", "", "| name | default | meaning |", "|---|---|---|"]
        parts += [_row(name) for name in names]
        parts.append("")
    return "\n".join(parts)


def metrics_table() -> str:
    """The table of `gunreal.records.metrics`, with the sentences below it."""
    return inspect.cleandoc(metrics.__doc__ or "").partition("\n\n")[2]


def commands() -> str:
    """A heading and the help text of each command."""
    return "\n\n".join(f"## gunreal {name}\n\n```text\n{_help(name)}\n```" for name in COMMANDS)


def files() -> str:
    """A heading and a table for each package of the library and for the emulator, with the first text of each file."""
    settings = configparser.ConfigParser()
    settings.read(DOCS.parent / "setup.cfg")
    layers = settings["importlinter:contract:packages"]["layers"].split()
    library, emulator = DOCS.parent / "gunreal", DOCS.parent / "emulator" / "gunreal_emulator"
    packages = [library, *(library / name for name in layers if (library / name).is_dir()), emulator]
    return "\n\n".join(map(_package, packages))


def _package(folder: Path) -> str:
    rows = [
        {"file": f"`{path.name}`", "contents": _about(path)}
        for path in sorted(folder.glob("*.py"))
        if path.name != "__init__.py"
    ]
    return f"### {folder.name}\n\n{_about(folder / '__init__.py')}\n\n{_rows(rows, ['file', 'contents'])}"


def _about(path: Path) -> str:
    """The first paragraph of a file's docstring."""
    return " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0].split())


def recommended_tasks() -> str:
    """A table of what `--tasks auto` takes."""
    rows = ["| environments | tasks | because |", "|---|---|---|"]
    for start, (tasks, evidence, page) in KNOWN.items():
        names = f"`{','.join(tasks)}`" if tasks else "none"
        rows.append(f"| `{start}*` | {names} | [{evidence}](results/{page}) |")
    return "\n".join(rows)


def benchmark() -> str:
    """A table of the agents in the folder `zoo`."""
    rows = ["| agent | environment | agent steps | score | command |", "|---|---|---|---|---|"]
    for name, folder in folders.zoo().items():
        config, step, scores, command = card.read(folder)
        score = f"{scores['mean']:,.2f} ± {scores['std']:,.2f}"
        rows.append(f"| `{folders.ZOO}{name}` | {config.env} | {step:,} | {score} | `{command}` |")
    return "\n".join(rows)


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
    "benchmark": benchmark,
    "commands": commands,
    "configuration": configuration,
    "files": files,
    "metrics": metrics_table,
    "recommended": recommended_tasks,
}
