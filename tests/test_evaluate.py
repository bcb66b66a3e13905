from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from trained import catch_run

from gunreal.__main__ import main
from gunreal.acting.episodes import Episode, play
from gunreal.config.files import load, save
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.make import describe
from gunreal.evaluate import summarize

TENS = Config(env="trained:Tens-v0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return catch_run(tmp_path_factory.getbasetemp())


def command(*argv):
    return main(["gunreal", "evaluate", *map(str, argv)])


def test_summary():
    played = [Episode(1, 5, 4.0, 20, True), Episode(0, 6, 1.0, 10, False), Episode(2, 7, -2.0, 60, False)]
    found = summarize(played)
    assert found["scores"] == [1.0, 4.0, -2.0] and found["lengths"] == [10, 20, 60]
    assert (found["mean"], found["median"], found["min"], found["max"]) == (1.0, 1.0, -2.0, 4.0)
    assert found["std"] == pytest.approx(6**0.5) and found["mean_length"] == 30 and found["cut"] == 1


def test_command_prints_json(folder, capsys):
    outputs = []
    for _ in range(2):
        assert command(folder, "--episodes", 7, "--json", "--seed", 3) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    found = json.loads(outputs[0])
    assert found["episodes"] == len(found["scores"]) == 7 and set(found["scores"]) <= {-1.0, 1.0}
    assert found["mean"] == np.mean(found["scores"]) and found["lengths"] == [9] * 7
    assert found["step"] >= 400 and found["checkpoint"].endswith(f"step_{found['step']:012d}.npz")
    assert (found["env"], found["policy"], found["seed"]) == ("gunreal/Catch-v0", "sample", 3)


def noisy(*arguments, **options):
    """Plays in an environment that prints: in Python, in C, where text waits in a buffer, and in another process."""
    print("a python")
    ctypes.CDLL(None).puts(b"a sea")
    subprocess.run(["echo", "a shell"], check=True)
    yield from play(*arguments, **options)


@pytest.fixture
def c_holds_text_back():
    """As by default when the output is a file or a pipe, but not with PYTHONUNBUFFERED."""
    library, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(4096)
    stdout, fully, not_at_all = ctypes.c_void_p.in_dll(library, "stdout"), 0, 2
    library.setvbuf(stdout, buffer, fully, ctypes.c_size_t(len(buffer)))
    yield
    library.setvbuf(stdout, None, not_at_all, ctypes.c_size_t(0))


def test_json_is_all_that_the_command_prints(folder, capfd, monkeypatch, c_holds_text_back):
    monkeypatch.setattr("gunreal.evaluate.play", noisy)
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)  # that of a command, which writes to the descriptor
    assert command(folder, "--episodes", 2, "--json") == 0
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)  # as when the process ends
    output = capfd.readouterr()
    assert json.loads(output.out)["episodes"] == 2
    assert sorted(output.err.splitlines()) == ["a python", "a sea", "a shell"]
    os.write(1, b"back")
    assert capfd.readouterr().out == "back"


@pytest.mark.parametrize("as_json", [True, False])
def test_what_environments_print_is_put_aside_for_json_alone(folder, capsys, monkeypatch, as_json):
    """Here for a program that captures the output."""
    monkeypatch.setattr("gunreal.evaluate.play", noisy)
    assert command(folder, "--episodes", 2, *(["--json"] if as_json else [])) == 0
    out, err = capsys.readouterr()
    assert (
        (json.loads(out)["episodes"] == 2 and err == "a python\n") if as_json else out.startswith("a python\ncatch: ")
    )


