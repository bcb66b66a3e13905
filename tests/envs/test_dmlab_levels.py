"""How levels are opened: actions, the cache of maps, and one clear line for whatever is wrong. See test_dmlab.py."""

from __future__ import annotations

from pathlib import Path

import dmlab_fixtures
import pytest
from dmlab_fixtures import COMPILED, MAZE, both
from wording import MEAN

from gunreal.config.schema import Config, ConfigError
from gunreal.envs import dmlab_levels
from gunreal.envs.dmlab_levels import LevelCache, action_rows
from gunreal.envs.make import describe

lab, opened = dmlab_fixtures.lab, dmlab_fixtures.opened  # pytest finds fixtures among a module's names


def test_more_columns_than_seven_are_zero(lab):
    spec = lab.Lab("standin/nine_columns", []).action_spec()
    names = [column["name"] for column in spec]
    assert len(names) == 9
    forward = action_rows("nav6", spec)[0]
    assert {name: number for name, number in zip(names, forward.tolist(), strict=True) if number} == {
        "MOVE_BACK_FORWARD": 1
    }
    assert action_rows("impala9", spec).shape == (9, 9)
    own = {"go": [0, 0, 1, 0, 0, 0, 0, 0, 0]}
    assert action_rows(own, spec).tolist() == [own["go"]]
    with pytest.raises(ConfigError, match="9 whole numbers"):
        action_rows({"go": [0] * 8}, spec)


# Maps.


@both
def test_maps_are_compiled_once(opened, tmp_path):
    folder = tmp_path / "cache" / "gunreal" / "dmlab"
    opened(COMPILED).reset(seed=123)
    (kept,) = folder.iterdir()
    stamp = kept.stat().st_mtime_ns
    opened(COMPILED).reset(seed=123)
    assert [file.stat().st_mtime_ns for file in folder.iterdir()] == [stamp]
    few = opened(COMPILED, level_cache=str(tmp_path / "few"), level_seeds=1)
    for seed in (5, 6):
        few.reset(seed=seed)
    assert len(list((tmp_path / "few").iterdir())) == 1


def test_cache_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    for variable, folder in (("", "/home/someone/.cache"), ("relative", "/home/someone/.cache"), ("/tmp/c", "/tmp/c")):
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
        assert LevelCache().folder == Path(folder, "gunreal/dmlab")
    assert LevelCache("~/maps").folder == Path("/home/someone/maps")


def test_cache_keeps_what_it_is_given(tmp_path):
    cache, source, copy = LevelCache(str(tmp_path / "a" / "b")), tmp_path / "map.pk3", str(tmp_path / "copy.pk3")
    assert not cache.fetch("maze", copy)
    for content in (b"one", b"two"):  # a second process may have compiled it meanwhile
        source.write_bytes(content)
        cache.write("../maze/1", str(source))
        assert cache.fetch("../maze/1", copy) and Path(copy).read_bytes() == content
    assert len(list(cache.folder.iterdir())) == 1 and not cache.fetch("maze/1", copy)


def test_a_cache_that_fails_is_only_slow_and_shows_no_half_of_a_map(tmp_path, opened, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="cannot cache maps in .*: File exists; choose .* with level_cache"):
        opened(COMPILED, level_cache=str(tmp_path / "file")).reset(seed=1)

    def full(source, target):
        Path(target).write_text("half")
        assert not (cache.folder / "maze").exists()
        raise OSError(28, "No space left on device")

    cache = LevelCache(str(tmp_path / "cache"))
    monkeypatch.setattr(dmlab_levels.shutil, "copyfile", full)
    with pytest.warns(UserWarning, match="No space left on device; choose"):
        cache.write("maze", str(tmp_path / "file"))
    assert not list(cache.folder.iterdir())


# Errors.


