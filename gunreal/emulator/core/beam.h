// Picture and collisions of the TIA. `draw_to` is called before anything visible changes, so drawing is as late as possible.
#pragma once
#include "pixels.h"

namespace atari {

// The running console and its screen.
struct Machine {
  State& s;
  const Cartridge& cart;
  uint8_t* screen;  // palette indices [height, 160], 8-byte aligned, or null: collisions only
};

// Pairs of objects that collide, two for each of the eight collision registers: the one of bit 7, then that of bit 6.
ATARI_INLINE uint32_t pair_of(uint32_t k) {  // objects a | b << 4
  constexpr uint64_t low = uint64_t(M0 | P1 << 4) | uint64_t(M0 | P0 << 4) << 8 | uint64_t(M1 | P0 << 4) << 16 |
                           uint64_t(M1 | P1 << 4) << 24 | uint64_t(P0 | PF << 4) << 32 | uint64_t(P0 | BL << 4) << 40 |
                           uint64_t(P1 | PF << 4) << 48 | uint64_t(P1 | BL << 4) << 56;
  constexpr uint64_t high = uint64_t(M0 | PF << 4) | uint64_t(M0 | BL << 4) << 8 | uint64_t(M1 | PF << 4) << 16 |
                            uint64_t(M1 | BL << 4) << 24 | uint64_t(BL | PF << 4) << 32 | uint64_t(0) << 40 |
                            uint64_t(P0 | P1 << 4) << 48 | uint64_t(M0 | M1 << 4) << 56;
  return uint32_t((k < 8 ? low : high) >> (8 * (k & 7))) & 0xFF;
}

// The pairs that contain an object.
ATARI_FN constexpr uint32_t pairs_with(uint32_t o) {
  return o == P0   ? 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 14
         : o == M0 ? 1 << 0 | 1 << 1 | 1 << 8 | 1 << 9 | 1 << 15
         : o == P1 ? 1 << 0 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 14
         : o == M1 ? 1 << 2 | 1 << 3 | 1 << 10 | 1 << 11 | 1 << 15
         : o == BL ? 1 << 5 | 1 << 7 | 1 << 9 | 1 << 11 | 1 << 12
                   : 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 12;
}

ATARI_INLINE uint32_t possible_pairs(uint32_t visible) {
  uint32_t none = 1 << 13;
  for (uint32_t o = 0; o < kObjects; o++) none |= visible >> o & 1 ? 0 : pairs_with(o);
  return ~none & 0xFFFF;
}

// Bits x0 to x1 - 1 of the 64 that start at bit 64 * word.
ATARI_INLINE uint64_t range_bits(int x0, int x1, int word) {
  const int from = x0 - 64 * word, to = x1 - 64 * word;
  if (from >= 64 || to <= 0) return 0;
  uint64_t bits = to >= 64 ? ~0ull : (1ull << to) - 1;
  return from > 0 ? bits & ~0ull << from : bits;
}

ATARI_INLINE void collide(Tia& t, int x0, int x1) {
  uint32_t pairs = possible_pairs(t.visible) & ~uint32_t(t.collisions);
  const int first = x0 >> 6, last = (x1 - 1) >> 6;
  for (uint32_t k = 0; pairs; k++, pairs >>= 1) {
    if (!(pairs & 1)) continue;
    const uint64_t *a = t.mask[pair_of(k) & 0xF], *b = t.mask[pair_of(k) >> 4];
    for (int w = first; w <= last; w++) {
      if (a[w] & b[w] & range_bits(x0, x1, w)) {
        t.collisions |= uint16_t(1u << k);
        break;
      }
    }
  }
}

ATARI_INLINE void fill(uint8_t* row, int x0, int x1, uint8_t color) {
  for (int x = x0; x < x1; x++) row[x] = color;
}

// Draws pixels x0 to x1 - 1 of the current row. All masks must be up to date.
ATARI_INLINE void paint(const Tia& t, uint8_t* row, int x0, int x1) {
  constexpr uint64_t ones = 0x0101010101010101ull;
  const uint64_t colors[4] = {t.color[0] * ones, t.color[1] * ones, t.color[2] * ones, t.color[3] * ones};
  const bool front = t.ctrlpf & 4, score = (t.ctrlpf & 6) == 2;
  for (int w = x0 >> 6; w <= (x1 - 1) >> 6; w++) {
    uint64_t o[kObjects];
    for (uint32_t k = 0; k < kObjects; k++) o[k] = t.visible >> k & 1 ? t.mask[k][w] : 0;
    uint64_t first = o[P0] | o[M0], second = o[P1] | o[M1], third = o[PF] | o[BL];
    if (front) {
      first &= ~third;
      second &= ~third;
    } else if (score) {  // the playfield's halves are drawn as parts of the players
      const uint64_t left = w == 0 ? ~0ull : w == 1 ? 0xFFFF : 0;
      first |= o[PF] & left;
      second |= o[PF] & ~left;
      third = o[BL];
    }
    second &= ~first;
    third &= ~(first | second);
    const uint64_t rest = ~(first | second | third), range = range_bits(x0, x1, w);
    const int begin = x0 > 64 * w ? (x0 >> 3) & 7 : 0, end = x1 >= 64 * w + 64 ? 8 : ((x1 - 64 * w) + 7) >> 3;
    for (int b = begin; b < end; b++) {
      uint64_t* out = reinterpret_cast<uint64_t*>(row + 64 * w + 8 * b);
      const int shift = 8 * b;
      const uint32_t inside = range >> shift & 0xFF;
      uint64_t pixels;
      if ((rest >> shift & 0xFF) == 0xFF) {
        pixels = colors[3];
      } else {
        pixels = (spread(first >> shift & 0xFF) & colors[0]) | (spread(second >> shift & 0xFF) & colors[1]) |
                 (spread(third >> shift & 0xFF) & colors[2]) | (spread(rest >> shift & 0xFF) & colors[3]);
      }
      if (inside == 0xFF) {
        *out = pixels;
      } else {
        const uint64_t mine = spread(inside);
        *out = (*out & ~mine) | (pixels & mine);
      }
    }
  }
}

ATARI_INLINE void segment(Machine& m, int x0, int x1) {
  Tia& t = m.s.tia;
  if (t.vblank & 2) {
    if (m.screen) fill(m.screen + t.row * kWidth, x0, x1, 0);
  } else {
    if (m.screen || (t.visible & (t.visible - 1))) refresh_masks(t, t.visible);
    if (t.visible & (t.visible - 1)) collide(t, x0, x1);
    if (m.screen) paint(t, m.screen + t.row * kWidth, x0, x1);
  }
  if (t.hmove_blank && x0 < 8) {
    if (m.screen) fill(m.screen + t.row * kWidth, x0, x1 < 8 ? x1 : 8, 0);
    if (x1 >= 8) t.hmove_blank = 0;
  }
}

// Some games move a missile by strobing HMM0 some time after HMOVE, such as Cosmic Ark for its stars.
ATARI_INLINE void move_stars(Tia& t) {
  constexpr uint32_t steps = 17u << 24 | 0u << 16 | 33u << 8 | 18u;
  t.star_count = (t.star_count + 1) & 3;
  int x = int(t.pos[M0]) - int(steps >> (8 * t.star_count) & 0xFF);
  t.pos[M0] = uint8_t(x < 0 ? x + kWidth : x);
  t.m0_shape = t.star_count == 1 ? 1 : t.star_count == 2 ? 2 : 0;
  t.stale |= 1 << M0;
}

ATARI_INLINE void end_line(Tia& t) {
  t.row++;
  if (t.pf_mirrored != (t.ctrlpf & 1)) {
    t.pf_mirrored = t.ctrlpf & 1;
    t.stale |= 1 << PF;
  }
  if (t.skip_first[0] | t.skip_first[1]) {
    if (t.skip_first[0]) t.stale |= 1 << P0;
    if (t.skip_first[1]) t.stale |= 1 << P1;
    t.skip_first[0] = t.skip_first[1] = 0;
  }
  if (t.stars) move_stars(t);
}

ATARI_SLOW inline void draw_lines(Machine& m, int32_t clock) {
  Tia& t = m.s.tia;
  if (clock > t.display_stop) clock = t.display_stop;
  do {
    const int from = kLine - t.line_left;
    int to;
    if (clock > t.drawn + t.line_left) {
      to = kLine;
      t.drawn += t.line_left;
      t.line_left = kLine;
    } else {
      to = from + (clock - t.drawn);
      t.line_left = int16_t(kLine - to);
      t.drawn = clock;
    }
    const int x0 = from < kBlank ? 0 : from - kBlank, x1 = to - kBlank;
    if (x1 > x0) segment(m, x0, x1);
    if (t.line_left == kLine) end_line(t);
  } while (t.drawn < clock);
}

// Draws the pixels that the beam passes until `clock`.
ATARI_INLINE void draw_to(Machine& m, int32_t clock) {
  const Tia& t = m.s.tia;
  if (clock < t.display_start || t.drawn >= t.display_stop || t.drawn >= clock) return;
  draw_lines(m, clock);
}

}  // namespace atari
