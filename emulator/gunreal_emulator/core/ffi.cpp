// Steps of consoles as functions that compiled JAX programs call on the CPU. ffi.py declares them.
#include <algorithm>

#include "ffi.h"
#include "vector.h"

namespace atari {
namespace {

// Calls `work(first, last, eyes)` for all consoles in parts, on the threads of XLA and on this one. A thread that comes
// late finds nothing to do, so that none is waited for that has not begun.
template <class Work>
void share(ffi::ThreadPool& pool, int n, const Work& work) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable finished;
    int next = 0, done = 0;
  };
  const int part = std::max<int>(1, n / int(8 * std::max<int64_t>(1, pool.num_threads())));
  auto shared = std::make_shared<Shared>();
  auto help = [shared, n, part, work = &work] {
    for (;;) {
      int first;
      {
        std::lock_guard<std::mutex> lock(shared->mutex);
        first = shared->next;
        if (first >= n) return;
        shared->next = first + part;
      }
      const int last = std::min(first + part, n);
      (*work)(first, last);
      std::lock_guard<std::mutex> lock(shared->mutex);
      shared->done += last - first;
      if (shared->done == n) shared->finished.notify_all();
    }
  };
  for (int64_t k = 1; k < pool.num_threads() && k * part < n; k++) {
    auto copy = help;
    pool.Schedule(std::move(copy));
  }
  help();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->finished.wait(lock, [&] { return shared->done == n; });
}

// XLA passes the same memory twice if it may be overwritten, and otherwise expects a copy.
uint8_t* writable(const Bytes& in, const Bytes& out) {
  if (in.untyped_data() != out.untyped_data()) std::memcpy(out.untyped_data(), in.untyped_data(), in.size_bytes());
  return data<uint8_t>(out);
}

// Unpacked games, and what converts their pictures. Each part of the work has its own.
class Table {
 public:
  explicit Table(const Pack& pack) : pack_(pack), eyes_(pack.games) {
    for (int k = 0; k < pack.games; k++) games_.push_back(pack.unpack(k));
  }
  const Game& game(int k) const { return games_[k]; }
  Eye& eye(int k) {
    if (!eyes_[k]) eyes_[k] = std::make_unique<Eye>(games_[k], pack_.protocol, pack_.game(k)->palette);
    return *eyes_[k];
  }

 private:
  const Pack& pack_;
  std::vector<Game> games_;
  std::vector<std::unique_ptr<Eye>> eyes_;
};

// The pictures that were drawn last, as observations.
ffi::Error observe(ffi::ThreadPool pool, Bytes packed, Bytes players, Bytes screens, ffi::Result<Bytes> frames) {
  const Pack& pack = *data<Pack>(packed);
  const Player* const from = data<Player>(players);
  share(pool, count(players), [&](int first, int last) {
    Table table(pack);
    for (int k = first; k < last; k++) {
      const int which = pack.index(from[k].game);
      const size_t half = game_screens_size(table.game(which)) / 2;
      table.eye(which).look(data<uint8_t>(screens) + k * pack.screens_size() + from[k].s.buffer * half, nullptr,
                                   data<uint8_t>(*frames) + k * frame_size(pack.protocol));
    }
  });
  return ffi::Error::Success();
}

// Starts new episodes.
ffi::Error init(ffi::ThreadPool pool, Bytes packed, Words games, Seeds seeds, ffi::Result<Bytes> players,
                ffi::Result<Bytes> screens) {
  const Pack& pack = *data<Pack>(packed);
  std::memset(screens->untyped_data(), 0, screens->size_bytes());
  share(pool, count(*players), [&](int first, int last) {
    for (int k = first; k < last; k++) {
      Player& p = data<Player>(*players)[k];
      p.game = uint8_t(pack.index(games.typed_data()[k]));
      packed_episode(p, pack, data<uint8_t>(*screens) + k * pack.screens_size(), seeded_random(seeds.typed_data()[k]));
    }
  });
  return ffi::Error::Success();
}

// One agent step of all consoles. The step after an episode's end resets.
ffi::Error step(ffi::ThreadPool pool, Bytes packed, Bytes players_in, Bytes screens_in, Words actions,
                ffi::Result<Bytes> players_out, ffi::Result<Bytes> screens_out, ffi::Result<Bytes> frames,
                ffi::Result<Rewards> reward, ffi::Result<Flags> terminated, ffi::Result<Flags> truncated, int32_t) {
  const Pack& pack = *data<Pack>(packed);
  Player* const players = reinterpret_cast<Player*>(writable(players_in, *players_out));
  uint8_t* const screens = writable(screens_in, *screens_out);
  share(pool, count(players_in), [&](int first, int last) {
    Table table(pack);
    for (int k = first; k < last; k++) {
      Player& p = players[k];
      const int which = pack.index(p.game);
      const Game& game = table.game(which);
      uint8_t* const pictures = screens + k * pack.screens_size();
      const uint8_t* before = nullptr;
      float gained = 0;
      bool cut = false;
      if (p.done) {
        packed_episode(p, pack, pictures, p.random);
      } else {
        const uint32_t action = console_action(*pack.game(which), actions.typed_data()[k]);
        before = advance(p, game, pack.protocol, action, pictures, table.eye(which).spare(), gained);
        cut = end_step(p, pack.protocol);
      }
      table.eye(which).look(pictures + p.s.buffer * (game_screens_size(game) / 2), before,
                            data<uint8_t>(*frames) + k * frame_size(pack.protocol));
      reward->typed_data()[k] = gained;
      terminated->typed_data()[k] = p.variables[kOver] != 0;
      truncated->typed_data()[k] = cut;
    }
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace atari

XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_init, atari::init, atari::bind_init(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_observe, atari::observe,
                              atari::bind_observe(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_step, atari::step, atari::bind_step(xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()));
