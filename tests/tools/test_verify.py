"""The emulator beside ale-py, frame by frame."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import numpy as np  # noqa: E402
from emulation.memories import UNCOMPARED, Parked, compare_rules  # noqa: E402
from emulation.verify import compare, oracle  # noqa: E402
from emulators import TWENTY, main  # noqa: E402
from gunreal_emulator import VectorAtari  # noqa: E402
from gunreal_emulator.ale import OwnALE  # noqa: E402
from gunreal_emulator.console import Console  # noqa: E402
from gunreal_emulator.games import find_game, games  # noqa: E402


@pytest.mark.parametrize("game", [game for game in TWENTY if game in games()])
def test_a_game_is_equal_in_every_frame(game):
    result = compare(game, 1_000, seed=7)
    assert not result.difference
    assert result.frames == 1_000


@pytest.mark.parametrize("game, mode, difficulty", [
    ("alien", 2, 2), ("berzerk", 18, 0), ("breakout", 12, 1), ("casino", 3, 0), ("demon_attack", 1, 1),
    ("double_dunk", 15, 0), ("freeway", 3, 1), ("haunted_house", 5, 1), ("hero", 4, 0), ("klax", 2, 0),
    ("ms_pacman", 3, 0), ("name_this_game", 24, 1), ("pong", 1, 3), ("space_invaders", 15, 1), ("space_war", 9, 0),
    ("tic_tac_toe_3d", 4, 0), ("tic_tac_toe_3d", 4, 2), ("turmoil", 8, 0), ("video_cube", 1402, 1),
    ("yars_revenge", 64, 0),
])  # fmt: skip
def test_modes_and_difficulties_are_equal(game, mode, difficulty):
    assert not compare(game, 500, 3, mode, difficulty).difference


@pytest.mark.parametrize("game", ["backgammon", "blackjack", "casino", "haunted_house", "klax", "pacman", "skiing",
                                  "surround", "tic_tac_toe_3d", "video_checkers", "video_cube",
                                  "wizard_of_wor"])  # fmt: skip
def test_kept_memory_ignored_actions_both_ports_paddles_and_unfinished_frames_are_equal(game):
    assert not compare(game, 600, seed=11).difference


def test_all_modes_of_a_game_are_verified(capsys):
    assert main(["verify", "--games", "pong", "--frames", "20", "--modes"]) == 0
    assert "| pong | 0 1 |  | 0 1 2 3 | equal |" in capsys.readouterr().out


def test_the_comparison_sees_games_over_and_resets():
    result = compare("asterix", 4_000, seed=0)
    assert not result.difference
    assert result.games_over and result.rewards and result.lives_lost


def test_finished_holes_of_miniature_golf_have_equal_rewards():
    """Holes are only finished by actions that are held for some time."""
    rng, ale, ours = np.random.default_rng(20), oracle("miniature_golf"), Console("miniature_golf")
    ale.reset_game()
    ours.reset_game()
    action, rewards = 0, []
    for _ in range(11_000):
        action = int(rng.integers(18)) if rng.random() < 1 / 20 else action
        rewards.append((ale.act(action), ours.act(action)))
    assert [theirs for theirs, _ in rewards if theirs] == [-14, -11, -30]
    assert all(theirs == mine for theirs, mine in rewards)


@pytest.mark.parametrize("game", ["casino", "darkchambers", "et", "freeway", "hangman", "haunted_house",
                                  "journey_escape", "klax", "star_gunner", "tic_tac_toe_3d", "video_checkers",
                                  "video_cube", "wizard_of_wor", "word_zapper"])  # fmt: skip
def test_rules_are_equal_for_memories_that_play_may_not_reach(game):
    assert game not in UNCOMPARED
    count, difference = compare_rules(game, 1_500, seed=2)
    assert not difference and count > 30_000


def test_the_comparison_of_rules_sees_a_difference(monkeypatch):
    from dataclasses import replace

    from gunreal_emulator import console

    game = find_game("hangman")
    changed = console.LoadedGame(replace(game, over="bcd(0xEB) != bcd(0xEC)"))
    monkeypatch.setattr(console, "load_game", lambda *_: changed)
    assert "lives is 0 in ale-py and 1 in gunreal" in compare_rules("hangman", 20_000, seed=2)[1]


def test_hangman_ends_without_input():
    ale, ours = oracle("hangman"), Console("hangman")
    ale.reset_game()
    ours.reset_game()
    for frame in range(1, 17_000):  # noqa: B007
        ale.act(0)
        ours.act(0, draw=False)
        assert ale.game_over() == ours.game_over()
        if ours.game_over():
            break
    assert frame == 16_367


def test_gopher_without_input_for_longer_than_its_counters_of_color_clocks():
    """After nine minutes, it no longer strobes VSYNC, and nine minutes later, 2^31 color clocks have passed."""
    ale, ours = oracle("gopher"), Console("gopher")
    ale.reset_game()
    ours.reset_game()
    for _ in range(65_000):
        ale.act(0)
        ours.act(0, draw=False)
    np.testing.assert_array_equal(ale.getRAM(), ours.getRAM())


def test_othello_ends_after_51_frames_of_the_byte_that_was_found():
    parked = Parked("othello")
    memory = parked.start.copy()
    memory[0x40] = 0
    for frame in range(1, 52):
        assert parked.judge(memory) == ""
        assert parked.pair.ours.game_over() == (frame == 51)


@pytest.mark.parametrize("game, frames", [
    ("battle_zone", 620),  # RESM0 20 cycles after HMOVE, from frame 580
    ("robotank", 60),  # RESBL 7 cycles after HMOVE
    ("journey_escape", 60),  # HMM0 21 cycles after HMOVE: the stars
])  # fmt: skip
def test_objects_that_are_set_soon_after_their_move_are_equal(game, frames):
    assert not compare(game, frames, seed=0).difference


@pytest.mark.parametrize("game", games())
def test_start_actions_count_as_in_ale_py(game):
    """Where they do, an episode is truncated earlier."""
    described = find_game(game)
    modes = list(described.modes)[:5] if game == "video_cube" else list(described.modes)
    for mode in (modes[0], modes[-1]):
        ale = oracle(game, mode)
        ale.reset_game()
        assert described.start_frames(mode) == ale.getEpisodeFrameNumber()


def test_an_episode_is_truncated_in_the_frame_of_ale_py():
    import ale_py

    ale, ours = oracle("pacman"), OwnALE("pacman", max_frames=50)  # 16 of which are its start
    ale.setInt("max_num_frames_per_episode", 50)
    ale.loadROM(ale_py.roms.get_rom_path("pacman"))
    ale.reset_game()
    ours.reset_game()
    for frame in range(1, 60):
        ale.act(0)
        ours.act(0)
        assert ale.game_truncated() == ours.game_truncated() == (frame >= 34)
    env = VectorAtari("pacman", protocol="deterministic", noop_max=0, frame_skip=1, max_num_frames_per_episode=50)
    env.reset(seed=1)
    assert [bool(env.step(np.zeros(1, int))[3][0]) for _ in range(34)] == [False] * 33 + [True]


def both_with(game, memory):
    """ale-py and this emulator after 300 frames, with the same changes of their memory."""
    ale, ours = oracle(game), Console(game)
    ale.reset_game()
    ours.reset_game()
    for _ in range(300):
        ale.act(0)
        ours.act(0)
    for address, value in memory.items():
        ale.setRAM(address - 0x80, value)
        ours._ram[address - 0x80] = value
    return ale, ours


@pytest.mark.parametrize("game, memory, is_over", [
    ("demon_attack", {0xF1: 0xBD, 0xF2: 0}, True),
    ("demon_attack", {0xF1: 0xBD, 0xF2: 3}, False),
    ("elevator_action", {0x83: 0, 0x81: 1}, True),
    ("elevator_action", {0x83: 0, 0x81: 0}, False),
    ("lost_luggage", {0xCA: 0, 0xC8: 10, 0xA5: 0, 0xA9: 0}, True),
    ("lost_luggage", {0xCA: 0, 0xC8: 10, 0xA5: 0, 0xA9: 1}, False),
])  # fmt: skip
def test_rules_of_the_end_are_equal(game, memory, is_over):
    ale, ours = both_with(game, memory)
    ale.act(0)
    ours.act(0)
    assert ale.game_over() == ours.game_over() == is_over


@pytest.mark.parametrize("mode", [6, 17])
def test_resets_in_the_middle_of_space_war_are_equal(mode):
    """Its modes are selected by steps that depend on the frame counter."""
    ale, ours = oracle("space_war"), Console("space_war", mode)
    ale.setMode(mode)
    for gap in range(6):
        ale.reset_game()
        ours.reset_game()
        np.testing.assert_array_equal(ale.getRAM(), ours.getRAM())
        for _ in range(gap):
            ale.act(0)
            ours.act(0)


@pytest.mark.parametrize("game, memory, reward", [
    ("backgammon", {0x80: 0xF1, 0x86: 0, 0x89: 0, 0x8F: 0, 0x9B: 0}, 1),
    ("backgammon", {0x8E: 15, 0x81: 0, 0x8D: 0, 0x94: 0, 0x97: 0}, -1),
    ("blackjack", {0x86: 11, 0x89: 187}, -200),
    ("blackjack", {0x86: 0x10}, 800),
    ("casino", {0x8C: 0}, -1000),
    ("video_checkers", dict.fromkeys((*range(0x80, 0x93), 0xA3), 0), -1),
    ("video_checkers", dict.fromkeys(range(0x93, 0xA3), 0), 1),
    ("video_cube", dict.fromkeys(range(0xA0, 0xD6), 2), 6),
])  # fmt: skip
def test_ends_that_random_actions_do_not_reach_are_equal(game, memory, reward):
    ale, ours = both_with(game, memory)
    assert ale.act(0) == ours.act(0) == reward
    assert ale.game_over() and ours.game_over()
    assert ale.lives() == ours.lives() == 0


@pytest.mark.parametrize("game", games())
def test_difficulties_are_those_of_ale_py(game):
    assert list(find_game(game).difficulties) == list(oracle(game).getAvailableDifficulties())


@pytest.mark.parametrize("game", ["lost_luggage", "pong", "skiing"])
def test_action_sets_are_equal(game):
    theirs, ours = oracle(game), OwnALE(game)
    for name in ("getMinimalActionSet", "getLegalActionSet"):
        assert [action.value for action in getattr(theirs, name)()] == getattr(ours, name)()
    assert VectorAtari(game, full_action_space=True).single_action_space.n == len(theirs.getLegalActionSet())


def test_a_difference_is_found_and_fails_the_command(monkeypatch, capsys):
    from gunreal_emulator import console

    monkeypatch.setattr(console, "read_rom", lambda name, read=console.read_rom: read("breakout"))
    console.loaded_game.cache_clear()
    try:
        assert main(["verify", "--games", "pong", "--frames", "10"]) == 1
    finally:
        console.loaded_game.cache_clear()
    assert "memory" in capsys.readouterr().out
