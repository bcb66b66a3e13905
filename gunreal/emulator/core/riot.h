// The RIOT (6532): RAM, timer, joystick and console switches.
#pragma once
#include "state.h"

namespace atari {

ATARI_FN inline uint8_t riot_read(State& s, uint32_t address) {
  Riot& r = s.riot;
  switch (address & 7) {
    case 0: return s.input.port_a;
    case 1: return r.port_a_direction;
    case 2: return s.input.port_b;
    case 3: return r.port_b_direction;
    default: break;
  }
  const int32_t since = minus(s.cycles - 1, r.timer_set);
  const int32_t left = int32_t(r.timer) - int32_t(uint32_t(since) >> r.shift) - 1;
  if (address & 1) return left >= 0 || r.read_after_interrupt ? 0 : 0x80;
  if (left >= 0) return uint8_t(left);
  // Below zero it counts single cycles, and what it shows depends on when it was first read after that.
  const int32_t expiry = int32_t(r.timer) << r.shift;
  const int32_t below = minus(expiry - 1, since);
  if (below <= -2 && !r.read_after_interrupt) {
    r.read_after_interrupt = 1;
    r.interrupt_reset = s.cycles;
  }
  if (!r.read_after_interrupt) return uint8_t(below);
  return uint8_t(int32_t(r.timer) - int32_t(uint32_t(since) >> r.shift) - minus(minus(r.interrupt_reset, r.timer_set), expiry));
}

// How many reads of the timer, the first one in CPU cycle `cycle` and then one every `period` cycles, return more than 0.
ATARI_INLINE int32_t rounds_until_zero(const Riot& r, int32_t cycle, int32_t period) {
  const int32_t left = ((int32_t(r.timer) - 1) << r.shift) - minus(cycle - 1, r.timer_set);
  return left > 0 ? (left + period - 1) / period : 0;
}

ATARI_FN inline void riot_write(State& s, uint32_t address, uint8_t value) {
  Riot& r = s.riot;
  if ((address & 7) == 1) {
    r.port_a_direction = value;
  } else if ((address & 0x14) == 0x14) {
    constexpr uint32_t shifts = 0x0A060300;  // of the intervals 1, 8, 64 and 1,024
    r.timer = value;
    r.shift = uint8_t(shifts >> (8 * (address & 3)));
    r.timer_set = s.cycles;
    r.read_after_interrupt = 0;
  }
}

}  // namespace atari
