// A vector of consoles on the CPU: agent steps with frame skip, sticky actions, resizing, episode limits and resets.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "agent.h"
#include "resize.h"

namespace atari {

// Arrays over the consoles for the results of a step.
struct Outputs {
  uint8_t* frames;       // [n, channels, height, width]
  float* reward;
  uint8_t *terminated, *truncated;
  int32_t* lives;
  int32_t* episode_frames;
};

// The state and the pictures with which the first episode of a console starts.
struct Start {
  Player player;
  Noise noise{4753849};  // of its power switch
  std::vector<uint8_t> screens;
};

// Converts screens to observations. Each thread has its own.
class Eye {
 public:
  Eye(const Game& game, const Protocol& protocol, const uint8_t* palette)
      : height_(game.cart.height), palette_(palette), protocol_(protocol), previous_(size_t(height_) * kWidth),
        resize_(game.cart.height, kWidth, protocol.height ? protocol.height : 1, protocol.width ? protocol.width : 1),
        same_(protocol.height == game.cart.height && protocol.width == kWidth) {}

  // Memory for another screen.
  uint8_t* spare() { return previous_.data(); }

  // Palette indices `a` and, for the maximum of two frames, `b` (or null) to `out` [channels, height, width].
  void look(const uint8_t* a, const uint8_t* b, uint8_t* out) {
    for (int c = 0; c < protocol_.channels; c++) {
      const uint8_t* value = palette_ + 256 * c;
      if (same_) {
        whole(value, a, b, height_, out);
      } else {
        const auto row = [&](int y) {
          mix(value, a + y * kWidth, b ? b + y * kWidth : nullptr, row_);
          return row_;
        };
        resize_(row, [&](int y, int z) { return repeats(a, b, y, z); }, out);
      }
      out += protocol_.height * protocol_.width;
    }
  }

  // The maximum of the values of two screens, or of one if `b` is null, to `out` [height, 160].
  static void whole(const uint8_t* value, const uint8_t* a, const uint8_t* b, int height, uint8_t* out) {
    for (int y = 0; y < height; y++, out += kWidth) {
      if (y && repeats(a, b, y - 1, y)) {
        std::memcpy(out, out - kWidth, kWidth);
      } else {
        mix(value, a + y * kWidth, b ? b + y * kWidth : nullptr, out);
      }
    }
  }

 private:
  static bool repeats(const uint8_t* a, const uint8_t* b, int y, int z) {
    return !std::memcmp(a + y * kWidth, a + z * kWidth, kWidth) &&
           (!b || !std::memcmp(b + y * kWidth, b + z * kWidth, kWidth));
  }

  static void mix(const uint8_t* value, const uint8_t* a, const uint8_t* b, uint8_t* out) {
    if (!b || !std::memcmp(a, b, kWidth)) {
      for (int x = 0; x < kWidth; x++) out[x] = value[a[x]];
    } else {
      for (int x = 0; x < kWidth; x++) {
        const uint8_t va = value[a[x]], vb = value[b[x]];
        out[x] = va > vb ? va : vb;
      }
    }
  }

  int height_;
  const uint8_t* palette_;  // [channels, 256]
  Protocol protocol_;
  std::vector<uint8_t> previous_;
  uint8_t row_[kWidth];
  Resize resize_;
  bool same_;
};

class Vector {
 public:
  Vector(const Game& game, const Protocol& protocol, const uint8_t* palette, const Start& start, int n, int threads)
      : game_(game), protocol_(protocol), start_(start), n_(n), players_(n, start.player), palette_(palette, palette + 768) {
    const size_t bytes = start.screens.size();
    screens_.resize(bytes * n);
    for (int k = 0; k < n; k++) players_[k].done = 1;
    if (threads > n) threads = n;
    for (int k = 0; k < (threads > 0 ? threads : 1); k++) eyes_.emplace_back(game, protocol, palette_.data());
    try {
      for (int k = 0; k < threads; k++) workers_.emplace_back([this, k] { work(k); });
    } catch (...) {
      end();
      throw;
    }
  }

  ~Vector() {
    recv();
    end();
  }

  // Starts a step, or an episode with its seed where `reset` is set. Without actions, the other consoles do not change. The
  // arrays must exist until `recv`.
  void send(const int32_t* actions, const uint8_t* reset, const int64_t* seeds, const Outputs& out) {
    actions_ = actions;
    reset_ = reset;
    seeds_ = seeds;
    out_ = out;
    if (workers_.empty()) {
      for (int k = 0; k < n_; k++) step(k, eyes_[0]);
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      next_ = 0;
      busy_ = int(workers_.size());
      round_++;
    }
    wake_.notify_all();
  }

  void recv() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

  Player& player(int k) { return players_[k]; }
  uint8_t* screens(int k) { return screens_.data() + k * start_.screens.size(); }
  size_t screens_size() const { return start_.screens.size(); }

 private:
  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  void work(int which) {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return closing_ || round_ != seen; });
        if (closing_) return;
        seen = round_;
      }
      for (int k; (k = next_.fetch_add(1)) < n_;) step(k, eyes_[which]);
      std::lock_guard<std::mutex> lock(mutex_);
      if (--busy_ == 0) done_.notify_all();
    }
  }

  void step(int k, Eye& eye) {
    Player& p = players_[k];
    uint8_t* const screens = this->screens(k);
    const int half = game_.cart.height * kWidth;
    float reward = 0;
    uint8_t truncated = 0;
    const uint8_t* before = nullptr;  // the picture that the observation is the maximum with
    if (reset_ && reset_[k]) {
      new_episode(p, game_, protocol_, start_.player, start_.screens.data(), screens, true, uint64_t(seeds_[k]));
    } else if (!actions_) {  // a reset of others
    } else if (p.done) {
      new_episode(p, game_, protocol_, start_.player, start_.screens.data(), screens, false, 0);
    } else {
      before = advance(p, game_, protocol_, uint32_t(actions_[k]), screens, eye.spare(), reward);
      truncated = end_step(p, protocol_);
    }
    if (protocol_.channels) {
      eye.look(screens + p.s.buffer * half, before, out_.frames + size_t(k) * protocol_.channels * protocol_.height * protocol_.width);
    }
    out_.reward[k] = reward;
    out_.terminated[k] = p.variables[kOver] != 0;
    out_.truncated[k] = truncated;
    out_.lives[k] = p.variables[kLives];
    out_.episode_frames[k] = p.frames;
  }

  const Game& game_;
  const Protocol protocol_;
  const Start& start_;
  const int n_;
  std::vector<Player> players_;
  std::vector<uint8_t> screens_, palette_;
  std::vector<Eye> eyes_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<int> next_{0};
  int busy_ = 0;
  uint64_t round_ = 0;
  bool closing_ = false;
  const int32_t* actions_ = nullptr;
  const uint8_t* reset_ = nullptr;
  const int64_t* seeds_ = nullptr;
  Outputs out_{};
};

}  // namespace atari
