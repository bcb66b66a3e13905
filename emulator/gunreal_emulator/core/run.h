// The interpreter: instructions until the frame is complete.
#pragma once
#include "cpu.h"

namespace atari {

constexpr int kFrameInstructions = 25000;  // instructions after which a frame is left unfinished

// The registers are kept in local variables. TIA and RIOT read and may change the cycle count in the state.
#define FETCH() (pc++, *++at_pc)
#define ZP() (last = FETCH(), uint32_t(last))
#define ZPX() (last = FETCH(), uint32_t(uint8_t(last + p.x)))
#define ZPY() (last = FETCH(), uint32_t(uint8_t(last + p.y)))
#define ABS() (low = FETCH(), last = FETCH(), uint32_t(low | last << 8))
#define INDEXED(i) (low = FETCH(), last = FETCH(), uint32_t(uint16_t((low | last << 8) + (i))))
#define CROSSED(i) (low = FETCH(), last = FETCH(), cycles += low + (i) > 0xFF, uint32_t(uint16_t((low | last << 8) + (i))))
#define INX() (low = uint8_t(FETCH() + p.x), last = read(uint8_t(low + 1), low), low = read(low, 0), \
               uint32_t(low | last << 8))
#define INY_BASE() (low = FETCH(), last = read(uint8_t(low + 1), low), low = read(low, 0))
#define INY() (INY_BASE(), uint32_t(uint16_t((low | last << 8) + p.y)))
#define INY_CROSSED() (INY_BASE(), cycles += low + p.y > 0xFF, uint32_t(uint16_t((low | last << 8) + p.y)))

#define READ_MODES(base, BODY)                                                              \
  case base + 0x01: { at = INX(); v = read(at, last); BODY; break; }                        \
  case base + 0x05: { at = ZP(); v = read(at, last); BODY; break; }                         \
  case base + 0x09: { v = FETCH(); BODY; break; }                                           \
  case base + 0x0D: { at = ABS(); v = read(at, last); BODY; break; }                        \
  case base + 0x11: { at = INY_CROSSED(); v = read(at, last); BODY; break; }                \
  case base + 0x15: { at = ZPX(); v = read(at, last); BODY; break; }                        \
  case base + 0x19: { at = CROSSED(p.y); v = read(at, last); BODY; break; }                 \
  case base + 0x1D: { at = CROSSED(p.x); v = read(at, last); BODY; break; }
#define MODIFY(op, MODE, BODY) case op: { at = MODE; v = read(at, last); BODY; write(at, v); break; }
#define MODIFY_MODES(base, BODY)          \
  MODIFY(base + 0x06, ZP(), BODY)         \
  MODIFY(base + 0x0E, ABS(), BODY)        \
  MODIFY(base + 0x16, ZPX(), BODY)        \
  MODIFY(base + 0x1E, INDEXED(p.x), BODY)
#define MODIFY_ALL(base, BODY)            \
  MODIFY(base + 0x03, INX(), BODY)        \
  MODIFY(base + 0x07, ZP(), BODY)         \
  MODIFY(base + 0x0F, ABS(), BODY)        \
  MODIFY(base + 0x13, INY(), BODY)        \
  MODIFY(base + 0x17, ZPX(), BODY)        \
  MODIFY(base + 0x1B, INDEXED(p.y), BODY) \
  MODIFY(base + 0x1F, INDEXED(p.x), BODY)
#define LOAD(op, MODE, reg) case op: { at = MODE; reg = read(at, last); p.n = p.nz = reg; break; }
#define STORE(op, MODE, value) case op: { at = MODE; write(at, uint8_t(value)); break; }
#define IGNORE(op, MODE) case op: { at = MODE; read(at, last); break; }
#define FLAG(op, BODY) case op: { BODY; break; }
#define BRANCH(op, condition)                                                     \
  case op: {                                                                      \
    v = FETCH();                                                                  \
    if (condition) {                                                              \
      const uint16_t target = uint16_t(pc + int8_t(v));                           \
      cycles += 1 + ((pc ^ target) > 0xFF);                                       \
      pc = target;                                                                \
      if (op == 0xD0 && v == 0xFB) skip_wait();                                   \
    }                                                                             \
    break;                                                                        \
  }
#define PUSH(value) do { write(0x100u + p.sp, uint8_t(value)); p.sp--; } while (0)
#define PULL() (last = read(0x100u + p.sp, op), p.sp++, read(0x100u + p.sp, last))  // reads where it points to, too
#define NZ(value) p.n = p.nz = (value)
#define TO_A(value) NZ(p.a = uint8_t(value))

