// Games, their start states and the protocol as one block without pointers, which CPU and GPU read wherever it lies.
#pragma once
#include "agent.h"
#include "resize.h"

namespace atari {

// Offsets are in bytes from the pack's beginning; zero is null.

// One axis of Scaling in resize.h.
struct PackedAxis {
  struct Cell { int32_t first, count; };
  int64_t cells, weights;  // Cell [size of the result], float [size of the result, most]
  int32_t most;
};

struct PackedGame {
  Game game;              // its pointers hold offsets
  int64_t starts;         // Player [Protocol::noop_max + 1], by the number of no-ops
  int64_t start_screens;  // their pictures [noop_max + 1, 2, height, 160]
  int32_t actions[18];    // of the console, by the agent's action
  int32_t action_count;
  uint8_t palette[768];   // [channels, 256]
  PackedAxis rows, columns;
  Filter filter;
};

struct Pack {
  Protocol protocol;
  int32_t games;          // PackedGame [games] follows
  int32_t rows;           // of the largest screen; the pictures of each console take 2 * rows * 160 bytes
  int64_t bytes;

  // The index of a game, or of the first one if there is no such game, as in a state of consoles with more games.
  ATARI_FN int index(int k) const { return k >= 0 && k < games ? k : 0; }
  ATARI_FN const PackedGame* game(int k) const { return reinterpret_cast<const PackedGame*>(this + 1) + index(k); }
  template <class T>
  ATARI_FN const T* at(int64_t offset) const {
    return offset ? reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(this) + offset) : nullptr;
  }
  ATARI_FN size_t screens_size() const { return size_t(2) * rows * kWidth; }

  // A game with pointers into the pack.
  ATARI_FN Game unpack(int k) const {
    Game g = game(k)->game;
    relocate(g.cart.rom);
    relocate(g.rules.over);
    relocate(g.rules.score);
    relocate(g.rules.reward);
    relocate(g.rules.lives);
    relocate(g.rules.flag);
    relocate(g.start);
    return g;
  }

 private:
  template <class T>
  ATARI_FN void relocate(T*& pointer) const {
    pointer = at<T>(reinterpret_cast<intptr_t>(pointer));
  }
};

// Bytes of a console's two pictures.
ATARI_INLINE size_t game_screens_size(const Game& game) { return size_t(2) * game.cart.height * kWidth; }

// The action of the console for an agent's action. An action that the game does not have does nothing.
ATARI_INLINE uint32_t console_action(const PackedGame& game, int32_t action) {
  return action >= 0 && action < game.action_count ? uint32_t(game.actions[action]) : kNoop;
}

// Starts an episode, as `new_episode` does, from a state that has played its no-ops. Returns its two pictures.
ATARI_FN inline const uint8_t* restart_episode(Player& p, const Pack& pack, uint64_t random) {
  const PackedGame& game = *pack.game(p.game);
  const int noops = pack.protocol.noop_max > 0 ? 1 + int(next_random(random) % uint64_t(pack.protocol.noop_max)) : 0;
  p = pack.at<Player>(game.starts)[noops];
  p.random = random;
  return pack.at<uint8_t>(game.start_screens) + noops * game_screens_size(game.game);
}

ATARI_FN inline void packed_episode(Player& p, const Pack& pack, uint8_t* screens, uint64_t random) {
  const uint8_t* from = restart_episode(p, pack, random);
  std::memcpy(screens, from, game_screens_size(pack.game(p.game)->game));
}

}  // namespace atari
