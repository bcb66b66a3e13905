// Frames, the power switch, and joystick input.
#pragma once
#include "run.h"

namespace atari {

// Bits of a joystick action; the 18 actions of ale-py in their order are in `joystick`.
enum Joystick : uint8_t { kUp = 1, kDown = 2, kLeft = 4, kRight = 8, kFire = 16 };
constexpr uint32_t kNoop = 0, kFireAction = 1, kResetSwitch = 40, kSelectSwitch = 41;  // as an action: the console's switches
constexpr int32_t kPaddleLow = 27450, kPaddleStep = 23000;  // resistances

ATARI_INLINE uint32_t joystick(uint32_t action) {
  // NOOP FIRE UP RIGHT LEFT DOWN UPRIGHT UPLEFT DOWNRIGHT DOWNLEFT, then with FIRE: UP RIGHT LEFT DOWN UPRIGHT ...
  constexpr uint64_t directions = uint64_t(kUp) << 8 | uint64_t(kRight) << 12 | uint64_t(kLeft) << 16 | uint64_t(kDown) << 20 |
                                  uint64_t(kUp | kRight) << 24 | uint64_t(kUp | kLeft) << 28 |
                                  uint64_t(kDown | kRight) << 32 | uint64_t(kDown | kLeft) << 36;
  if (action >= 18) return 0;
  if (action == 1) return kFire;
  return action < 10 ? directions >> (4 * action) & 0xF : (directions >> (4 * (action - 8)) & 0xF) | kFire;
}

// CPU cycles until the capacitor of a paddle with this resistance is charged.
ATARI_INLINE uint32_t paddle_wait(int32_t resistance) { return uint32_t(1.6 * resistance * 0.01E-6 * 1.19E6); }

// Mersenne twister 19937, from which the initial contents of the RAM are drawn.
struct Noise {
  uint32_t word[624];
  int at;

  ATARI_FN explicit Noise(uint32_t seed) : at(624) {
    word[0] = seed;
    for (uint32_t k = 1; k < 624; k++) word[k] = 1812433253u * (word[k - 1] ^ word[k - 1] >> 30) + k;
  }

  ATARI_FN uint32_t next() {
    if (at == 624) {
      for (int k = 0; k < 624; k++) {
        const uint32_t y = (word[k] & 0x80000000u) | (word[(k + 1) % 624] & 0x7FFFFFFFu);
        word[k] = word[(k + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908B0DFu : 0u);
      }
      at = 0;
    }
    uint32_t y = word[at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
  }
};

ATARI_INLINE void set_clock_window(State& s, const Cartridge& cart) {
  Tia& t = s.tia;
  t.display_start = t.frame_start + kLine * cart.first_line;
  t.display_stop = t.display_start + kLine * cart.height;
  t.line_left = kLine;
  t.row = 0;
}

// Switches the power off and on, which resets everything but the RAM of the RIOT.
ATARI_FN inline void power(State& s, const Cartridge& cart, Noise& noise) {
  State fresh{};
  fresh.input = s.input;
  fresh.buffer = s.buffer;
  for (int k = 0; k < 128; k++) fresh.riot.ram[k] = s.riot.ram[k];
  s = fresh;
  s.riot.timer = uint8_t(25 + noise.next() % 75);
  s.riot.shift = 6;
  s.tia.vsync_finish = kNever;
  s.tia.stale = (1 << kObjects) - 1;
  set_clock_window(s, cart);
  cartridge_reset(s, cart);
  if (cart.scheme == kF8SC || cart.scheme == kF6SC) {
    for (int k = 0; k < 128; k++) s.cart_ram[k] = uint8_t(noise.next());
  }
  s.cpu.sp = 0xFF;
  s.cpu.nz = 1;
  s.cpu.b = 1;
  const uint32_t low = cartridge_read(s, cart, 0xFFFC);
  s.cpu.pc = uint16_t(low | cartridge_read(s, cart, 0xFFFD) << 8);
}

ATARI_INLINE void start_frame(State& s, const Cartridge& cart) {
  Tia& t = s.tia;
  const int32_t passed = (s.cycles * 3 - t.frame_start) % kLine, past = s.cycles;
  s.riot.timer_set = minus(s.riot.timer_set, past);
  t.dump_end = minus(t.dump_end, past);
  t.last_hmove = minus(t.last_hmove, past * 3);
  t.accessed = minus(t.accessed, past * 3);
  t.vsync_finish = minus(t.vsync_finish, past * 3);  // kNever, too, so that it ends after ten minutes without VSYNC, as in ale-py
  s.cycles = 0;
  t.frame_start = -passed;
  set_clock_window(s, cart);
  t.drawn = t.display_start;
  if (cart.color_loss) {
    for (int k = 0; k < 4; k++) t.color[k] = (t.color[k] & 0xFE) | (t.last_lines & 1);
  }
  s.buffer ^= 1;
}

ATARI_INLINE void begin_frame(State& s, const Cartridge& cart) {
  if (!s.partial) start_frame(s, cart);
  s.partial = 1;
  s.stop = 0;
}

// The running console. Frames alternate between the two buffers `screens` [height, 160], because an unfinished frame keeps
// parts of an earlier picture. Null draws nothing.
ATARI_INLINE Machine machine(State& s, const Cartridge& cart, uint8_t* screens) {
  return Machine{s, cart, screens ? screens + s.buffer * (cart.height * kWidth) : nullptr};
}

// An unfinished frame shows what the beam passed until the last access to the TIA.
ATARI_INLINE void end_frame(Machine m) {
  Tia& t = m.s.tia;
  if (ATARI_UNLIKELY(!m.s.stop)) draw_to(m, t.accessed);
  t.last_lines = int16_t((m.s.cycles * 3 - t.frame_start) / kLine);
}

// Emulates one frame with the input s.input.
ATARI_FN inline void frame(State& s, const Cartridge& cart, uint8_t* screens) {
  begin_frame(s, cart);
  Machine m = machine(s, cart, screens);
  if (!s.cpu.jammed) run(m, kFrameInstructions);
  end_frame(m);
}

}  // namespace atari
