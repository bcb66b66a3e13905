// Agent steps of the consoles of a warp, which play their scanlines together. On a GPU each thread has one console, and on a
// CPU one thread has all of them: the code is the same.
#pragma once
#include "pack.h"

namespace atari {

constexpr int kLanes = 32;  // threads of a warp

// The arrays over the `n` consoles, and the games.
struct Batch {
  const Pack* pack;
  Player* players;
  uint8_t *screens, *spare;    // [n, 2, Pack::rows, 160], and memory for another picture [n, Pack::rows, 160]
  const int32_t* actions;
  uint8_t* frames;             // [n, channels, height, width]
  float* reward;
  uint8_t *terminated, *truncated;
  int32_t n;
};

// What remains to be done for a console after its frames, by all threads of the warp.
struct Rest {
  const uint8_t *restart, *now, *before;  // start pictures of a new episode, the picture, and the one before; or null
  uint8_t *screens, *frames;
  int32_t game;
};

// A multiplication and an addition that no compiler may fuse.
ATARI_INLINE float multiply(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
ATARI_INLINE float sum(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

// One pixel of an observation with the arithmetic of resize.h.
ATARI_INLINE uint8_t observed(const uint8_t* value, const PackedGame& game, const Pack& pack, const Rest& of, int y, int x) {
  const PackedAxis &rows = game.rows, &columns = game.columns;
  const PackedAxis::Cell row = pack.at<PackedAxis::Cell>(rows.cells)[y], column = pack.at<PackedAxis::Cell>(columns.cells)[x];
  const float *down = pack.at<float>(rows.weights) + y * rows.most, *along = pack.at<float>(columns.weights) + x * columns.most;
  float all = 0;
  int32_t parts = 0;
  for (int i = 0; i < row.count; i++) {
    float line = 0;
    for (int j = 0; j < column.count; j++) {
      const int at = (row.first + i) * kWidth + column.first + j;
      uint8_t bright = value[of.now[at]];
      if (of.before && value[of.before[at]] > bright) bright = value[of.before[at]];
      line = sum(line, multiply(float(bright), along[j]));
    }
    if (game.filter.linear) {
      parts += Filter::row_part(int32_t(line), down[i]);
    } else {
      const float part = multiply(down[i], line);
      all = i ? sum(all, part) : part;
    }
  }
  if (game.filter.linear) return Filter::pixel(parts);
  all = sum(multiply(all, game.filter.scale), game.filter.offset);
  const int rounded = int(sum(sum(all, 12582912.0f), -12582912.0f));  // 1.5 * 2^23: the sum's last bit is worth 1
  return uint8_t(rounded > 255 ? 255 : rounded);
}

// The part of thread `thread` of `kLanes` in copying the start pictures.
ATARI_INLINE void restart_part(const Pack& pack, const Rest& of, int thread) {
  if (!of.restart) return;
  const int words = 2 * pack.game(of.game)->game.cart.height * kWidth / 8;
  const uint64_t* from = reinterpret_cast<const uint64_t*>(of.restart);
  uint64_t* to = reinterpret_cast<uint64_t*>(of.screens);
  for (int k = thread; k < words; k += kLanes) to[k] = from[k];
}

// The part of thread `thread` of `kLanes` in an observation.
ATARI_INLINE void observe_part(const Pack& pack, const Rest& of, int thread) {
  if (!of.frames) return;
  const PackedGame& game = *pack.game(of.game);
  const int width = pack.protocol.width, pixels = pack.protocol.height * width;
  for (int c = 0; c < pack.protocol.channels; c++) {
    for (int k = thread; k < pixels; k += kLanes) {
      of.frames[c * pixels + k] = observed(game.palette + 256 * c, game, pack, of, k / width, k % width);
    }
  }
}

// One console during a step.
class Lane {
 public:
  // `game` must be that of the console `k`. Without a console, `k` is negative and the lane only helps the others.
  ATARI_FN Lane(const Batch& batch, const Game& game, int k)
      : batch_(batch), game_(game), k_(k), step_(batch.pack->protocol) {
    step_.finished = true;
    if (k < 0) return;
    p_ = batch.players[k];
    if (p_.done) {
      restart_ = restart_episode(p_, *batch.pack, p_.random);
    } else {
      step_.finished = false;
    }
  }

  ATARI_INLINE bool playing() const { return !step_.finished; }
  ATARI_INLINE bool in_frame() const { return left_ > 0; }

  ATARI_INLINE void start_frame() {
    if (!playing()) return;
    const uint32_t action = console_action(*batch_.pack->game(p_.game), batch_.actions[k_]);
    step_.start(p_, game_, batch_.pack->protocol, action, screens(), batch_.spare + k_ * (batch_.pack->screens_size() / 2));
    hold(p_, game_, p_.held);
    begin_frame(p_.s, game_.cart);
    left_ = p_.s.cpu.jammed ? 0 : kFrameInstructions;
  }

  ATARI_INLINE void scanline() {
    if (!in_frame()) return;
    Machine m = machine(p_.s, game_.cart, step_.draws ? screens() : nullptr);
    left_ = run<true>(m, left_);
  }

  ATARI_INLINE void end_frame() {
    if (!playing()) return;
    atari::end_frame(machine(p_.s, game_.cart, step_.draws ? screens() : nullptr));
    step_.end(p_, batch_.players[k_], batch_.pack->protocol, count_frame(p_, game_));
  }

  // Stores the results but the observation, which all threads make.
  ATARI_INLINE Rest finish() {
    if (k_ < 0) return Rest{};
    const Protocol& protocol = batch_.pack->protocol;
    batch_.reward[k_] = step_.reward;
    batch_.truncated[k_] = !restart_ && end_step(p_, protocol);
    batch_.terminated[k_] = p_.variables[kOver] != 0;
    batch_.players[k_] = p_;
    return Rest{restart_, screens() + p_.s.buffer * (game_screens_size(game_) / 2), step_.earlier, screens(),
                batch_.frames + k_ * frame_size(protocol), p_.game};
  }

 private:
  ATARI_INLINE uint8_t* screens() const { return batch_.screens + k_ * batch_.pack->screens_size(); }

  const Batch& batch_;
  const Game& game_;
  int k_, left_ = 0;                    // the console, and the instructions that are left of a frame
  const uint8_t* restart_ = nullptr;    // start pictures of an episode that this step begins
  AgentStep step_;
  Player p_;
};

// The step of a warp. `Warp` calls functions for its lanes:
//   each(f): f(Lane&) for each lane, and waits for all;  any(f): whether f(Lane&) is true for a lane
//   finish(): Lane::finish of each lane;  together(f): f(Rest, thread) for each lane's rest and each thread, and waits
template <class Warp>
ATARI_FN void agent_steps(Warp& warp, const Pack& pack) {
  while (warp.any([](const Lane& lane) { return lane.playing(); })) {
    warp.each([](Lane& lane) { lane.start_frame(); });
    while (warp.any([](const Lane& lane) { return lane.in_frame(); })) warp.each([](Lane& lane) { lane.scanline(); });
    warp.each([](Lane& lane) { lane.end_frame(); });
  }
  warp.finish();
  warp.together([&](const Rest& rest, int thread) { restart_part(pack, rest, thread); });
  warp.together([&](const Rest& rest, int thread) { observe_part(pack, rest, thread); });
}

}  // namespace atari
