// Picture and collisions of the TIA. `draw_to` is called before anything visible changes, so drawing is as late as possible.
#pragma once
#include <utility>

#include "pixels.h"

namespace atari {

// The running console and its screen.
struct Machine {
  State& s;
  const Cartridge& cart;
  uint8_t* screen;  // palette indices [height, 160], 8-byte aligned, or null: collisions only
};

// Pairs of objects that collide, two for each of the eight collision registers: the one of bit 7, then that of bit 6.
ATARI_INLINE constexpr uint32_t pair_of(uint32_t k) {  // objects a | b << 4
  constexpr uint64_t low = uint64_t(M0 | P1 << 4) | uint64_t(M0 | P0 << 4) << 8 | uint64_t(M1 | P0 << 4) << 16 |
                           uint64_t(M1 | P1 << 4) << 24 | uint64_t(P0 | PF << 4) << 32 | uint64_t(P0 | BL << 4) << 40 |
                           uint64_t(P1 | PF << 4) << 48 | uint64_t(P1 | BL << 4) << 56;
  constexpr uint64_t high = uint64_t(M0 | PF << 4) | uint64_t(M0 | BL << 4) << 8 | uint64_t(M1 | PF << 4) << 16 |
                            uint64_t(M1 | BL << 4) << 24 | uint64_t(BL | PF << 4) << 32 | uint64_t(0) << 40 |
                            uint64_t(P0 | P1 << 4) << 48 | uint64_t(M0 | M1 << 4) << 56;
  return uint32_t((k < 8 ? low : high) >> (8 * (k & 7))) & 0xFF;
}

// The pairs of objects that are both visible, by the bits of `visible`.
ATARI_INLINE constexpr uint16_t pairs_of(uint32_t visible) {
  uint32_t pairs = 0;
  for (uint32_t k = 0; k < 16; k++) {
    const uint32_t pair = pair_of(k);
    if (k != 13 && (visible >> (pair & 0xF) & 1) && (visible >> (pair >> 4) & 1)) pairs |= 1u << k;
  }
  return uint16_t(pairs);
}

// `pairs_of` from a table. In static memory, nvcc initializes lists of constants, but not objects with a constructor: they
// are zero.
template <uint32_t... kVisible>
ATARI_INLINE uint32_t possible_pairs(uint32_t visible, std::integer_sequence<uint32_t, kVisible...>) {
#if defined(__CUDA_ARCH__)
  static __device__ const
#else
  static constexpr
#endif
  uint16_t pairs[] = {pairs_of(kVisible)...};
  return pairs[visible];
}

ATARI_INLINE uint32_t possible_pairs(uint32_t visible) {
  return possible_pairs(visible, std::make_integer_sequence<uint32_t, 1 << kObjects>());
}

// Bits x0 to x1 - 1 of the 64 that start at bit 64 * word.
ATARI_INLINE uint64_t range_bits(int x0, int x1, int word) {
  const int from = x0 - 64 * word, to = x1 - 64 * word;
  if (from >= 64 || to <= 0) return 0;
  uint64_t bits = to >= 64 ? ~0ull : (1ull << to) - 1;
  return from > 0 ? bits & ~0ull << from : bits;
}

// Tests `pairs` for collisions.
ATARI_INLINE void collide(Tia& t, uint32_t pairs, int x0, int x1) {
  const int first = x0 >> 6, last = (x1 - 1) >> 6;
  for (; pairs; pairs &= pairs - 1) {
    const uint32_t k = lowest_bit(pairs);
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

// Draws pixels x0 to x1 - 1 of the 64 from `row` on, with the four colors of the three disjoint masks and of the rest.
ATARI_INLINE void paint_word(uint8_t* row, uint32_t colors, uint64_t first, uint64_t second, uint64_t third, int x0, int x1) {
  const uint64_t low = ~(first | third), high = ~(first | second);  // the two bits of each pixel's color
  const int begin = x0 > 0 ? x0 : 0, end = x1 < 64 ? x1 : 64;
#if defined(ATARI_SSE)
  const __m128i table = _mm_cvtsi32_si128(int(colors)), bits = _mm_set1_epi64x(int64_t(0x8040201008040201ull));
  const __m128i halves = _mm_set_epi64x(0x0101010101010101, 0), one = _mm_set1_epi8(1), two = _mm_set1_epi8(2);
  for (int x = begin & ~15; x < end; x += 16) {
    const auto spread16 = [&](uint64_t mask) ATARI_INLINED {
      const __m128i bytes = _mm_shuffle_epi8(_mm_cvtsi32_si128(int(mask >> x & 0xFFFF)), halves);
      return _mm_cmpeq_epi8(_mm_and_si128(bytes, bits), bits);
    };
    const __m128i which = _mm_or_si128(_mm_and_si128(spread16(low), one), _mm_and_si128(spread16(high), two));
    __m128i pixels = _mm_shuffle_epi8(table, which);
    __m128i* out = reinterpret_cast<__m128i*>(row + x);
    if (x < begin || x + 16 > end) {
      const __m128i mine = spread16(range_bits(begin, end, 0));
      pixels = _mm_or_si128(_mm_and_si128(mine, pixels), _mm_andnot_si128(mine, _mm_loadu_si128(out)));
    }
    _mm_storeu_si128(out, pixels);
  }
#else
  constexpr uint64_t ones = 0x0101010101010101ull;
  const uint64_t c[4] = {(colors & 0xFF) * ones, (colors >> 8 & 0xFF) * ones, (colors >> 16 & 0xFF) * ones, (colors >> 24) * ones};
  for (int x = begin & ~7; x < end; x += 8) {
    const uint64_t l = spread(low >> x & 0xFF), h = spread(high >> x & 0xFF);
    const uint64_t mine = spread(range_bits(begin, end, 0) >> x & 0xFF);
    uint64_t* out = reinterpret_cast<uint64_t*>(row + x);
    *out = (*out & ~mine) | (((h & ((l & c[3]) | (~l & c[2]))) | (~h & ((l & c[1]) | (~l & c[0])))) & mine);
  }
#endif
}

// Draws pixels x0 to x1 - 1 of the current row. All masks must be up to date.
ATARI_INLINE void paint(const Tia& t, uint8_t* row, int x0, int x1) {
  uint32_t colors;
  std::memcpy(&colors, t.color, 4);
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
    paint_word(row + 64 * w, colors, first, second, third, x0 - 64 * w, x1 - 64 * w);
  }
}

ATARI_INLINE void segment(Machine& m, int x0, int x1) {
  Tia& t = m.s.tia;
  if (t.vblank & 2) {
    if (m.screen) fill(m.screen + t.row * kWidth, x0, x1, 0);
  } else {
    const uint32_t pairs = possible_pairs(t.visible) & ~uint32_t(t.collisions);
    if (m.screen || pairs) refresh_masks(t, t.visible);
    collide(t, pairs, x0, x1);
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
