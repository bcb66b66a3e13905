"""The emulator beside ale-py, frame by frame."""

import dataclasses

import ale_py
import numpy as np
import pytest
from emulation.memories import UNCOMPARED, Parked, compare_rules
from emulation.verify import compare, oracle
from emulators import TWENTY, main
from gunreal_emulator import VectorAtari, console
from gunreal_emulator.ale import OwnALE
from gunreal_emulator.console import Console
from gunreal_emulator.games import find_game, games


def both(game):
    """ale-py and this emulator at the start of a game."""
    ale, ours = oracle(game), Console(game)
    ale.reset_game()
    ours.reset_game()
    return ale, ours


PLAYED = [(game, 1_000, 7) for game in TWENTY if game in games()]
PLAYED += [(game, 600, 11) for game in (  # kept memory, ignored actions, both ports, paddles and unfinished frames
    "backgammon", "blackjack", "casino", "haunted_house", "klax", "pacman", "skiing", "surround", "tic_tac_toe_3d",
    "video_checkers", "video_cube", "wizard_of_wor",
)]  # fmt: skip
PLAYED += [  # objects that are set soon after their move
    ("battle_zone", 620, 0),  # RESM0 20 cycles after HMOVE, from frame 580
    ("robotank", 60, 0),  # RESBL 7 cycles after HMOVE
    ("journey_escape", 60, 0),  # HMM0 21 cycles after HMOVE: the stars
]


@pytest.mark.parametrize("game, frames, seed", PLAYED)
def test_a_game_is_equal_in_every_frame(game, frames, seed):
    result = compare(game, frames, seed)
    assert not result.difference
    assert result.frames == frames


@pytest.mark.parametrize("game, mode, difficulty", [
    ("alien", 2, 2), ("berzerk", 18, 0), ("breakout", 12, 1), ("casino", 3, 0), ("demon_attack", 1, 1),
    ("double_dunk", 15, 0), ("freeway", 3, 1), ("haunted_house", 5, 1), ("hero", 4, 0), ("klax", 2, 0),
    ("ms_pacman", 3, 0), ("name_this_game", 24, 1), ("pong", 1, 3), ("space_invaders", 15, 1), ("space_war", 9, 0),
    ("tic_tac_toe_3d", 4, 0), ("tic_tac_toe_3d", 4, 2), ("turmoil", 8, 0), ("video_cube", 1402, 1),
    ("yars_revenge", 64, 0),
])  # fmt: skip
def test_modes_and_difficulties_are_equal(game, mode, difficulty):
    assert not compare(game, 500, 3, mode, difficulty).difference


def test_all_modes_of_a_game_are_verified(capsys):
    assert main(["verify", "--games", "pong", "--frames", "20", "--modes"]) == 0
    assert "| pong | 0 1 |  | 0 1 2 3 | equal |" in capsys.readouterr().out


def test_the_comparison_sees_games_over_and_resets():
    result = compare("asterix", 4_000, seed=0)
    assert not result.difference
    assert result.games_over and result.rewards and result.lives_lost


def test_finished_holes_of_miniature_golf_have_equal_rewards():
    """Holes are only finished by actions that are held for some time."""
    rng, action, rewards = np.random.default_rng(20), 0, []
    ale, ours = both("miniature_golf")
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
    game = find_game("hangman")
    changed = console.LoadedGame(dataclasses.replace(game, over="bcd(0xEB) != bcd(0xEC)"))
    monkeypatch.setattr(console, "load_game", lambda *_: changed)
    assert "lives is 0 in ale-py and 1 in gunreal" in compare_rules("hangman", 20_000, seed=2)[1]


def test_hangman_ends_without_input():
    ale, ours = both("hangman")
    for frame in range(1, 17_000):  # noqa: B007
        ale.act(0)
        ours.act(0, draw=False)
        assert ale.game_over() == ours.game_over()
        if ours.game_over():
            break
    assert frame == 16_367


def test_gopher_without_input_for_longer_than_its_counters_of_color_clocks():
    """After nine minutes, it no longer strobes VSYNC, and nine minutes later, 2^31 color clocks have passed."""
    ale, ours = both("gopher")
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


@pytest.mark.parametrize("game", games())
def test_start_actions_count_and_difficulties_are_as_in_ale_py(game):
    """Where they do, an episode is truncated earlier."""
    described = find_game(game)
    modes = list(described.modes)[:5] if game == "video_cube" else list(described.modes)
    for mode in (modes[0], modes[-1]):
        ale = oracle(game, mode)
        ale.reset_game()
        assert described.start_frames(mode) == ale.getEpisodeFrameNumber()
    assert list(described.difficulties) == list(ale.getAvailableDifficulties())


def test_an_episode_is_truncated_in_the_frame_of_ale_py():
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
    ale, ours = both(game)
    for _ in range(300):
        ale.act(0)
        ours.act(0)
    for address, value in memory.items():
        ale.setRAM(address - 0x80, value)
        ours._ram[address - 0x80] = value
    return ale, ours


@pytest.mark.parametrize("game, memory, reward, is_over", [
    ("demon_attack", {0xF1: 0xBD, 0xF2: 0}, 0, True),
    ("demon_attack", {0xF1: 0xBD, 0xF2: 3}, 0, False),
    ("elevator_action", {0x83: 0, 0x81: 1}, 0, True),
    ("elevator_action", {0x83: 0, 0x81: 0}, 0, False),
    ("lost_luggage", {0xCA: 0, 0xC8: 10, 0xA5: 0, 0xA9: 0}, 0, True),
    ("lost_luggage", {0xCA: 0, 0xC8: 10, 0xA5: 0, 0xA9: 1}, 0, False),
    ("backgammon", {0x80: 0xF1, 0x86: 0, 0x89: 0, 0x8F: 0, 0x9B: 0}, 1, True),
    ("backgammon", {0x8E: 15, 0x81: 0, 0x8D: 0, 0x94: 0, 0x97: 0}, -1, True),
    ("blackjack", {0x86: 11, 0x89: 187}, -200, True),
    ("blackjack", {0x86: 0x10}, 800, True),
    ("casino", {0x8C: 0}, -1000, True),
    ("video_checkers", dict.fromkeys((*range(0x80, 0x93), 0xA3), 0), -1, True),
    ("video_checkers", dict.fromkeys(range(0x93, 0xA3), 0), 1, True),
    ("video_cube", dict.fromkeys(range(0xA0, 0xD6), 2), 6, True),
])  # fmt: skip
def test_ends_that_random_actions_may_not_reach_are_equal(game, memory, reward, is_over):
    ale, ours = both_with(game, memory)
    assert ale.act(0) == ours.act(0) == reward
    assert ale.game_over() == ours.game_over() == is_over
    assert ale.lives() == ours.lives() and not (is_over and ours.lives())


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


@pytest.mark.parametrize("game", ["lost_luggage", "pong", "skiing"])
def test_action_sets_are_equal(game):
    theirs, ours = oracle(game), OwnALE(game)
    for name in ("getMinimalActionSet", "getLegalActionSet"):
        assert [action.value for action in getattr(theirs, name)()] == getattr(ours, name)()
    assert VectorAtari(game, full_action_space=True).single_action_space.n == len(theirs.getLegalActionSet())


def test_a_difference_is_found_and_fails_the_command(monkeypatch, capsys):
    monkeypatch.setattr(console, "read_rom", lambda name, read=console.read_rom: read("breakout"))
    console.loaded_game.cache_clear()
    try:
        assert main(["verify", "--games", "pong", "--frames", "10"]) == 1
    finally:
        console.loaded_game.cache_clear()
    assert "memory" in capsys.readouterr().out
