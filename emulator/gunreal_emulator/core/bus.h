// Memory accesses through the 13 address lines of the CPU.
#pragma once
#include "cartridge.h"
#include "riot.h"
#include "tia.h"

namespace atari {

ATARI_SLOW inline uint8_t read_chips(Machine& m, uint32_t address, uint8_t last) {
  if (!(address & 0x80)) return tia_read(m, address, last);
  return riot_read(m.s, address);
}

ATARI_SLOW inline void write_chips(Machine& m, uint32_t address, uint8_t value) {
  if (address & 0x1000) {
    cartridge_write(m.s, m.cart, address, value);
  } else if (!(address & 0x80)) {
    tia_write(m, address, value);
  } else {
    riot_write(m.s, address, value);
  }
}

constexpr uint32_t kTouched = 0x100;  // the read may have switched banks

// A read at any address but the RAM's.
ATARI_SLOW inline uint32_t read_far(Machine& m, uint32_t address, uint8_t last) {
  if (!(address & 0x1000)) return read_chips(m, address, last);
  const uint8_t scheme = m.cart.scheme;
  const uint32_t a = address & 0xFFF, plain = plain_from(scheme);
  if (a - plain < plain_to(scheme) - plain) return m.cart.rom[m.s.bank[a >> 10] + (a & 0x3FF)];
  return cartridge_read(m.s, m.cart, address) | kTouched;
}

ATARI_INLINE bool in_ram(uint32_t address) { return (address & 0x1280) == 0x80; }

}  // namespace atari
