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

ATARI_INLINE bool in_ram(uint32_t address) { return (address & 0x1280) == 0x80; }

}  // namespace atari
