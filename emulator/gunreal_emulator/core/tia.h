// The registers of the TIA: results of reads, and effects of writes and their delays.
#pragma once
#include "beam.h"

namespace atari {

ATARI_INLINE void show(Tia& t, uint32_t object, bool on) {
  t.visible = uint8_t(on ? t.visible | 1u << object : t.visible & ~(1u << object));
}

// Graphics of both players after VDEL and REFP.
ATARI_INLINE void update_player(Tia& t, uint32_t k) {
  const uint8_t graphics = t.vdelp[k] ? t.old_grp[k] : t.grp[k];
  const uint8_t shown = uint8_t(t.refp[k] ? reverse8(graphics) : graphics);
  if (shown != t.shown[k]) {
    t.shown[k] = shown;
    t.stale |= k ? 1 << P1 : 1 << P0;
    show(t, k ? P1 : P0, shown);
  }
}

ATARI_INLINE void update_missile(Tia& t, uint32_t k) { show(t, k ? M1 : M0, t.enam[k] && !t.resmp[k]); }
ATARI_INLINE void update_ball(Tia& t) { show(t, BL, t.vdelbl ? t.old_enabl : t.enabl); }

// Pixels that an object moves to the right when HMOVE is strobed in CPU cycle `cycle` of a scanline. The strobe lets up
// to 15 pulses reach an object, one in four color clocks; only those in a horizontal blank move it, each to the left,
// and an early HMOVE makes that blank eight pixels longer.
ATARI_INLINE int hmove_shift(int cycle, int motion) {
  const int pulses = motion ^ 8;
  if (cycle <= 20 || cycle == 75) {
    const int room = cycle == 75 ? 15 : (70 - 3 * cycle) / 4;
    return 8 - (pulses < room ? pulses : room);
  }
  const int lost = (222 - 3 * cycle) / 4;
  return cycle < 54 || pulses < lost ? 0 : lost - pulses;
}

ATARI_SLOW inline void hmove(Tia& t, const Cartridge& cart, int32_t clock) {
  const int cycle = (clock - t.frame_start) % kLine / 3;
  if (cycle <= 20 || cycle == 75) t.hmove_blank |= cart.hmove_blanks;
  for (int k = 0; k < 5; k++) {
    int x = t.pos[k] + hmove_shift(cycle, t.motion[k]);
    if (x >= kWidth) x -= kWidth;
    if (x < 0) x += kWidth;
    if (x != t.pos[k]) t.stale |= uint8_t(1u << k);
    t.pos[k] = uint8_t(x);
  }
  if (t.skip_first[0]) t.stale |= 1 << P0;
  if (t.skip_first[1]) t.stale |= 1 << P1;
  if (t.m0_shape) t.stale |= 1 << M0;
  t.skip_first[0] = t.skip_first[1] = t.m0_shape = t.stars = 0;
  t.last_hmove = clock;
}

// What becomes of a player that is moved while a copy of it is due: -1 it starts soon, 1 it is being drawn, 0 neither.
ATARI_FN inline int reset_when(uint32_t nusiz, int old_x, int new_x) {
  const int width = nusiz == 5 ? 16 : nusiz == 7 ? 32 : 8;
  int when = 0;
  for (int x = new_x; x < 160 + 72 + 5; x += 160) {
    for (uint32_t k = 0; k < 4; k++) {
      if (k && !(copies(nusiz) >> (k - 1) & 1)) continue;
      const int passed = x - old_x - (k ? 8 << k : 0);
      if (passed >= 0 && passed < 4) when = -1;
      if (passed >= 4 && passed < 4 + width) when = 1;
    }
  }
  return when;
}

ATARI_SLOW inline void reset_player(Machine& m, uint32_t k, int32_t clock) {
  Tia& t = m.s.tia;
  const int beam = (clock - t.frame_start) % kLine;
  const int x = beam < kBlank ? 3 : (beam - kBlank + 5) % kWidth;
  const int when = reset_when(t.nusiz[k] & 7, t.pos[k ? P1 : P0], x);
  if (when == 1) draw_to(m, clock + 11);
  t.pos[k ? P1 : P0] = uint8_t(x);
  t.skip_first[k] = when != -1;
  t.stale |= k ? 1 << P1 : 1 << P0;
}

// Missiles and the ball. Soon after an HMOVE they come to lie elsewhere. Of ale-py's cases, these are the ones that the
// supported games reach: Battle Zone the first, and Robotank the second.
ATARI_SLOW inline void reset_small(Tia& t, uint32_t object, int32_t clock) {
  const int beam = (clock - t.frame_start) % kLine, since = minus(clock, t.last_hmove) / 3;
  int x = beam < kBlank ? 2 : (beam - kBlank + 4) % kWidth;
  if (object == M0 && since == 20 && beam == 69) x = 8;
  if (object == BL && since == 7 && beam == 30) x = 6;
  t.pos[object] = uint8_t(x);
  if (object == M0) t.m0_shape = 0;
  t.stale |= uint8_t(1u << object);
}

ATARI_INLINE void write_vsync(State& s, uint8_t value, int32_t clock) {
  Tia& t = s.tia;
  t.vsync = value;
  if (value & 2) {
    t.vsync_finish = clock + kLine;
  } else if (clock >= t.vsync_finish) {
    t.vsync_finish = kNever;
    s.stop = 1;
    s.partial = 0;
  }
}

ATARI_INLINE void write_vblank(State& s, uint8_t value) {
  Tia& t = s.tia;
  if (!(t.vblank & 0x80) && (value & 0x80)) t.dumped = 1;
  if ((t.vblank & 0x80) && !(value & 0x80)) {
    t.dumped = 0;
    t.dump_end = s.cycles;
  }
  t.vblank = value;
}

// The missile is kept in the middle of the player until it is released.
ATARI_INLINE void write_resmp(Tia& t, uint32_t k, uint8_t value) {
  if (t.resmp[k] && !(value & 2)) {
    const uint32_t nusiz = t.nusiz[k] & 7, middle = nusiz == 5 ? 8 : nusiz == 7 ? 16 : 4;
    const uint32_t x = t.pos[k ? P1 : P0] + middle;
    t.pos[k ? M1 : M0] = uint8_t(x >= kWidth ? x - kWidth : x);
    if (!k) t.m0_shape = 0;
    t.stale |= k ? 1 << M1 : 1 << M0;
  }
  t.resmp[k] = value & 2;
  update_missile(t, k);
}

// Color clocks after the end of the writing instruction until the picture changes, by register.
ATARI_INLINE int32_t write_delay(const Tia& t, uint32_t reg, int32_t clock) {
  if (reg >= 0x0D && reg <= 0x0F) {  // the playfield, by the phase of its pixels
    constexpr uint32_t delays = 3u << 24 | 2u << 16 | 5u << 8 | 4u;
    const uint32_t cycle = uint32_t((clock - t.frame_start) % kLine) / 3;
    return int32_t(delays >> (8 * (cycle & 3)) & 0xFF);
  }
  if (reg == 0x04 || reg == 0x05 || reg == 0x12 || reg == 0x13) return 8;
  return reg == 0x01 || reg == 0x0B || reg == 0x0C || reg == 0x1B || reg == 0x1C;
}

ATARI_INLINE void write_playfield(Tia& t, uint32_t reg, uint8_t value) {
  if (reg == 0x0D) t.pf = (t.pf & 0xFFFF0) | value >> 4;
  if (reg == 0x0E) t.pf = (t.pf & 0xFF00F) | reverse8(value) << 4;
  if (reg == 0x0F) t.pf = (t.pf & 0x00FFF) | uint32_t(value) << 12;
  t.stale |= 1 << PF;
  show(t, PF, t.pf);
}

ATARI_INLINE void write_ctrlpf(Tia& t, uint8_t value, int32_t clock) {
  t.ctrlpf = value;
  if ((clock - t.frame_start) % kLine < kBlank + 79) t.pf_mirrored = value & 1;
  t.stale |= 1 << PF | 1 << BL;
}

// Whether a write has no visible effect, so that nothing needs to be drawn before it.
ATARI_INLINE bool unchanged(const Tia& t, uint32_t reg, uint8_t value) {
  switch (reg) {
    case 0x06: case 0x07: case 0x08: case 0x09: return (t.color[reg - 6] & 0xFE) == (value & 0xFE);
    case 0x0B: case 0x0C: return t.refp[reg - 0x0B] == (value & 8);
    case 0x0D: return (t.pf & 0xF) == value >> 4;
    case 0x0E: return (t.pf >> 4 & 0xFF) == reverse8(value);
    case 0x0F: return t.pf >> 12 == value;
    case 0x1B: return t.grp[0] == value && t.old_grp[1] == t.grp[1];
    case 0x1C: return t.grp[1] == value && t.old_grp[0] == t.grp[0] && t.old_enabl == t.enabl;
    case 0x1D: case 0x1E: return t.enam[reg - 0x1D] == (value & 2);
    case 0x1F: return t.enabl == (value & 2);
    case 0x25: case 0x26: return t.vdelp[reg - 0x25] == (value & 1);
    case 0x27: return t.vdelbl == (value & 1);
    case 0x28: case 0x29: return t.resmp[reg - 0x28] == (value & 2);
    default: return false;
  }
}

ATARI_INLINE void tia_apply(Machine& m, uint32_t reg, uint8_t value, int32_t clock) {
  State& s = m.s;
  Tia& t = s.tia;
  switch (reg) {
    case 0x00: write_vsync(s, value, clock); break;
    case 0x01: write_vblank(s, value); break;
    case 0x04: case 0x05:
      t.nusiz[reg - 4] = value;
      t.skip_first[reg - 4] = 0;
      if (reg == 4) t.m0_shape = 0;
      t.stale |= reg == 4 ? 1 << P0 | 1 << M0 : 1 << P1 | 1 << M1;
      break;
    case 0x06: case 0x07: case 0x08: case 0x09:
      t.color[reg - 6] = (value & 0xFE) | (m.cart.color_loss & t.last_lines & 1);
      break;
    case 0x0A: write_ctrlpf(t, value, clock); break;
    case 0x0B: case 0x0C:
      t.refp[reg - 0x0B] = value & 8;
      update_player(t, reg - 0x0B);
      break;
    case 0x0D: case 0x0E: case 0x0F: write_playfield(t, reg, value); break;
    case 0x10: case 0x11: reset_player(m, reg - 0x10, clock); break;
    case 0x12: reset_small(t, M0, clock); break;
    case 0x13: reset_small(t, M1, clock); break;
    case 0x14: reset_small(t, BL, clock); break;
    case 0x1B:
      t.grp[0] = value;
      t.old_grp[1] = t.grp[1];
      update_player(t, 0);
      update_player(t, 1);
      break;
    case 0x1C:
      t.grp[1] = value;
      t.old_grp[0] = t.grp[0];
      t.old_enabl = t.enabl;
      update_player(t, 0);
      update_player(t, 1);
      update_ball(t);
      break;
    case 0x1D: case 0x1E:
      t.enam[reg - 0x1D] = value & 2;
      update_missile(t, reg - 0x1D);
      break;
    case 0x1F:
      t.enabl = value & 2;
      update_ball(t);
      break;
    case 0x25: case 0x26:
      t.vdelp[reg - 0x25] = value & 1;
      update_player(t, reg - 0x25);
      break;
    case 0x27:
      t.vdelbl = value & 1;
      update_ball(t);
      break;
    case 0x28: case 0x29: write_resmp(t, reg - 0x28, value); break;
    case 0x2A: hmove(t, m.cart, clock); break;
    case 0x2C: t.collisions = 0; break;
    default: break;
  }
}

ATARI_INLINE void write_motion(Tia& t, uint32_t reg, uint8_t value, int32_t clock) {
  constexpr uint32_t objects = BL << 16 | M1 << 12 | M0 << 8 | P1 << 4 | P0;
  const uint32_t object = objects >> (4 * (reg - 0x20)) & 0xF;
  if (object == M0 && minus(clock, t.last_hmove) == 21 * 3 && t.motion[M0] == 7 && value >> 4 == 6) {
    t.stars = 1;
    t.star_count = 0;
  }
  t.motion[object] = value >> 4;
}

// A write at the end of CPU cycle s.cycles; sets s.stop where the frame is complete.
ATARI_SLOW inline void tia_write(Machine& m, uint32_t address, uint8_t value) {
  State& s = m.s;
  Tia& t = s.tia;
  const uint32_t reg = address & 0x3F;
  const int32_t clock = t.accessed = s.cycles * 3;
  if (ATARI_UNLIKELY(clock - t.frame_start >= kLine * (m.cart.max_lines + 1))) {
    draw_to(m, clock + write_delay(t, reg, clock));
    s.stop = 1;
    s.partial = 0;
  }
  if (reg == 0x02) {  // WSYNC
    const int32_t over = (s.cycles - t.frame_start / 3) % 76;
    if (over) s.cycles += 76 - over;
  } else if (reg >= 0x20 && reg <= 0x24) {
    write_motion(t, reg, value, clock);
  } else if (reg == 0x2B) {
    for (int k = 0; k < 5; k++) t.motion[k] = 0;
  } else if (reg < 0x2D && reg != 0x03 && !(reg >= 0x15 && reg <= 0x1A) && !unchanged(t, reg, value)) {
    draw_to(m, clock + write_delay(t, reg, clock));
    tia_apply(m, reg, value, clock);
  }
}

// `last` is the byte that was on the data bus before: the lines that the TIA does not drive keep it.
ATARI_SLOW inline uint8_t tia_read(Machine& m, uint32_t address, uint8_t last) {
  State& s = m.s;
  Tia& t = s.tia;
  const uint32_t reg = address & 0xF, rest = last & 0x3F;
  t.accessed = s.cycles * 3;
  if (reg < 8) {
    draw_to(m, t.accessed);
    const uint32_t pair = t.collisions >> (2 * reg);
    return uint8_t((pair & 1) << 7 | (pair & 2) << 5 | rest);
  }
  if (reg < 0xC) {
    const uint32_t wait = s.input.paddle_wait[reg - 8];
    const bool charged = !wait || (wait != ~0u && !t.dumped && uint32_t(s.cycles) > uint32_t(t.dump_end) + wait);
    return uint8_t((charged ? 0x80 : 0) | rest);
  }
  return uint8_t((reg < 0xE ? s.input.fire[reg - 0xC] : 0) | rest);
}

}  // namespace atari
