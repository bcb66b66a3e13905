"""A program whose frames run out of instructions in the middle of the picture."""

import ale_py
import numpy as np
import pytest
from gunreal_emulator import VectorAtari, console
from gunreal_emulator.console import Console
from gunreal_emulator.settings import gray_palette

LINES = bytes.fromhex("85 02 CA D0 FB")  # STA WSYNC, DEX, BNE: X lines
# Each picture has another color. VSYNC ends the frame before.
START = bytes.fromhex("A9 02 85 00 85 02 85 02 85 02 A9 00 85 00 E6 80 E6 80 A5 80 85 09 A2 3C") + LINES
MIDDLE = bytes.fromhex("A9 44 85 09 A2 28") + LINES
# Every second picture: 25,700 instructions without a write to the TIA, and then a picture of 250 lines.
LONG = bytes.fromhex("A0 32 A2 00 CA D0 FD 88 D0 F8 A5 80 49 FF 85 09 A2 FA") + LINES + bytes.fromhex("4C 00 F0")
SHORT = bytes.fromhex("A5 80 49 FF 85 09 A2 A0") + LINES + bytes.fromhex("4C 00 F0")
PROGRAM = START + MIDDLE + bytes.fromhex("A5 80 29 02 D0") + bytes([len(LONG)]) + LONG + SHORT


@pytest.fixture
def program(monkeypatch):
    rom = PROGRAM.ljust(4096, b"\0")[:-4] + bytes.fromhex("00 F0 00 F0")
    monkeypatch.setattr(console, "read_rom", lambda name: rom)
    console.loaded_game.cache_clear()
    yield "pooyan"  # whose rules do not end this program
    console.loaded_game.cache_clear()


@pytest.mark.parametrize("skip", [2, 3, 4, 5, 6])
def test_pictures_are_those_of_frames_that_are_all_drawn(program, skip):
    env = VectorAtari(program, 1, protocol="deterministic", size=None, noop_max=0, frame_skip=skip)
    env.reset(seed=0)
    alone, palette = Console(program), gray_palette(env.game.pal)
    alone.start_game()
    unfinished = 0
    for _ in range(20):
        pictures = []
        for _ in range(skip):
            assert alone.act(0) == 0 and not alone.game_over()
            pictures.append(palette[alone.getScreen()])
            unfinished += not alone.whole()
        np.testing.assert_array_equal(env.step(np.zeros(1, int))[0][0, 0], np.maximum(*pictures[-2:]))
    assert unfinished


def test_a_game_that_waits_for_the_button_looks_as_in_ale_py():
    """Sir Lancelot does after 65,468 frames without input, which two bytes count. Each look at the button draws."""
    theirs, ours = ale_py.ALEInterface(), Console("sir_lancelot")
    theirs.setFloat("repeat_action_probability", 0.0)
    theirs.setInt("random_seed", 0)
    theirs.loadROM(ale_py.roms.get_rom_path("sir_lancelot"))
    theirs.reset_game(), ours.reset_game()
    for frame in range(20):
        if frame == 10:
            assert ours.getScreen().any()
            theirs.setRAM(0x30, 1), theirs.setRAM(0x31, 1)
            ours._ram[0x30:0x32] = 1
        theirs.act(0), ours.act(0)
        np.testing.assert_array_equal(theirs.getScreen(), ours.getScreen())
        np.testing.assert_array_equal(theirs.getRAM(), ours.getRAM())
    assert not ours.getScreen().any()
