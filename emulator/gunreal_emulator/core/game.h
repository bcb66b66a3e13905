// A running game: the console, its input, and the values of the rules.
#pragma once
#include "console.h"
#include "rules.h"

namespace atari {

// The data that all consoles of a game share.
struct Game {
  Cartridge cart;
  Rules rules;
  int32_t initial[kVariables];    // values of the rules' variables before the start actions
  const uint8_t* start;           // actions after the first four frames of RESET
  const uint8_t* first_start;     // the same for the default mode, which ale-py starts when it loads the game
  int32_t start_length, first_length;
  uint8_t difficulty;             // bits 0 and 1: left and right switch at A
  uint8_t right_port;             // bool: the joystick is plugged in on the right
  uint32_t ignored;               // a bit for each action that acts as none, except at the start
  int32_t paddle_high;            // highest resistance of the paddle
  int32_t start_frames;           // start actions that count as frames of the episode
};

// Plain data: a copy is a snapshot.
struct Player {
  State s;
  int32_t variables[kVariables];
  int32_t paddle;                 // resistance
  int32_t frames;                 // since the episode's start
  int32_t noops;                  // frames without input at its start
  uint8_t held;                   // the last action, which a sticky step repeats
  uint8_t done;                   // the episode is over: the next step resets
  uint8_t game;                   // of a pack with several games
  uint64_t random;
};
static_assert(sizeof(Player) < 1024, "a console stays below a kilobyte");

ATARI_INLINE uint64_t next_random(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

// Joystick or paddle and the console's switches for one frame of `action`.
ATARI_INLINE void hold(Player& p, const Game& game, uint32_t action) {
  Input& in = p.s.input;
  const uint32_t stick = action < 18 && !(game.ignored >> action & 1) ? joystick(action) : 0;
  in.port_a = 0xFF;
  in.port_b = uint8_t(0x3F | game.difficulty << 6);
  if (action == kResetSwitch) in.port_b &= ~1;
  if (action == kSelectSwitch) in.port_b &= ~2;
  in.fire[0] = in.fire[1] = 0x80;
  if (game.cart.paddles) {
    if (stick & kLeft) p.paddle = p.paddle + kPaddleStep < game.paddle_high ? p.paddle + kPaddleStep : game.paddle_high;
    if (stick & kRight) p.paddle = p.paddle - kPaddleStep > kPaddleLow ? p.paddle - kPaddleStep : kPaddleLow;
    in.paddle_wait[game.cart.paddles - 1] = paddle_wait(p.paddle);
    if (stick & kFire) in.port_a &= game.cart.paddles == 1 ? 0x7F : 0xBF;
  } else {
    const uint32_t directions = (stick & kUp ? 0x10 : 0) | (stick & kDown ? 0x20 : 0) | (stick & kLeft ? 0x40 : 0) |
                                (stick & kRight ? 0x80 : 0);
    in.port_a = uint8_t(0xFF ^ directions >> (game.right_port ? 4 : 0));
    if (stick & kFire) in.fire[game.right_port] = 0;
  }
}

ATARI_INLINE void release(Player& p, const Game& game) {
  Input& in = p.s.input;
  in.port_a = 0xFF;
  in.port_b = uint8_t(0x3F | game.difficulty << 6);
  in.fire[0] = in.fire[1] = 0x80;
  p.paddle = (kPaddleLow + game.paddle_high) / 2;
  const uint32_t other = game.cart.paddles == 2 ? 0 : ~0u;  // the other port: charged at once, or never
  for (int k = 0; k < 4; k++) in.paddle_wait[k] = game.cart.paddles && k < 2 ? paddle_wait(p.paddle) : other;
}

// Follows each frame; returns its reward.
ATARI_INLINE int32_t count_frame(Player& p, const Game& game) {
  p.frames++;
  return judge(game.rules, {p.s.riot.ram, p.s.cart_ram}, p.variables);
}

// One frame of `action`; returns the reward.
ATARI_FN inline int32_t emulate(Player& p, const Game& game, uint32_t action, uint8_t* screens) {
  hold(p, game, action);
  frame(p.s, game.cart, screens);
  return count_frame(p, game);
}

// From the power switch to the first frame of an episode: 60 frames, four of RESET, then the game's own actions.
ATARI_FN inline void start_episode(Player& p, const Game& game, Noise& noise, uint8_t* screens) {
  release(p, game);
  power(p.s, game.cart, noise);
  for (int k = 0; k < 64; k++) {
    hold(p, game, k < 60 ? kNoop : kResetSwitch);
    frame(p.s, game.cart, screens);
  }
  for (int k = 0; k < kVariables; k++) p.variables[k] = game.initial[k];
  Game opening = game;
  opening.ignored = 0;
  for (int k = 0; k < game.start_length; k++) emulate(p, opening, game.start[k], screens);
  p.frames = game.start_frames;
  p.held = kNoop;
  p.done = 0;
}

// The initial state of a console: random RAM, a program that has run for one second, and a first start in the default
// mode. Both matter to games that keep a part of the RAM.
ATARI_FN inline void boot(Player& p, const Game& game, Noise& noise) {
  p = Player{};
  for (int k = 0; k < 128; k++) p.s.riot.ram[k] = uint8_t(noise.next());
  noise.next();
  release(p, game);
  Cartridge unknown = game.cart;  // in the first second, ale-py does not know yet whether the game is for PAL
  unknown.max_lines = 290;
  power(p.s, unknown, noise);
  for (int f = 0; f < 60; f++) frame(p.s, unknown, nullptr);
  power(p.s, game.cart, noise);
  Game first = game;
  first.start = game.first_start;
  first.start_length = game.first_length;
  first.difficulty = 0;
  start_episode(p, first, noise, nullptr);
}

}  // namespace atari
