// Cartridges: the mapping of the ROM to addresses, and bank switching.
#pragma once
#include "state.h"

namespace atari {

ATARI_INLINE void all_banks(State& s, uint32_t bank) {
  for (uint32_t k = 0; k < 4; k++) s.bank[k] = uint16_t(bank * 4096 + k * 1024);
}

ATARI_FN inline void cartridge_reset(State& s, const Cartridge& cart) {
  switch (cart.scheme) {
    case k2K:
      for (uint32_t k = 0; k < 4; k++) s.bank[k] = uint16_t((k & 1) * 1024);
      break;
    case kF8:
    case kF8SC:
      all_banks(s, 1);
      break;
    case kE0:
      for (uint32_t k = 0; k < 4; k++) s.bank[k] = uint16_t((4 + k) * 1024);
      break;
    default:
      all_banks(s, 0);
  }
}

// Addresses (12 bits) outside [plain_from, plain_to) need `cartridge_touch`, `cartridge_ram` or FE's extra address line.
ATARI_INLINE uint32_t plain_from(uint8_t scheme) {
  return scheme == kF8SC || scheme == kF6SC ? 0x100 : scheme == kFE ? 0x1000 : 0;
}

ATARI_INLINE uint32_t plain_to(uint8_t scheme) {
  return scheme == k2K || scheme == k4K ? 0x1000 : scheme == kE0 ? 0xFE0 : scheme == kF6 || scheme == kF6SC ? 0xFF6
         : scheme == kFE ? 0x1000 : 0xFF8;
}

// Switches banks if the 12-bit address does so.
ATARI_INLINE void cartridge_touch(State& s, uint8_t scheme, uint32_t address) {
  switch (scheme) {
    case kF8:
    case kF8SC:
      if (address >= 0xFF8 && address <= 0xFF9) all_banks(s, address - 0xFF8);
      break;
    case kF6:
    case kF6SC:
      if (address >= 0xFF6 && address <= 0xFF9) all_banks(s, address - 0xFF6);
      break;
    case kE0:
      if (address >= 0xFE0 && address <= 0xFF7) s.bank[(address - 0xFE0) >> 3] = uint16_t((address & 7) * 1024);
      break;
    default:
      break;
  }
}

// Bytes of the ROM that can be read without an effect, from address `from` on, until banks are switched. The two bytes
// that follow can be read as well.
struct Window {
  const uint8_t* bytes;
  uint32_t from, size;
};

// The window around an address, which is empty in RAM and at the last bytes of a bank.
ATARI_SLOW inline Window window_at(const State& s, const Cartridge& cart, uint32_t address) {
  if (!(address & 0x1000)) return Window{cart.rom, 0, 0};
  if (cart.scheme == kFE) return Window{cart.rom + (address & 0x2000 ? 0 : 4096), address & 0xF000, 4094};
  const uint32_t length = cart.scheme == kE0 ? 0x400 : cart.scheme == k2K ? 0x800 : 0x1000;
  const uint32_t start = address & 0xFFF & ~(length - 1), from = plain_from(cart.scheme), to = plain_to(cart.scheme);
  const uint32_t first = start > from ? start : from, last = start + length < to ? start + length : to;
  const uint8_t* bank = cart.rom + s.bank[start >> 10];
  return Window{bank + (first - start), (address & 0xF000) | first, last - first - 2};
}

ATARI_SLOW inline uint8_t cartridge_read(State& s, const Cartridge& cart, uint32_t full_address) {
  uint32_t address = full_address & 0xFFF;
  if (cart.scheme == kFE) return cart.rom[address + (full_address & 0x2000 ? 0 : 4096)];
  cartridge_touch(s, cart.scheme, address);
  if (address < plain_from(cart.scheme)) {  // reading the write port is undefined
    return address < 0x80 ? 0 : s.cart_ram[address & 0x7F];
  }
  return cart.rom[s.bank[address >> 10] + (address & 0x3FF)];
}

ATARI_SLOW inline void cartridge_write(State& s, const Cartridge& cart, uint32_t full_address, uint8_t value) {
  uint32_t address = full_address & 0xFFF;
  cartridge_touch(s, cart.scheme, address);
  if ((cart.scheme == kF8SC || cart.scheme == kF6SC) && address < 0x80) s.cart_ram[address] = value;
}

}  // namespace atari
