// Consoles that step independently on the CPU, with the episodes of ale-py's vector environment. A batch is received when
// enough of them have finished.
#pragma once
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <deque>

#include "vector.h"

namespace atari {

enum Autoreset : int32_t { kNextStep, kSameStep, kNeverReset };

struct PoolSettings {
  Protocol protocol;
  int32_t noop_max;    // an episode starts with fewer no-ops than this
  int32_t fire;        // bool: the first of them is FIRE, and there is at least one
  int32_t life_loss;   // bool: a lost life is reported as a termination
  int32_t clip;        // bool: rewards are -1, 0 or 1
  int32_t autoreset;
  int32_t stack;       // pictures of an observation
  int32_t batch;       // consoles of a batch
  int32_t threads;     // with all consoles in a batch, the receiving thread is one of them
  int32_t first_core;  // processor of the first thread, or -1
};

// Arrays over the consoles of a batch.
struct PoolOutputs {
  uint8_t *frames, *last;  // [batch, stack, height, width (, 3)]; observations, and those before a reset in the same step
  int32_t* reward;
  uint8_t *terminated, *truncated, *restarted, *over;  // `restarted`: reset in the same step; `over`: to be reset
  int32_t *ids, *lives, *total_frames, *episode_frames;
};

class Pool {
 public:
  Pool(const Game& game, const PoolSettings& settings, const uint8_t* palette, const Start& start, int n)
      : game_(game), settings_(settings), start_(start), palette_(palette, palette + 768), seats_(n),
        frame_size_(frame_size(settings.protocol)) {
    for (Seat& seat : seats_) {
      seat.player = start.player;
      seat.protocol = settings.protocol;
      seat.screens = start.screens;
      seat.observed.resize(start.screens.size());
      seat.stack.resize(frame_size_ * settings.stack);
      if (settings.autoreset == kSameStep) seat.last.resize(seat.stack.size());
    }
    helps_ = settings.batch == n && settings.first_core < 0;
    const int threads = settings.threads < n ? settings.threads : n, workers = threads - helps_;
    for (int k = 0; k < workers + 1; k++) tools_.emplace_back(game, settings.protocol, palette_.data());
    try {
      for (int k = 0; k < workers; k++) workers_.emplace_back([this, k] { work(k); });
    } catch (...) {
      end();
      throw;
    }
  }

  ~Pool() { end(); }

  // Starts an episode in each of `ids`. A seed of -1 continues the console's random numbers. Steps that are not received are
  // lost.
  void reset(const int32_t* ids, const int64_t* seeds, int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [&] { return help(lock) || busy_ == 0; });
    ready_.clear();
    for (int k = 0; k < count; k++) {
      Seat& seat = seats_[ids[k]];
      seat.resets = true;
      seat.seed = seeds[k];
      push(ids[k]);
    }
    lock.unlock();
    wake_all();
  }

