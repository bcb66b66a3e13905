"""Expressions over memory: what the library computes against Python's own evaluation."""

from dataclasses import replace

import numpy as np
import pytest
from gunreal_emulator import console
from gunreal_emulator.build import library
from gunreal_emulator.games import find_game, games
from gunreal_emulator.rules import VARIABLES, compile_rule


def by_python(expression, memory, variables):
    def m(address):
        return int(memory[address - 0x80 if address < 0x100 else address - 0xF080 + 128])

    names = {
        "m": m,
        "lo": lambda a: m(a) & 15,
        "hi": lambda a: m(a) >> 4,
        "bcd": lambda a: (m(a) >> 4) * 10 + (m(a) & 15),
        "has": lambda a, b, value: any(m(address) == value for address in range(a, b + 1)),
    }
    return int(eval(expression, {**names, **dict(zip(VARIABLES, variables, strict=True))}))


def by_library(expression, memory, variables):
    code, values = compile_rule(expression), np.array(variables, np.int32)
    return library().atari_evaluate(code.ctypes.data, memory.ctypes.data, values.ctypes.data)


@pytest.mark.parametrize("game", games())
def test_a_games_rules_mean_what_they_say(game):
    rng, entry = np.random.default_rng(0), find_game(game)
    for text in (entry.score, entry.lives, entry.over, entry.reward, entry.flag):
        for _ in range(20 if text else 0):
            memory = rng.choice(np.array([0, 1, 5, 0x40, 0x80, 0xFF, *rng.integers(256, size=6)], np.uint8), 256)
            variables = rng.integers(-5, 300, size=len(VARIABLES)).tolist()
            assert by_library(text, memory, variables) == by_python(text, memory, variables), text


@pytest.mark.parametrize("bad", ["m(3)", "m(0xF000)", "m(0x1080)", "has(0x90, 0x80, 1)", "has(0x70, 0x80, 1)",
                                 "has(0x80)", "has(0x80, 0x90, 256)", "has(0x80, 0x90, m(0x80))",
                                 "has(0x80, 0x90, 1.5)", "m(0x80) +", "", "2147483648", "nothing + 1", "print(1)",
                                 "1.5", "m(x)"])  # fmt: skip
def test_invalid_rules_are_rejected(bad):
    with pytest.raises(ValueError):
        compile_rule(bad)


@pytest.mark.parametrize("bad, name", [("~m(0x80)", "Invert"), ("+m(0x80)", "UAdd"), ("m(0x80) / 2", "Div"),
                                       ("m(0x80) is 1", "Is"), ("0 < m(0x80) in 3", "In")])  # fmt: skip
def test_an_operator_that_is_not_supported_is_named(bad, name):
    with pytest.raises(ValueError, match=f"operator {name} is not allowed"):
        compile_rule(bad)


def test_a_rule_goes_on_behind_an_operand_of_zero(monkeypatch):
    """Such as that of this `has`, which holds its addresses and its value. As an operation, zero ends a rule."""
    game = replace(find_game("boxing"), lives="has(0x80, 0x80, 0) * 100 + 7")
    monkeypatch.setattr(console, "load_game", lambda *_: console.LoadedGame(game))
    alone, seen = console.Console(game.name), set()
    alone.start_game()
    for _ in range(600):
        alone.act(0)
        assert alone.lives() == (107 if alone.getRAM()[0] == 0 else 7)
        seen.add(alone.lives())
    assert len(seen) == 2


def test_the_stack_is_bounded():
    with pytest.raises(ValueError, match="use less nesting"):
        compile_rule("+".join(["(1"] * 40) + ")" * 40)