@both
@pytest.mark.parametrize(
    ("level", "args", "message"),
    [
        ("nav_maze_static01", {}, f"unknown level; {MEAN} nav_maze_static_01"),
        ("somewhere_else", {}, "unknown level; levels are named as in game_scripts/levels"),
        ("", {}, "has no level name; write --env dmlab/nav_maze_static_01"),
        (MAZE, {"settings": {"noSuchSetting": "1"}}, 'Invalid setting: "noSuchSetting" = "1".*see env_args.settings'),
        (MAZE, {"settings": {"minimalUI": "yes"}}, "minimalUI = yes.*see env_args.settings"),
        (MAZE, {"settings": {"minimalUI": True}}, 'settings.minimalUI is True, .* a string, minimalUI = "true"'),
        (MAZE, {"settings": {"fps": "0"}}, "settings.fps is '0', but must be a string with a number above 0"),
        (MAZE, {"settings": "fps=30"}, "settings is 'fps=30', but must be a table of strings"),
        (MAZE, {"width": 82}, "width is 82, but must be a multiple of 4"),
        (MAZE, {"height": 84.0}, "height is 84.0, but must be of type int"),
        (MAZE, {"action_repeat": 0}, "action_repeat is 0, but must be at least 1"),
        (MAZE, {"renderer": "gpu"}, "renderer is 'gpu', but must be software or hardware"),
        (MAZE, {"hight": 84}, f"unknown env_args.hight for dmlab/nav_maze_static_01; {MEAN} height"),
        (MAZE, {"gravity": 1}, "unknown env_args.gravity for .*; available: width, height, actions"),
        (MAZE, {"observations": "VEL.TRANS"}, r"must be a list of names, \[\"DEBUG.POS.TRANS\"\]"),
        (MAZE, {"observations": ["VEL.TRAN"]}, f"has no observation VEL.TRAN; {MEAN} VEL.TRANS"),
        (MAZE, {"observations": ["SMELL"]}, "has no observation SMELL; available: RGB_INTERLEAVED, "),
        (MAZE, {"observations": ["INSTR"]}, "INSTR of dmlab/nav_maze_static_01 is text or has no fixed shape"),
        (MAZE, {"observations": ["DEBUG.PLAYERS.HEALTH"]}, "is text or has no fixed shape; leave it out"),
        (MAZE, {"actions": "nav5"}, f"unknown action set 'nav5' in env_args.actions; {MEAN} nav6"),
        (MAZE, {"actions": "all"}, "'all' in env_args.actions; available: nav6, impala9, or a table"),
        (MAZE, {"actions": {}}, "actions is {}, but must be a name or a table with one row per action"),
        (MAZE, {"actions": {"go": [0, 0, 0, 1]}}, "actions.go is .* 7 whole numbers: LOOK_LEFT_RIGHT_PIXELS_PER_FRAME"),
        (MAZE, {"actions": {"go": [0, 0, 0, 0.5, 0, 0, 0]}}, "actions.go is .* 7 whole numbers"),
        (MAZE, {"actions": {"go": [0, 0, 0, 2, 0, 0, 0]}}, "actions.go .* must be -1 to 1 in MOVE_BACK_FORWARD"),
    ],
)
def test_errors_name_the_fix(lab, level, args, message):
    with pytest.raises(ConfigError, match=message) as error:
        describe(Config(env=f"dmlab/{level}", env_args=args))
    assert "\n" not in str(error.value)


def test_a_level_is_suggested_wherever_it_is(lab, tmp_path):
    folder = tmp_path / "baselab" / "game_scripts" / "levels" / "contributed" / "dmlab30"
    folder.mkdir(parents=True)
    (folder / "rooms_watermaze.lua").touch()
    for name in ("rooms_watermaze", "contributed/rooms_water_maze"):
        with pytest.raises(ConfigError, match=rf"{MEAN} contributed/dmlab30/rooms_watermaze\?"):
            describe(Config(env=f"dmlab/{name}", env_args={"runfiles": str(tmp_path)}))


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("dmlab_gym:dmlab_gym/lt_chasm-v0", "dmlab/lt_chasm,"),
        ("dmlab_gym/rooms_watermaze-v0", "dmlab/contributed/dmlab30/rooms_watermaze,"),
    ],
)
def test_levels_of_dmlab_gym_have_other_names_here(name, own):
    with pytest.raises(ConfigError, match=f"{name} has no discrete actions; use --env {own}"):
        describe(Config(env=name))


def test_nothing_is_printed_about_deprecated_observations(opened, capfd):
    env = opened(observations=["VEL.TRANS"])
    env.reset(seed=1)
    assert capfd.readouterr().err == ""
