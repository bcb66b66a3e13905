// Objects of a scanline as masks of 160 bits, the leftmost pixel lowest.
#pragma once
#include "state.h"

namespace atari {

// Copies of players and missiles by NUSIZ: a bit for the copies at 16, 32 and 64 pixels, four bits a mode.
ATARI_INLINE uint32_t copies(uint32_t nusiz) { return 0x06043210u >> (nusiz * 4) & 0xF; }

ATARI_INLINE uint32_t reverse8(uint32_t x) {
  x = (x & 0x55) << 1 | (x >> 1 & 0x55);
  x = (x & 0x33) << 2 | (x >> 2 & 0x33);
  return (x & 0x0F) << 4 | x >> 4;
}

ATARI_INLINE uint32_t reverse20(uint32_t x) {
  return reverse8(x & 0xFF) << 12 | reverse8(x >> 8 & 0xFF) << 4 | (reverse8(x >> 12) & 0xF);
}

// Every bit twice.
ATARI_INLINE uint32_t twice(uint32_t x) {
  x = (x | x << 8) & 0x00FF00FF;
  x = (x | x << 4) & 0x0F0F0F0F;
  x = (x | x << 2) & 0x33333333;
  x = (x | x << 1) & 0x55555555;
  return x * 3;
}

// Every one of 16 bits four times.
ATARI_INLINE uint64_t fourfold(uint64_t x) {
  x = (x | x << 24) & 0x000000FF000000FFull;
  x = (x | x << 12) & 0x000F000F000F000Full;
  x = (x | x << 6) & 0x0303030303030303ull;
  x = (x | x << 3) & 0x1111111111111111ull;
  return x * 15;
}

// Adds a pattern of at most 32 pixels at a position, around the right edge where it reaches that far.
ATARI_INLINE void place(uint64_t* mask, uint64_t pattern, uint32_t position) {
  if (position >= kWidth) position -= kWidth;
  const uint32_t word = position >> 6, shift = position & 63;
  const uint64_t low = pattern << shift, high = shift ? pattern >> (64 - shift) : 0;
  if (word == 0) {
    mask[0] |= low;
    mask[1] |= high;
  } else if (word == 1) {
    mask[1] |= low;
    mask[2] |= high;
  } else {
    mask[2] |= low & 0xFFFFFFFF;
    mask[0] |= low >> 32;
  }
}

ATARI_INLINE void place_copies(uint64_t* mask, uint64_t pattern, uint32_t position, uint32_t nusiz, bool skip_first) {
  const uint32_t further = copies(nusiz);
  mask[0] = mask[1] = mask[2] = 0;
  if (!skip_first) place(mask, pattern, position);
  if (further & 1) place(mask, pattern, position + 16);
  if (further & 2) place(mask, pattern, position + 32);
  if (further & 4) place(mask, pattern, position + 64);
}

ATARI_INLINE void player_mask(Tia& t, uint32_t which) {
  const uint32_t nusiz = t.nusiz[which] & 7, position = t.pos[which ? P1 : P0];
  const uint32_t pattern = reverse8(t.shown[which]);
  uint64_t* mask = t.mask[which ? P1 : P0];
  if (nusiz == 5) {  // wide players come a pixel late
    place_copies(mask, twice(pattern), position + 1, nusiz, t.skip_first[which]);
  } else if (nusiz == 7) {
    place_copies(mask, fourfold(pattern), position + 1, nusiz, t.skip_first[which]);
  } else {
    place_copies(mask, pattern, position, nusiz, t.skip_first[which]);
  }
}

ATARI_INLINE void missile_mask(Tia& t, uint32_t which) {
  uint32_t size = t.nusiz[which] >> 4 & 3;
  uint64_t* mask = t.mask[which ? M1 : M0];
  if (which == 0 && t.m0_shape == 2) {
    mask[0] = mask[1] = mask[2] = 0;
    return;
  }
  if (which == 0 && t.m0_shape == 1) size |= 1;
  place_copies(mask, (1u << (1u << size)) - 1, t.pos[which ? M1 : M0], t.nusiz[which] & 7, false);
}

ATARI_INLINE void playfield_mask(Tia& t) {
  const uint64_t right = t.pf_mirrored ? reverse20(t.pf) : t.pf, line = t.pf | right << 20;
  t.mask[PF][0] = fourfold(line & 0xFFFF);
  t.mask[PF][1] = fourfold(line >> 16 & 0xFFFF);
  t.mask[PF][2] = fourfold(line >> 32);
}

// Brings up to date the masks of `objects`, a bit for each.
ATARI_INLINE void refresh_masks(Tia& t, uint32_t objects) {
  const uint32_t stale = t.stale & objects;
  if (ATARI_LIKELY(!stale)) return;
  t.stale &= uint8_t(~stale);
  if (stale >> PF & 1) playfield_mask(t);
  if (stale >> P0 & 1) player_mask(t, 0);
  if (stale >> P1 & 1) player_mask(t, 1);
  if (stale >> M0 & 1) missile_mask(t, 0);
  if (stale >> M1 & 1) missile_mask(t, 1);
  if (stale >> BL & 1) {
    uint64_t* mask = t.mask[BL];
    mask[0] = mask[1] = mask[2] = 0;
    place(mask, (1u << (1u << (t.ctrlpf >> 4 & 3))) - 1, t.pos[BL]);
  }
}

// 0xFF in the bytes of eight pixels whose bits are set.
ATARI_INLINE uint64_t spread(uint64_t bits) {
  const uint64_t chosen = (bits * 0x0101010101010101ull) & 0x8040201008040201ull;
  return ((chosen + 0x7F7F7F7F7F7F7F7Full) >> 7 & 0x0101010101010101ull) * 255;
}

}  // namespace atari
