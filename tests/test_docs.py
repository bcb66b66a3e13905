"""The README and the pages of `docs/`: every code block that can run is run, and generated pages are complete."""

from __future__ import annotations

import configparser
import contextlib
import csv
import dataclasses
import importlib.util
import io
import re
import shlex
import textwrap
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

import gunreal
from gunreal import evaluate, export, hub, plot, runs, sweep, watch
from gunreal.__main__ import COMMANDS, LISTS
from gunreal.compare import _parser as compare_parser
from gunreal.config import flags, plugins, sweeps
from gunreal.config.checks import check
from gunreal.config.files import load, save
from gunreal.config.objective import OBJECTIVE
from gunreal.config.schema import FIELDS, Config
from gunreal.learning.registry import NETWORK
from gunreal.records import metrics
from gunreal.tasks.registry import TASK

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK, FENCE = r"(?P<mark><!-- not run: .+ -->\n)?", r"^(?P<margin> *)```(?P<language>\w+)(?P<title>.*)\n"
BLOCK = re.compile(MARK + FENCE + r"(?P<text>(?s:.*?))^(?P=margin)```$", re.M)
TINY = {
    "steps": 200,
    "runner": "serial",
    "agents": 2,
    "agents_per_process": 2,
    "t_max": 5,
    "min_batch": 20,
    "hidden": 8,
    "frame_size": 36,
}
PLUGINS = {name for kind in (TASK, NETWORK, OBJECTIVE) for name in plugins.available(kind)}
PARSERS = {
    "evaluate": evaluate._parser,
    "plot": plot._parser,
    "compare": compare_parser,
    "watch": watch._parser,
    "runs": runs._parser,
    "export": export._parser,
    "push": hub.push_arguments,
    "pull": hub.pull_arguments,
}
# Programs of others; their arguments are theirs to check.
OTHERS = {"export", ".ci/wheels", "twine", "git", "cd", "source", "ruff", "mypy", "lint-imports", "mkdocs", "pytest"}
OTHERS |= {"dmlab-gym"}


class Block(NamedTuple):
    """A code block that is to run."""

    title: str
    text: str


def blocks(page: Path, language: str) -> list[Block]:
    """The blocks of one language that are not marked, in their order."""
    found = []
    for match in BLOCK.finditer(page.read_text()):
        if match["language"] == language and not match["mark"]:
            title = re.search(r'title="(.*?)"', match["title"])
            found.append(Block(title[1] if title else "", textwrap.dedent(match["text"])))
    return found


def commands(page: Path) -> list[list[str]]:
    """The words of every command, without variables before it."""
    found = []
    for block in blocks(page, "bash"):
        for line in block.text.replace("\\\n", " ").splitlines():
            for command in re.split(r"\s&&\s", line):
                words = shlex.split(command, comments=True)
                while words and re.match(r"[A-Z_]+=", words[0]):
                    words.pop(0)
                found += [words] if words else []
    return found