  // Reports the present state of consoles that do nothing.
  void report(const int32_t* ids, int count) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int k = 0; k < count; k++) {
      Seat& seat = seats_[ids[k]];
      seat.reward = 0;
      seat.terminated = seat.truncated = seat.restarted = false;
      ready_.push_back(ids[k]);
    }
  }

  void send(const int32_t* ids, const int32_t* actions, int count) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (int k = 0; k < count; k++) {
        seats_[ids[k]].resets = false;
        seats_[ids[k]].action = actions[k];
        push(ids[k]);
      }
    }
    wake_all();
  }

  // Waits for a batch. If it has all consoles, they are in order.
  void recv(const PoolOutputs& out) {
    std::vector<int> ids(settings_.batch);
    {
      std::unique_lock<std::mutex> lock(mutex_);
      finished_.wait(lock, [&] { return help(lock) || int(ready_.size()) >= settings_.batch; });
      for (int& id : ids) {
        id = ready_.front();
        ready_.pop_front();
      }
    }
    if (ids.size() == seats_.size()) {
      for (size_t k = 0; k < ids.size(); k++) ids[k] = int(k);
    }
    for (size_t k = 0; k < ids.size(); k++) write(seats_[ids[k]], ids[k], k, out);
  }

 private:
  struct Seat {
    Player player;
    Protocol protocol;           // that of the pool, with this episode's limit
    std::vector<uint8_t> screens, observed;  // `observed`: the pictures of the last observation
    std::vector<uint8_t> stack, last;
    int newest = 0;            // index of the newest picture in `stack`
    Noise random{0}, noise{0};   // of the no-ops, and of the power switch
    int32_t earlier_frames = 0;  // of finished episodes
    int64_t seed = -1;
    int32_t action = 0, reward = 0;
    bool resets = false, over = false, terminated = false, truncated = false, restarted = false;
  };

  // Memory of a thread.
  struct Tools {
    std::vector<uint8_t> identity;
    Eye eye, plain;  // `plain` sees values instead of palette indices
    std::vector<uint8_t> values, planes;

    Tools(const Game& game, const Protocol& protocol, const uint8_t* palette)
        : eye(game, protocol, palette), plain(game, single(protocol), fill()), values(size_t(game.cart.height) * kWidth),
          planes(frame_size(protocol)) {}

    static Protocol single(Protocol protocol) {
      protocol.channels = 1;
      return protocol;
    }
    const uint8_t* fill() {
      identity.resize(256);
      for (int k = 0; k < 256; k++) identity[k] = uint8_t(k);
      return identity.data();
    }
  };

  void push(int id) {
    jobs_.push_back(id);
    busy_++;
  }

  void wake_all() {
    wake_.notify_all();
    if (helps_) finished_.notify_all();
  }

  // Does what there is to do, if this thread helps. Returns false.
  bool help(std::unique_lock<std::mutex>& lock) {
    while (helps_ && !jobs_.empty()) work_on_next(lock, workers_.size());
    return false;
  }

  void work(size_t which) {
    if (settings_.first_core >= 0) {
      cpu_set_t cores;
      CPU_ZERO(&cores);
      CPU_SET((settings_.first_core + which) % std::max(1u, std::thread::hardware_concurrency()), &cores);
      pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
      if (closing_) return;
      work_on_next(lock, which);
    }
  }

  void work_on_next(std::unique_lock<std::mutex>& lock, size_t which) {
    const int id = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    advance_seat(seats_[id], tools_[which]);
    lock.lock();
    ready_.push_back(id);
    if (--busy_ == 0 || int(ready_.size()) >= settings_.batch) finished_.notify_all();
  }

  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
  }

  void advance_seat(Seat& seat, Tools& tools) {
    seat.reward = 0;
    seat.terminated = seat.truncated = seat.restarted = false;
    if (seat.resets || (seat.over && settings_.autoreset == kNextStep)) {
      begin(seat, tools);
      seat.resets = false;
      seat.seed = -1;
      return;
    }
    step(seat, tools);
    if (seat.over && settings_.autoreset == kSameStep) {
      copy_stack(seat, seat.last.data());
      begin(seat, tools);
      seat.restarted = true;
    }
  }

  void begin(Seat& seat, Tools& tools) {
    Player& p = seat.player;
    if (seat.seed >= 0) {  // a new console
      seat.random = Noise(uint32_t(seat.seed));
      seat.noise = start_.noise;
      seat.earlier_frames = start_.player.frames;
      seat.screens = start_.screens;
      p = start_.player;
      p.random = seeded_random(uint64_t(seat.seed));
    } else {  // the same one, switched off and on
      seat.earlier_frames += p.frames;
      start_episode(p, game_, seat.noise, seat.screens.data());
    }
    int noops = settings_.noop_max > 0 ? int(below(seat.random, uint32_t(settings_.noop_max))) : 0;
    if (settings_.fire && noops == 0) noops = 1;
    for (int k = 0; k < noops && !p.variables[kOver]; k++) {
      emulate(p, game_, settings_.fire && k == 0 ? kFireAction : kNoop, seat.screens.data());
    }
    std::fill(seat.stack.begin(), seat.stack.end(), uint8_t(0));
    // Frames before the first step do not count.
    const int64_t limit = int64_t(settings_.protocol.max_frames) + p.frames;
    if (settings_.protocol.max_frames) seat.protocol.max_frames = int32_t(std::min<int64_t>(limit, INT32_MAX));
    look(seat, nullptr, tools);
    seat.over = false;
  }

  void step(Seat& seat, Tools& tools) {
    Player& p = seat.player;
    const Player before = p;
    const uint8_t* second = nullptr;  // the step's second-to-last picture
    AgentStep step(seat.protocol);
    while (!step.finished) {
      step.start(p, game_, seat.protocol, uint32_t(seat.action), seat.screens.data(), tools.eye.spare());
      second = step.earlier;
      step.end(p, before, seat.protocol, emulate(p, game_, p.held, step.draws ? seat.screens.data() : nullptr));
    }
    seat.truncated = end_step(p, seat.protocol);
    const bool lost = lost_life(p, before.variables[kLives]);
    seat.terminated = p.variables[kOver] || (lost && (settings_.life_loss || seat.protocol.life_ends));
    seat.over = p.done || (lost && seat.protocol.life_ends);
    seat.reward = int32_t(step.reward);
    if (settings_.clip) seat.reward = (seat.reward > 0) - (seat.reward < 0);
    if (!seat.over) {
      look(seat, second, tools);
    } else {
      look_at_last(seat, second, tools);
    }
  }

  // Uniform in 0 to n - 1, as Lemire's method draws it.
  static uint32_t below(Noise& random, uint32_t n) {
    for (;;) {
      const uint64_t product = uint64_t(random.next()) * n;
      if (uint32_t(product) >= uint32_t(-n) % n) return uint32_t(product >> 32);
    }
  }

  // The picture that was drawn last.
  const uint8_t* current(const Seat& seat) const {
    return seat.screens.data() + seat.player.s.buffer * start_.screens.size() / 2;
  }

  // Adds the picture to the stack, or its maximum with `second`.
  void look(Seat& seat, const uint8_t* second, Tools& tools) {
    const uint8_t* const first = current(seat);
    const size_t size = seat.observed.size() / 2;
    std::memcpy(seat.observed.data(), first, size);
    std::memcpy(seat.observed.data() + size, second ? second : first, size);
    add(seat, tools, [&](uint8_t* planes) { tools.eye.look(first, second, planes); });
  }

  // The frame that ends an episode is not observed. If it is the last one of its step, the frame before it is, together
  // with those of the last observation.
  void look_at_last(Seat& seat, const uint8_t* second, Tools& tools) {
    const uint8_t* const a = seat.observed.data();
    const size_t size = seat.observed.size() / 2;
    const Protocol& protocol = settings_.protocol;
    add(seat, tools, [&](uint8_t* planes) {
      for (int c = 0; c < protocol.channels; c++, planes += protocol.height * protocol.width) {
        const uint8_t* const value = palette_.data() + 256 * c;
        Eye::whole(value, a, a + size, game_.cart.height, tools.values.data());
        for (size_t k = 0; second && k < size; k++) tools.values[k] = std::max(tools.values[k], value[second[k]]);
        tools.plain.look(tools.values.data(), nullptr, planes);
      }
    });
  }

  // Adds to the stack what `see` writes as [channels, height, width].
  template <class See>
  void add(Seat& seat, Tools& tools, const See& see) {
    seat.newest = (seat.newest + 1) % settings_.stack;
    uint8_t* const to = seat.stack.data() + seat.newest * frame_size_;
    const int channels = settings_.protocol.channels;
    see(channels == 1 ? to : tools.planes.data());
    const size_t pixels = frame_size_ / channels;
    for (int c = 0; channels > 1 && c < channels; c++) {
      for (size_t k = 0; k < pixels; k++) to[k * channels + c] = tools.planes[c * pixels + k];
    }
  }

  void copy_stack(const Seat& seat, uint8_t* out) const {
    for (int k = 1; k <= settings_.stack; k++, out += frame_size_) {
      std::memcpy(out, seat.stack.data() + (seat.newest + k) % settings_.stack * frame_size_, frame_size_);
    }
  }

  void write(const Seat& seat, int id, size_t k, const PoolOutputs& out) const {
    copy_stack(seat, out.frames + k * seat.stack.size());
    if (seat.restarted) std::memcpy(out.last + k * seat.last.size(), seat.last.data(), seat.last.size());
    out.reward[k] = seat.reward;
    out.terminated[k] = seat.terminated;
    out.truncated[k] = seat.truncated;
    out.restarted[k] = seat.restarted;
    out.over[k] = seat.over;
    out.ids[k] = id;
    out.lives[k] = seat.player.variables[kLives];
    out.total_frames[k] = seat.earlier_frames + seat.player.frames;
    out.episode_frames[k] = seat.player.frames;
  }

  const Game& game_;
  const PoolSettings settings_;
  const Start& start_;
  std::vector<uint8_t> palette_;
  std::vector<Seat> seats_;
  const size_t frame_size_;
  bool helps_;  // receiving threads do jobs, too
  std::deque<Tools> tools_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::deque<int> jobs_, ready_;
  int busy_ = 0;  // jobs that are waiting or running
  bool closing_ = false;
};

}  // namespace atari
