// An agent's steps on one console, on a CPU and on a GPU: episodes, frame skip and sticky actions.
#pragma once
#include <cstring>

#include "game.h"

namespace atari {

// Settings of steps and observations, equal for all consoles of a vector.
struct Protocol {
  int32_t frame_skip, noop_max, max_frames;  // frames of a step; no-ops at an episode's start at most; 0: no limit
  int32_t channels, height, width;           // of an observation; channels 1 (gray) or 3 (RGB), 0: none is made
  int32_t maximum;                           // bool: an observation is the maximum of the step's last two frames
  uint32_t sticky;                           // probability of a repeated action, times 2^32
  int32_t life_ends;                         // bool: a lost life ends a step
};

// Bytes of an observation.
ATARI_INLINE size_t frame_size(const Protocol& p) { return size_t(p.channels) * p.height * p.width; }

// Whether fewer lives are left than before, but not none.
ATARI_INLINE bool lost_life(const Player& p, int32_t before) {
  return p.variables[kLives] > 0 && p.variables[kLives] < before;
}

ATARI_INLINE uint64_t seeded_random(uint64_t seed) { return seed * 0xD1342543DE82EF95ull + 1; }

// Starts an episode from the start state and its two pictures.
ATARI_FN inline void new_episode(Player& p, const Game& game, const Protocol& protocol, const Player& start,
                                 const uint8_t* start_screens, uint8_t* screens, bool seeded, uint64_t seed) {
  const uint64_t random = seeded ? seeded_random(seed) : p.random;
  p = start;
  p.random = random;
  std::memcpy(screens, start_screens, size_t(2) * game.cart.height * kWidth);
  if (protocol.noop_max > 0) {
    const int noops = 1 + int(next_random(p.random) % uint64_t(protocol.noop_max));
    for (int f = 0; f < noops && !p.variables[kOver]; f++) emulate(p, game, kNoop, screens);
  }
}

// One agent step, frame by frame: `start`, a frame of p.held, `end`, until it is finished.
//
// Only the last two frames are drawn. If a frame does not fill the screen, parts of earlier frames remain visible. The
// step is then repeated with all frames drawn, starting with the pictures of the last step.
struct AgentStep {
  float reward = 0;
  const uint8_t* earlier = nullptr;  // picture of the second-to-last frame, or null if the observation does not use it
  int frame = 0;
  bool sure;                         // everything that an observation may show is drawn
  bool draws = false;                // this frame is drawn
  bool lacks = false;                // it completes a picture whose first part was not drawn
  bool finished = false;

  ATARI_FN explicit AgentStep(const Protocol& protocol) : sure(protocol.channels == 0) {}

  ATARI_INLINE void start(Player& p, const Game& game, const Protocol& protocol, uint32_t action, uint8_t* screens,
                          uint8_t* spare) {
    const int skip = protocol.frame_skip, half = game.cart.height * kWidth;
    if (!protocol.sticky || (next_random(p.random) >> 32) >= protocol.sticky) p.held = uint8_t(action);
    if (protocol.maximum && skip > 1 && frame == skip - 1) {
      earlier = screens + p.s.buffer * half;
      if (p.s.partial) {  // the next frame draws over this picture
        std::memcpy(spare, earlier, size_t(half));
        earlier = spare;
      }
    }
    const bool drew = draws;
    draws = protocol.channels && (sure || frame >= skip - 2);
    lacks = draws && !drew && frame && p.s.partial;
  }

  // `before` is the state at the step's beginning.
  ATARI_INLINE void end(Player& p, const Player& before, const Protocol& protocol, int32_t gained) {
    const bool whole = p.s.tia.drawn >= p.s.tia.display_stop;
    const bool ended = p.variables[kOver] || (protocol.max_frames && p.frames >= protocol.max_frames) ||
                       (protocol.life_ends && lost_life(p, before.variables[kLives]));
    reward += float(gained);
    if (!sure && (draws ? !whole || lacks : ended)) {
      p = before;
      *this = AgentStep(protocol);
      sure = true;
      return;
    }
    frame++;
    if (ended) earlier = nullptr;
    finished = ended || frame == protocol.frame_skip;
  }
};

// Emulates one agent step. Returns the picture of the second-to-last frame, or null if the observation does not use it.
ATARI_FN inline const uint8_t* advance(Player& p, const Game& game, const Protocol& protocol, uint32_t action,
                                       uint8_t* screens, uint8_t* spare, float& reward) {
  const Player before = p;
  AgentStep step(protocol);
  while (!step.finished) {
    step.start(p, game, protocol, action, screens, spare);
    step.end(p, before, protocol, emulate(p, game, p.held, step.draws ? screens : nullptr));
  }
  reward = step.reward;
  return step.earlier;
}

// Whether the step that has just ended truncates the episode. Sets p.done.
ATARI_INLINE bool end_step(Player& p, const Protocol& protocol) {
  const bool truncated = protocol.max_frames && p.frames >= protocol.max_frames && !p.variables[kOver];
  p.done = p.variables[kOver] || truncated;
  return truncated;
}

}  // namespace atari
