from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import gunreal.__main__ as command


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "gunreal", *words], capture_output=True, text=True)


def test_without_a_command_it_lists_the_commands(capsys):
    assert command.main(["/bin/gunreal"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: gunreal COMMAND") and all(f"\n  {name} " in text for name in command.COMMANDS)


def test_version(capsys):
    assert command.main(["/bin/gunreal", "--version"]) == 0
    assert capsys.readouterr().out == f"gunreal {importlib.metadata.version('gunreal')}\n"


def test_the_exit_code_of_a_training_reaches_the_shell():
    done = run("train", "--t_max", "0")
    assert (done.returncode, done.stdout) == (2, "") and "t_max is 0" in done.stderr


@pytest.mark.parametrize("name", [*command.COMMANDS])
def test_help_names_the_command_as_it_was_called(capsys, name):
    assert command.main(["/bin/gunreal", name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: gunreal {name}")


def test_help_of_the_module():
    done = subprocess.run([sys.executable, "-m", "gunreal.train", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: python -m gunreal.train ")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--helpfull"], ["catch", "--help"], ["catch", "--helpfull"]])
def test_the_help_of_resume_lists_what_may_change(capsys, words):
    assert command.main(["gunreal", "resume", *words]) == 0
    text = capsys.readouterr().out
    assert "--steps" in text and "--logdir" in text and "--task_weight" in text and "--discount" not in text
    assert "keep their values" in text and "(default" not in text and "--helpfull" not in text


@pytest.mark.parametrize(
    ("words", "reader", "read"),
    [
        ("envs", "head -1", "Small games of gunreal\n"),
        ("envs", "true", ""),
        ("--help", "true", ""),
        ("runs --help", "true", ""),
    ],
)
def test_a_closed_pipe_is_no_error(words, reader, read):
    done = subprocess.run(f"{sys.executable} -m gunreal {words} | {reader}", shell=True, capture_output=True, text=True)
    assert done.stdout == read and done.stderr == ""


def test_a_folder_that_is_gone_is_no_error(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert command.main(["gunreal", "runs", "--logdir", str(tmp_path)]) == 0


def test_a_pipe_that_an_environment_breaks_is_an_error(monkeypatch, capsys):
    """It is not the closed output of the command."""

    def run(command, argv):
        raise BrokenPipeError("the game has gone")

    monkeypatch.setattr(command, "_run", run)
    with pytest.raises(BrokenPipeError, match="the game has gone"):
        command.main(["gunreal", "evaluate", "run"])


def test_an_interruption_while_modules_are_loaded_is_no_traceback(monkeypatch, capsys):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.importlib, "import_module", interrupt)
    assert command.main(["gunreal", "plot", "run"]) == 130
    assert capsys.readouterr().err == "gunreal: interrupted\n"