// The first CPU cycle of the next scanline.
ATARI_INLINE int32_t next_line(const State& s) {
  const int32_t line = (s.cycles * 3 - s.tia.frame_start) / kLine + 1;
  return (s.tia.frame_start + line * kLine + 2) / 3;
}

// Runs at most `budget` instructions and returns how many are left: none when s.stop is set. With kOneLine, it also returns
// when a scanline is complete.
template <bool kOneLine = false>
ATARI_FN inline int run(Machine& m, int budget) {
  State& s = m.s;
  const Cartridge& cart = m.cart;
  Cpu p = s.cpu;
  uint16_t pc = p.pc;
  int32_t cycles = s.cycles;
  const int32_t line_end = kOneLine ? next_line(s) : 0;
  Window window = window_at(s, cart, pc);
  uint8_t bytes[3];

  auto read = [&](uint32_t address, uint8_t last) ATARI_INLINED -> uint8_t {
    if (in_ram(address)) return s.riot.ram[address & 0x7F];
    const uint32_t offset = address - window.from;
    if (ATARI_LIKELY(offset < window.size)) return window.bytes[offset];
    s.cycles = cycles;
    const uint32_t value = read_far(m, address, last);
    if (ATARI_UNLIKELY(value & kTouched)) window.size = 0;
    return uint8_t(value);
  };
  auto write = [&](uint32_t address, uint8_t value) ATARI_INLINED {
    if (in_ram(address)) {
      s.riot.ram[address & 0x7F] = value;
    } else {
      s.cycles = cycles;
      write_chips(m, address, value);
      if (ATARI_UNLIKELY(address & 0x1000)) window.size = 0;
      cycles = s.cycles;
      if (ATARI_UNLIKELY(s.stop)) budget = 0;
    }
  };

  // Called where BNE jumps five bytes back: skips the rounds of LDA, LDX or LDY INTIM, BNE in which the timer is not zero yet.
  auto skip_wait = [&]() ATARI_INLINED {
    const uint32_t offset = uint32_t(pc) - window.from;
    if (offset >= window.size) return;
    const uint8_t* code = window.bytes + offset;
    if (uint8_t(code[0] - 0xAC) > 2 || code[1] != 0x84 || code[2] != 0x02) return;
    const int32_t round = 7 + ((pc ^ uint16_t(pc + 5)) > 0xFF);
    const int32_t rest = rounds_until_zero(s.riot, cycles + 4, round);
    const int32_t rounds = rest < budget / 2 ? rest : budget / 2;
    cycles += rounds * round;
    budget -= rounds * 2;
  };

  while (budget > 0 && !(kOneLine && cycles >= line_end)) {
    budget--;
    uint8_t op, low = 0, last = 0, v = 0;
    const uint8_t* at_pc;
    uint32_t offset = uint32_t(pc) - window.from;
    if (ATARI_UNLIKELY(offset >= window.size)) {
      window = window_at(s, cart, pc);
      offset = uint32_t(pc) - window.from;
    }
    if (ATARI_LIKELY(offset < window.size)) {
      at_pc = window.bytes + offset;
      op = *at_pc;
      cycles += int32_t(base_cycles(op));
    } else {  // fetched bytes are read like others, before anything else takes place
      op = bytes[0] = read(pc, 0);
      cycles += int32_t(base_cycles(op));
      for (uint32_t k = 1; k <= operand_bytes(op); k++) bytes[k] = read(uint16_t(pc + k), 0);
      at_pc = bytes;
    }
    pc++;
    uint32_t at = 0;
    switch (op) {
      READ_MODES(0x00, TO_A(p.a | v))
      READ_MODES(0x20, TO_A(p.a & v))
      READ_MODES(0x40, TO_A(p.a ^ v))
      READ_MODES(0x60, add(p, v))
      READ_MODES(0xA0, TO_A(v))
      READ_MODES(0xC0, compare(p, p.a, v))
      READ_MODES(0xE0, subtract(p, v))
      case 0xEB: { subtract(p, FETCH()); break; }

      STORE(0x81, INX(), p.a) STORE(0x85, ZP(), p.a) STORE(0x8D, ABS(), p.a) STORE(0x91, INY(), p.a)
      STORE(0x95, ZPX(), p.a) STORE(0x99, INDEXED(p.y), p.a) STORE(0x9D, INDEXED(p.x), p.a)
      STORE(0x84, ZP(), p.y) STORE(0x94, ZPX(), p.y) STORE(0x8C, ABS(), p.y)
      STORE(0x86, ZP(), p.x) STORE(0x96, ZPY(), p.x) STORE(0x8E, ABS(), p.x)
      STORE(0x83, INX(), p.a & p.x) STORE(0x87, ZP(), p.a & p.x) STORE(0x8F, ABS(), p.a & p.x) STORE(0x97, ZPY(), p.a & p.x)

      case 0xA2: { NZ(p.x = FETCH()); break; }
      LOAD(0xA6, ZP(), p.x) LOAD(0xB6, ZPY(), p.x) LOAD(0xAE, ABS(), p.x) LOAD(0xBE, CROSSED(p.y), p.x)
      case 0xA0: { NZ(p.y = FETCH()); break; }
      LOAD(0xA4, ZP(), p.y) LOAD(0xB4, ZPX(), p.y) LOAD(0xAC, ABS(), p.y) LOAD(0xBC, CROSSED(p.x), p.y)
      LOAD(0xA3, INX(), p.x = p.a) LOAD(0xA7, ZP(), p.x = p.a) LOAD(0xAF, ABS(), p.x = p.a)
      LOAD(0xB3, INY_CROSSED(), p.x = p.a) LOAD(0xB7, ZPY(), p.x = p.a) LOAD(0xBF, CROSSED(p.y), p.x = p.a)

      MODIFY_MODES(0x00, v = shift_left(p, v, 0))
      MODIFY_MODES(0x20, v = shift_left(p, v, p.c))
      MODIFY_MODES(0x40, v = shift_right(p, v, 0))
      MODIFY_MODES(0x60, v = shift_right(p, v, p.c))
      MODIFY_MODES(0xC0, NZ(--v))
      MODIFY_MODES(0xE0, NZ(++v))
      MODIFY_ALL(0x00, v = shift_left(p, v, 0); TO_A(p.a | v))
      MODIFY_ALL(0x20, v = shift_left(p, v, p.c); TO_A(p.a & v))
      MODIFY_ALL(0x40, v = shift_right(p, v, 0); TO_A(p.a ^ v))
      MODIFY_ALL(0x60, v = shift_right(p, v, p.c); add(p, v))
      MODIFY_ALL(0xC0, --v; compare(p, p.a, v))
      MODIFY_ALL(0xE0, ++v; subtract(p, v))
      FLAG(0x0A, p.a = shift_left(p, p.a, 0)) FLAG(0x2A, p.a = shift_left(p, p.a, p.c))
      FLAG(0x4A, p.a = shift_right(p, p.a, 0)) FLAG(0x6A, p.a = shift_right(p, p.a, p.c))

      case 0xE0: { compare(p, p.x, FETCH()); break; }
      case 0xE4: { at = ZP(); compare(p, p.x, read(at, last)); break; }
      case 0xEC: { at = ABS(); compare(p, p.x, read(at, last)); break; }
      case 0xC0: { compare(p, p.y, FETCH()); break; }
      case 0xC4: { at = ZP(); compare(p, p.y, read(at, last)); break; }
      case 0xCC: { at = ABS(); compare(p, p.y, read(at, last)); break; }
      case 0x24: { at = ZP(); v = read(at, last); p.n = v; p.v = v >> 6 & 1; p.nz = p.a & v; break; }
      case 0x2C: { at = ABS(); v = read(at, last); p.n = v; p.v = v >> 6 & 1; p.nz = p.a & v; break; }

      BRANCH(0x10, !(p.n & 0x80)) BRANCH(0x30, p.n & 0x80) BRANCH(0x50, !p.v) BRANCH(0x70, p.v)
      BRANCH(0x90, !p.c) BRANCH(0xB0, p.c) BRANCH(0xD0, p.nz) BRANCH(0xF0, !p.nz)

      FLAG(0x18, p.c = 0) FLAG(0x38, p.c = 1) FLAG(0x58, p.i = 0) FLAG(0x78, p.i = 1)
      FLAG(0xB8, p.v = 0) FLAG(0xD8, p.d = 0) FLAG(0xF8, p.d = 1)
      FLAG(0xAA, NZ(p.x = p.a)) FLAG(0xA8, NZ(p.y = p.a)) FLAG(0x8A, NZ(p.a = p.x)) FLAG(0x98, NZ(p.a = p.y))
      FLAG(0xBA, NZ(p.x = p.sp)) FLAG(0x9A, p.sp = p.x)
      FLAG(0xE8, NZ(++p.x)) FLAG(0xCA, NZ(--p.x)) FLAG(0xC8, NZ(++p.y)) FLAG(0x88, NZ(--p.y))
      FLAG(0x48, PUSH(p.a)) FLAG(0x08, PUSH(status(p)))
      FLAG(0x68, TO_A(PULL())) FLAG(0x28, v = PULL(); set_status(p, v))

      case 0x4C: { at = ABS(); pc = uint16_t(at); break; }
      case 0x6C: {
        at = ABS();
        low = read(at, last);
        pc = uint16_t(low | read((at & 0xFF00) | uint8_t(at + 1), low) << 8);
        break;
      }
      case 0x20: {
        low = FETCH();
        PUSH(pc >> 8);
        PUSH(pc);
        last = read(pc, 0);
        pc = uint16_t(low | last << 8);
        break;
      }
      case 0x60: {
        low = PULL();
        pc = uint16_t((low | PULL() << 8) + 1);
        break;
      }
      case 0x40: {
        v = PULL();
        set_status(p, v);
        low = PULL();
        pc = uint16_t(low | PULL() << 8);
        break;
      }
      case 0x00: {
        pc++;
        p.b = 1;
        PUSH(pc >> 8);
        PUSH(pc);
        PUSH(status(p));
        p.i = 1;
        low = read(0xFFFE, 0);
        pc = uint16_t(low | read(0xFFFF, 0) << 8);
        break;
      }

      // Opcodes without a name in the manual.
      case 0x0B: case 0x2B: { TO_A(p.a & FETCH()); p.c = p.a >> 7; break; }
      case 0x4B: { v = p.a & FETCH(); p.a = shift_right(p, v, 0); break; }
      case 0x6B: { and_rotate(p, FETCH()); break; }
      case 0x8B: { TO_A((p.a | 0xEE) & p.x & FETCH()); break; }
      case 0xAB: { TO_A(p.x = uint8_t((p.a | 0xEE) & FETCH())); break; }
      case 0xBB: { at = CROSSED(p.y); TO_A(p.x = p.sp = read(at, last) & p.sp); break; }
      case 0xCB: { v = FETCH(); low = p.a & p.x; p.c = low >= v; NZ(p.x = uint8_t(low - v)); break; }
      case 0x93: { at = INY(); write(at, p.a & p.x & uint8_t((at >> 8) + 1)); break; }
      case 0x9F: { at = INDEXED(p.y); write(at, p.a & p.x & uint8_t((at >> 8) + 1)); break; }
      case 0x9B: { at = INDEXED(p.y); p.sp = p.a & p.x; write(at, p.sp & uint8_t((at >> 8) + 1)); break; }
      case 0x9C: { at = INDEXED(p.x); write(at, p.y & uint8_t((at >> 8) + 1)); break; }
      case 0x9E: { at = INDEXED(p.y); write(at, p.x & uint8_t((at >> 8) + 1)); break; }
      IGNORE(0x04, ZP()) IGNORE(0x44, ZP()) IGNORE(0x64, ZP()) IGNORE(0x0C, ABS())
      IGNORE(0x14, ZPX()) IGNORE(0x34, ZPX()) IGNORE(0x54, ZPX()) IGNORE(0x74, ZPX()) IGNORE(0xD4, ZPX()) IGNORE(0xF4, ZPX())
      IGNORE(0x1C, CROSSED(p.x)) IGNORE(0x3C, CROSSED(p.x)) IGNORE(0x5C, CROSSED(p.x)) IGNORE(0x7C, CROSSED(p.x))
      IGNORE(0xDC, CROSSED(p.x)) IGNORE(0xFC, CROSSED(p.x))
      case 0x80: case 0x82: case 0x89: case 0xC2: case 0xE2: { pc++; break; }
      case 0x1A: case 0x3A: case 0x5A: case 0x7A: case 0xDA: case 0xEA: case 0xFA: break;
      default: {  // the CPU stops forever
        p.jammed = 1;
        pc--;
        budget = 0;
        break;
      }
    }
  }
  p.pc = pc;
  s.cpu = p;
  s.cycles = cycles;
  return budget;
}

#undef FETCH
#undef ZP
#undef ZPX
#undef ZPY
#undef ABS
#undef INDEXED
#undef CROSSED
#undef INX
#undef INY_BASE
#undef INY
#undef INY_CROSSED
#undef READ_MODES
#undef MODIFY
#undef MODIFY_MODES
#undef MODIFY_ALL
#undef LOAD
#undef STORE
#undef IGNORE
#undef FLAG
#undef BRANCH
#undef PUSH
#undef PULL
#undef NZ
#undef TO_A

}  // namespace atari
