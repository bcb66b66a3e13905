// The 6507: all 256 opcodes. An instruction's reads and writes take place at the end of its last cycle.
#pragma once
#include "bus.h"

namespace atari {

// Cycles of each opcode as hexadecimal digits, without those for taken branches and crossed pages.
ATARI_INLINE uint32_t base_cycles(uint32_t op) {
#if defined(__CUDA_ARCH__)
  static __device__ const
#else
  static constexpr
#endif
  uint8_t cycles[256] = {
      7, 6, 2, 8, 3, 3, 5, 5, 3, 2, 2, 2, 4, 4, 6, 6, 2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
      6, 6, 2, 8, 3, 3, 5, 5, 4, 2, 2, 2, 4, 4, 6, 6, 2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
      6, 6, 2, 8, 3, 3, 5, 5, 3, 2, 2, 2, 3, 4, 6, 6, 2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
      6, 6, 2, 8, 3, 3, 5, 5, 4, 2, 2, 2, 5, 4, 6, 6, 2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
      2, 6, 2, 6, 3, 3, 3, 3, 2, 2, 2, 2, 4, 4, 4, 4, 2, 6, 2, 6, 4, 4, 4, 4, 2, 5, 2, 5, 5, 5, 5, 5,
      2, 6, 2, 6, 3, 3, 3, 3, 2, 2, 2, 2, 4, 4, 4, 4, 2, 5, 2, 5, 4, 4, 4, 4, 2, 4, 2, 4, 4, 4, 4, 4,
      2, 6, 2, 8, 3, 3, 5, 5, 2, 2, 2, 2, 4, 4, 6, 6, 2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7,
      2, 6, 2, 8, 3, 3, 5, 5, 2, 2, 2, 2, 4, 4, 6, 6, 2, 5, 2, 8, 4, 4, 6, 6, 2, 4, 2, 7, 4, 4, 7, 7};
  return cycles[op];
}

// Bytes that an instruction fetches after the opcode. JSR reads its second one after its writes.
ATARI_INLINE uint32_t operand_bytes(uint32_t op) {
  const uint32_t column = op & 0x1F;
  if ((column >= 0x0C && column <= 0x0F) || (column >= 0x19 && column != 0x1A)) return 2;
  if (column == 0x08 || column == 0x0A || column == 0x12 || column == 0x18 || column == 0x1A) return 0;
  if (column == 0x00) return op == 0x20 || op >= 0xA0;
  return column == 0x02 ? op == 0xA2 : op != 0x89;
}

ATARI_INLINE uint8_t status(const Cpu& p) {
  return uint8_t((p.n & 0x80) | (p.v ? 0x40 : 0) | 0x20 | (p.b ? 0x10 : 0) | (p.d ? 8 : 0) | (p.i ? 4 : 0) |
                 (p.nz ? 0 : 2) | (p.c ? 1 : 0));
}

ATARI_INLINE void set_status(Cpu& p, uint8_t value) {
  p.n = value;
  p.v = value >> 6 & 1;
  p.b = value >> 4 & 1;
  p.d = value >> 3 & 1;
  p.i = value >> 2 & 1;
  p.nz = !(value & 2);
  p.c = value & 1;
}

ATARI_INLINE int from_bcd(uint32_t x) { return int((x >> 4) * 10 + (x & 15)); }
ATARI_INLINE uint8_t to_bcd(uint32_t x) { return uint8_t((x / 10 % 10) << 4 | x % 10); }

ATARI_INLINE void add(Cpu& p, uint8_t value) {
  const uint8_t before = p.a;
  if (ATARI_LIKELY(!p.d)) {
    const uint32_t sum = uint32_t(before) + value + p.c;
    p.a = uint8_t(sum);
    p.c = sum > 0xFF;
    p.v = ((before ^ p.a) & (value ^ p.a)) >> 7;
  } else {
    const int sum = from_bcd(before) + from_bcd(value) + p.c;
    p.c = sum > 99;
    p.a = to_bcd(uint32_t(sum & 0xFF));
    p.v = ((before ^ p.a) & (p.a ^ value)) >> 7;
  }
  p.n = p.nz = p.a;
}

ATARI_INLINE void subtract(Cpu& p, uint8_t value) {
  if (ATARI_LIKELY(!p.d)) {
    add(p, uint8_t(~value));
    return;
  }
  const uint8_t before = p.a;
  int difference = from_bcd(before) - from_bcd(value) - !p.c;
  if (difference < 0) difference += 100;
  if (difference < 0) difference += 100;  // only for bytes that are not decimal digits
  p.a = to_bcd(uint32_t(difference));
  p.n = p.nz = p.a;
  p.c = before >= value + !p.c;
  p.v = ((before ^ p.a) & (p.a ^ value)) >> 7;
}

ATARI_INLINE void compare(Cpu& p, uint8_t reg, uint8_t value) {
  p.c = reg >= value;
  p.n = p.nz = uint8_t(reg - value);
}

ATARI_INLINE uint8_t shift_left(Cpu& p, uint8_t value, uint8_t in) {
  p.c = value >> 7;
  return p.n = p.nz = uint8_t(value << 1 | in);
}

ATARI_INLINE uint8_t shift_right(Cpu& p, uint8_t value, uint8_t in) {
  p.c = value & 1;
  return p.n = p.nz = uint8_t(value >> 1 | in << 7);
}

// AND, then ROR of the accumulator with the adder's flags (ARR).
ATARI_INLINE void and_rotate(Cpu& p, uint8_t value) {
  const uint8_t both = p.a & value;
  if (!p.d) {
    p.a = uint8_t(both >> 1 | p.c << 7);
    p.n = p.nz = p.a;
    p.c = p.a >> 6 & 1;
    p.v = (p.a >> 6 ^ p.a >> 5) & 1;
    return;
  }
  uint8_t out = uint8_t(both >> 1 | p.c << 7);
  p.n = uint8_t(p.c << 7);
  p.nz = out;
  p.v = (both ^ out) >> 6 & 1;
  if ((both & 0x0F) + (both & 0x01) > 0x05) out = uint8_t((out & 0xF0) | ((out + 0x06) & 0x0F));
  p.c = (both & 0xF0) + (both & 0x10) > 0x50;
  if (p.c) out = uint8_t((out + 0x60) & 0xFF);
  p.a = out;
}

}  // namespace atari
