// The RIOT (6532): RAM, timer, joystick and console switches.
#pragma once
#include "state.h"

namespace atari {

// The interval timer counts down from the value that was written, at once and then once in each interval of 1 << shift
// cycles. When it passes zero, it sets the interrupt flag and counts single cycles. Reading it clears the flag, and it goes
// on from what was read, by intervals again.
ATARI_FN inline uint8_t riot_read(State& s, uint32_t address) {
  Riot& r = s.riot;
  switch (address & 7) {
    case 0: return s.input.port_a;
    case 1: return r.port_a_direction;
    case 2: return s.input.port_b;
    case 3: return r.port_b_direction;
    default: break;
  }
  const uint32_t age = uint32_t(s.cycles - 1) - uint32_t(r.timer_set), span = uint32_t(r.timer) << r.shift;
  const bool counting = age < span;
  if (address & 1) return counting || r.flag_cleared ? 0 : 0x80;
  if (counting) return uint8_t(r.timer - 1 - (age >> r.shift));
  const uint32_t past = age - span;  // single cycles since it passed zero
  if (past && !r.flag_cleared) {  // as in ale-py, a read in the very cycle does not clear the flag
    r.flag_cleared = 1;
    r.resumed = uint8_t(~past);
  }
  // As in ale-py, these intervals begin when the timer passed zero, and not with the read.
  return r.flag_cleared ? uint8_t(r.resumed - (past >> r.shift)) : 0xFF;
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
    r.flag_cleared = 0;
  }
}

}  // namespace atari
