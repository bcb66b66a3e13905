// One console as plain data: copying a State saves or restores it, on a CPU and on a GPU alike.
#pragma once
#include "platform.h"

namespace atari {

constexpr int kWidth = 160;         // visible pixels of a scanline
constexpr int kBlank = 68;          // color clocks of the horizontal blank
constexpr int kLine = 228;          // color clocks of a scanline: three for a CPU cycle
constexpr int32_t kNever = 0x7FFFFFFF;

// The objects that the TIA draws.
enum Object { P0, M0, P1, M1, BL, PF, kObjects };

// Cartridge types, by the names that collectors gave them.
enum Scheme : uint8_t { k2K, k4K, kF8, kF6, kF8SC, kF6SC, kE0, kFE };

// The data that all consoles of a game share.
struct Cartridge {
  const uint8_t* rom;
  uint32_t size;          // bytes
  uint8_t scheme;         // Scheme
  uint8_t paddles;        // 0: joysticks, 1: paddles, 2: paddles whose plugs are swapped
  uint16_t first_line;    // scanline of the first row of the screen
  uint16_t height;        // rows of the screen
  uint16_t max_lines;     // a frame without VSYNC ends after so many scanlines
  uint8_t hmove_blanks;   // bool: HMOVE blackens eight pixels, as it does in hardware; off for some games
  uint8_t color_loss;     // bool: an odd number of scanlines takes the colors away (PAL)
};

struct Cpu {
  uint16_t pc;
  uint8_t a, x, y, sp;
  uint8_t n;   // bit 7 is the flag
  uint8_t nz;  // zero where the flag Z is set
  uint8_t v, b, d, i, c;
  uint8_t jammed;
};

struct Riot {
  uint8_t ram[128];
  int32_t timer_set;        // CPU cycle of the last write to the timer
  uint8_t timer, shift;     // what was written, and the logarithm of its interval
  uint8_t flag_cleared;     // bool: the timer was read after it passed zero
  uint8_t resumed;          // what that read returned, without the intervals before
  uint8_t port_a_direction, port_b_direction;
};

struct Tia {
  // Times are in color clocks, on the scale of State::cycles * 3.
  int32_t frame_start, display_start, display_stop, drawn, vsync_finish, last_hmove, dump_end;
  int32_t accessed;         // the last read or write
  int16_t line_left;        // color clocks to the end of the scanline that is being drawn
  int16_t row;              // of the screen
  int16_t last_lines;       // scanlines of the last frame
  uint64_t mask[kObjects][3];  // pixels of each object on this scanline; valid where `stale` has no bit
  uint32_t pf;              // 20 bits, the leftmost lowest
  uint16_t collisions;      // see kPairs in tia.h
  uint8_t stale;            // a bit for each object
  uint8_t visible;          // a bit for each object that is not empty
  uint8_t pos[5];           // of P0, M0, P1, M1, BL
  uint8_t motion[5];        // HMxx, upper four bits
  uint8_t color[4];         // P0, P1, PF, BK
  uint8_t nusiz[2], ctrlpf, refp[2], grp[2], old_grp[2], enam[2], enabl, old_enabl, vdelp[2], vdelbl, resmp[2];
  uint8_t shown[2];         // player graphics after VDEL and REFP
  uint8_t skip_first[2];    // the first copy of a player is not drawn on this scanline
  uint8_t pf_mirrored;
  uint8_t m0_shape;         // 0: as NUSIZ says, 1: widened, 2: hidden (the star field of Cosmic Ark)
  uint8_t stars, star_count;
  uint8_t hmove_blank;      // the first eight pixels of the next scanline are black
  uint8_t vsync, vblank, dumped;
};

struct Input {
  uint8_t port_a;           // SWCHA as it is read
  uint8_t port_b;           // SWCHB
  uint8_t fire[2];          // INPT4, INPT5: 0x80 where not pressed
  uint32_t paddle_wait[4];  // CPU cycles until INPT0-3 are charged
};

struct State {
  int32_t cycles;           // CPU cycles since shortly before the frame's start
  Cpu cpu;
  Riot riot;
  Tia tia;
  Input input;
  uint16_t bank[4];         // offset of each kilobyte of the cartridge's window
  uint8_t cart_ram[128];
  uint8_t stop;             // the frame is complete
  uint8_t partial;          // the last frame ran out of instructions
  uint8_t buffer;           // which of the two screens was drawn to last
};

}  // namespace atari