def with_language(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def help_of(tool: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        importlib.import_module(Path(tool).stem).main(["--help"])
    return said.getvalue()


@cache
def generated(hook: str = "generated"):
    path = ROOT / "docs" / "hooks" / f"{hook}.py"
    spec = importlib.util.spec_from_file_location(hook, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_run(path: Path) -> None:
    """The folder of a run that a page takes as there."""
    path.mkdir(parents=True, exist_ok=True)
    save(Config(), path / "config.toml")
    (path / metrics.FILE).write_text('{"step": 10, "score_mean": 0.5, "policy_lag": 1.0}\n')


def check_train(words: list[str], folder: Path) -> None:
    """Parses a training's flags; runs that it resumes and files that an earlier command wrote are put there."""
    given = dict(zip(words, words[1:], strict=False))
    if "--resume" in given:
        write_run(folder / "runs" / given["--resume"])
    if "--config" in given and (path := folder / given["--config"]).parent.name != "configs":
        path.touch()
    try:
        flags.from_flags(["train", *words])
    except SystemExit as stopped:
        assert stopped.code == 0 and "--help" in words


def check_tool(tool: str, words: list[str], folder: Path) -> None:
    """Every flag is the tool's own, or a training's."""
    assert (ROOT / tool).is_file(), f"{tool} does not exist"
    end = words.index("--") if "--" in words else len(words)
    own = help_of(tool)
    for flag in (word.partition("=")[0] for word in words[:end] if word.startswith("--")):
        assert re.search(rf"{flag}\b", own) or flag[2:] in FIELDS, f"{tool} has no {flag}"
    check_train(words[end + 1 :], folder)


def check_command(words: list[str], folder: Path) -> None:
    match words:
        case ["gunreal"] | ["gunreal", "doctor"]:
            pass
        case ["gunreal", "train", *rest]:
            check_train(rest, folder)
        case ["gunreal", "resume", run, *rest]:
            check_train(["--resume", run, *rest], folder)
        case ["gunreal", "sweep", *_]:
            sweep._parse(words[1:])
        case ["gunreal", command, *rest] if command in PARSERS:
            PARSERS[command](command).parse_args(rest)
        case ["gunreal", command, *rest]:
            assert command in LISTS
            check_train([word for word in rest if word not in PLUGINS], folder)
        case ["python", "-m", "venv", _]:
            pass
        case ["python", "-c", text]:
            compile(text, "-c", "exec")
        case ["python", tool, *rest] if tool.startswith("tools/"):
            check_tool(tool, rest, folder)
        case [program, "install", *rest] if program.endswith("pip"):
            settings = configparser.ConfigParser()
            settings.read(ROOT / "setup.cfg")
            extras = {extra for word in rest for extra in re.findall(r"^\.\[(.+)\]$", word)}
            assert {x for extra in extras for x in extra.split(",")} <= set(settings["options.extras_require"])
        case [program, *_]:
            assert program in OTHERS, f"{program}: mark the block if it can't be run"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with the repository's configurations, in which a page's blocks run."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("page", with_language("bash"), ids=name)
def test_commands(page, folder):
    """The files that the page shows are there."""
    for block in blocks(page, "python"):
        if block.title:
            (folder / block.title).write_text(block.text)
    for words in commands(page):
        try:
            check_command(words, folder)
        except Exception as error:
            pytest.fail(f"{shlex.join(words)}: {error}")


@pytest.mark.parametrize("page", with_language("python"), ids=name)
def test_python(page, folder, monkeypatch):
    """A page's blocks run one after the other, trainings on a tiny budget; a block with a title is a file, too."""
    train = gunreal.train
    monkeypatch.setattr(
        gunreal, "train", lambda config, **options: train(dataclasses.replace(config, **TINY), show=False, **options)
    )
    if "gunreal.train(" not in page.read_text():
        write_run(folder / "runs" / "catch")
    variables: dict = {"__name__": page.stem}
    for block in blocks(page, "python"):
        if block.title:
            (folder / block.title).write_text(block.text)
        else:
            exec(compile(block.text, str(page), "exec"), variables)


@pytest.mark.parametrize("page", with_language("toml"), ids=name)
def test_toml(page, folder):
    for block in blocks(page, "toml"):
        keys = tomllib.loads(block.text).keys()
        (folder / "run.toml").write_text(block.text)
        if "settings" in keys:
            for planned in sweeps.load(folder / "run.toml", {}, {}).runs:
                check(planned.config)
        elif "project" not in keys:
            check(Config(**load(folder / "run.toml")))


def test_the_task_of_the_readme_is_the_example():
    (block,) = [block for block in blocks(ROOT / "README.md", "python") if block.title]
    example = (ROOT / "examples" / "gunreal-inverse" / block.title).read_text()
    assert block.text == example


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_links_and_pictures_of_the_readme_are_there():
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text())
    assert links and not [link for link in links if "://" not in link and not (ROOT / link).exists()]


def test_every_diagram_has_its_picture():
    diagrams = generated("diagrams")
    wanted = {diagrams.picture(text) for page in PAGES for text in diagrams.BLOCK.findall(page.read_text())}
    assert wanted == set(diagrams.FOLDER.glob("*.svg"))


def test_the_configuration_page_has_every_field():
    page = generated().on_page_markdown("<!-- generated: configuration -->")
    assert re.findall(r"^\| `(\w+)`", page, re.M) == list(FIELDS)
    assert "| `24` |" in next(line for line in page.splitlines() if line.startswith("| `agents`"))


def test_the_metrics_page_explains_every_key():
    page = generated().on_page_markdown("<!-- generated: metrics -->")
    explained = set(re.findall(r"`(\w+)`", page))
    line = metrics.RunMetrics(("base", "pc"), ("pc",)).snapshot({}, {})
    shown = {re.sub(r"^(queue|batch|loss)_\w+$", r"\1_NAME", key) for key in line}
    assert shown <= explained


def test_the_architecture_page_describes_every_file():
    page = generated().on_page_markdown("<!-- generated: files -->")
    described = re.findall(r"^\| `(\w+\.py)` \| \S", page, re.M)
    folders = ROOT / "gunreal", ROOT / "emulator" / "gunreal_emulator"
    files = [path.name for folder in folders for path in folder.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(described) == sorted(files)


def test_the_commands_page_has_the_help_of_every_command():
    page = generated().on_page_markdown((ROOT / "docs" / "commands.md").read_text())
    for name in COMMANDS:
        assert re.search(rf"^## gunreal {name}\n\n```text\nusage: gunreal {name}\b", page, re.M), name


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.csv")), ids=name)
def test_a_page_shows_every_row_of_a_file_or_links_the_file(path):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(None not in row and None not in row.values() for row in rows), "a row has too many or too few cells"
    texts = [page.read_text() for page in path.parent.glob("*.md")]
    markers = [found[0] for text in texts for found in re.finditer(rf"<!-- table: {path.name}\b.*", text)]
    assert markers or any(f"]({path.name})" in text for text in texts)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="results/page.md"))
    for marker in markers:
        lines = generated().on_page_markdown(marker, page).splitlines()
        tables = sum(line.startswith("| ---") for line in lines)
        assert tables and sum(line.startswith("|") for line in lines) == len(rows) + 2 * tables


def test_every_cited_paper_is_in_the_references():
    table = (ROOT / "docs" / "references.md").read_text()
    cited = {
        match
        for path in [*PAGES, *(ROOT / "gunreal").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
        for match in re.findall(r"\b([A-Z][a-z-]+) et al\.,? \(?((?:19|20)\d\d)", path.read_text())
    }
    assert ("Jaderberg", "2017") in cited
    assert not {f"{name} et al. {year}" for name, year in cited if f"{name} et al. {year} |" not in table}