@pytest.mark.parametrize("streams", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_json_with_closed_streams(folder, capfd, monkeypatch, streams):
    """Python has None in their place then, and their numbers may be those of files that something else has opened."""

    def files():
        return [(os.fstat(number).st_dev, os.fstat(number).st_ino) for number in (1, 2)]

    def watched(*arguments, **options):
        sys.stdout.write("a python\n")  # which None has not
        sys.stdout.flush()
        os.write(1, b"an fd ")
        during.extend(files())
        return play(*arguments, **options)

    monkeypatch.setattr("gunreal.evaluate.play", watched)
    before, during = files(), []
    with monkeypatch.context() as patch:
        for stream in streams:
            patch.setattr(sys, stream, None)
            patch.setattr(sys, f"__{stream}__", None)
        assert command(folder, "--episodes", 2, "--json") == 0
    assert files() == before and during[1] == before[1]
    if "stdout" in streams:
        assert during[0] == before[0] and capfd.readouterr().out == "an fd "
    else:
        null = os.stat(os.devnull)
        assert during[0] == (null.st_dev, null.st_ino) and json.loads(capfd.readouterr().out)["episodes"] == 2


def test_a_file_that_an_environment_lacks_is_not_taken_for_one_of_the_run(folder, monkeypatch):
    def lacking(*_, **__):
        raise FileNotFoundError(2, os.strerror(2), "level.wad")

    monkeypatch.setattr("gunreal.evaluate.play", lacking)
    with pytest.raises(FileNotFoundError, match=r"level\.wad"):
        command(folder)


def test_games_are_played_with_the_protocol_that_is_asked_for(folder, tmp_path, capsys, monkeypatch):
    run_dir, seen = shutil.copytree(folder, tmp_path / "run"), []
    save(replace(Config(**load(folder / "config.toml")), env="ALE/Pong-v5"), run_dir / "config.toml")

    def played(learner, config, *_, **__):
        seen.append(config.protocol)
        return iter([Episode(0, 5, 4.0, 20, False)])

    monkeypatch.setattr("gunreal.evaluate.play", played)
    assert command(run_dir, "--protocol", "v5", "--json") == 0
    assert seen == ["v5"] and json.loads(capsys.readouterr().out)["protocol"] == "v5"


def test_command_prints_a_table(folder, capsys):
    arguments = ("--episodes", 3, "--checkpoint", "best", "--policy", "argmax", "--max_steps", 5)
    assert command("catch", "--logdir", folder.parent, *arguments) == 0
    about, names, values, cut = capsys.readouterr().out.splitlines()
    assert about.startswith("catch: gunreal/Catch-v0, at step ") and about.endswith(", policy argmax")
    assert names.split() == ["mean", "median", "std", "min", "max", "episodes", "mean", "length"]
    assert values.split() == ["0.00", "0.00", "0.00", "0.00", "0.00", "3", "5.00"]
    assert cut.startswith("3 of the episodes were cut at --max_steps")


def test_video(folder, tmp_path, capsys):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "first.mp4"
    assert command(folder, "--episodes", 2, "--video", path) == 0
    assert str(path) in capsys.readouterr().out
    reader = ffmpeg.read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    assert about["fps"] == 15 and (width, height) == (2 * 336, 28 + 336 + 64)
    pictures = [np.frombuffer(data, np.uint8).reshape(height, width, 3) for data in reader]
    assert len(pictures) == 10  # Catch has 9 steps, and the final observation is shown, too
    panel = pictures[3][28 : 28 + 336, :336, 0]
    ball = panel[3 * 32 + 4 : 4 * 32 - 4].max(axis=0) > 128  # rows of 8 pixels, enlarged 4 times
    assert 50 < ball.sum() < 80  # one of the five columns
    beside = pictures[3][28 : 28 + 336, 336:]
    assert (
        beside[20:-20, 20:-20].std() > 5 and beside[:6].max() < 40
    )  # the map, and the frame's edge that it leaves out


def test_a_video_that_ffmpeg_could_not_finish_costs_no_scores(folder, tmp_path, capsys, monkeypatch):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")

    def full_disk(path, *_, **__):
        open(path, "wb").close()
        yield
        raise OSError("[Errno 32] Broken pipe\n\nFFMPEG COMMAND:\nffmpeg")

    path = tmp_path / "first.mp4"
    path.write_bytes(b"an earlier video")
    monkeypatch.setattr(ffmpeg, "write_frames", full_disk)
    arguments = (folder, "--episodes", 3, "--json")
    assert command(*arguments) == 0
    wanted = capsys.readouterr().out
    assert command(*arguments, "--video", path) == 1
    output = capsys.readouterr()
    assert output.out == wanted
    assert output.err == f"gunreal: ffmpeg could not write the video {path}; check the free space of the disk\n"
    assert path.read_bytes() == b"an earlier video" and list(tmp_path.iterdir()) == [path]


def test_video_of_a_run_that_has_none(tmp_path, monkeypatch):
    from gunreal.records import video
    from gunreal.records.video import Recorder

    vectors = SimpleNamespace(spec=describe(TENS), config=TENS, tasks=())
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ConfigError, match=r'pip install "gunreal\[video\]"'):
        Recorder(tmp_path / "a.mp4", vectors)
    with pytest.raises(ConfigError, match="FILE.mp4"):  # a bad name needs no package
        Recorder(tmp_path / "a.avi", vectors)
    monkeypatch.setattr(video, "package", lambda *_: None)
    with pytest.raises(ConfigError, match="needs image observations, .*; film what it renders"):
        Recorder(tmp_path / "a.mp4", vectors)
