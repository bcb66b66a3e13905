// Steps of consoles as functions that compiled JAX programs call on the CPU. ffi.py declares them.
#include <algorithm>

#include "pack.h"
#include "vector.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace atari {
namespace {

using Bytes = ffi::AnyBuffer;
using Words = ffi::Buffer<ffi::S32>;

const Pack& pack_of(const Bytes& buffer) { return *reinterpret_cast<const Pack*>(buffer.untyped_data()); }

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

// The state of `n` consoles: Player [n], and pictures [n, 2, Pack::rows, 160].
struct States {
  Player* players;
  uint8_t* screens;
  int n;
};

// XLA passes the same memory twice if it may be overwritten, and otherwise expects a copy.
States states(const Bytes& players, const Bytes& screens, Bytes& players_out, Bytes& screens_out) {
  if (players.untyped_data() != players_out.untyped_data()) {
    std::memcpy(players_out.untyped_data(), players.untyped_data(), players.size_bytes());
  }
  if (screens.untyped_data() != screens_out.untyped_data()) {
    std::memcpy(screens_out.untyped_data(), screens.untyped_data(), screens.size_bytes());
  }
  return {reinterpret_cast<Player*>(players_out.untyped_data()), static_cast<uint8_t*>(screens_out.untyped_data()),
          int(players.dimensions()[0])};
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

size_t frame_size(const Protocol& p) { return size_t(p.channels) * p.height * p.width; }

// The picture that was drawn last, as an observation.
ffi::Error observe(ffi::ThreadPool pool, Bytes pack_buffer, Bytes players, Bytes screens, ffi::Result<Bytes> frames) {
  const Pack& pack = pack_of(pack_buffer);
  const Player* const from = reinterpret_cast<const Player*>(players.untyped_data());
  share(pool, int(players.dimensions()[0]), [&](int first, int last) {
    Table table(pack);
    for (int k = first; k < last; k++) {
      const int half = table.game(from[k].game).cart.height * kWidth;
      const uint8_t* at = static_cast<const uint8_t*>(screens.untyped_data()) + k * pack.screens_size();
      table.eye(from[k].game).look(at + from[k].s.buffer * half, nullptr,
                                   static_cast<uint8_t*>(frames->untyped_data()) + k * frame_size(pack.protocol));
    }
  });
  return ffi::Error::Success();
}

// New episodes of `games` [n] with `seeds` [n].
ffi::Error init(ffi::ThreadPool pool, Bytes pack_buffer, Words games, ffi::Buffer<ffi::U32> seeds,
                ffi::Result<Bytes> players, ffi::Result<Bytes> screens) {
  const Pack& pack = pack_of(pack_buffer);
  Player* const to = reinterpret_cast<Player*>(players->untyped_data());
  const int n = int(players->dimensions()[0]);
  for (int k = 0; k < n; k++) {
    if (games.typed_data()[k] < 0 || games.typed_data()[k] >= pack.games) return ffi::Error::InvalidArgument("no such game");
  }
  std::memset(screens->untyped_data(), 0, screens->size_bytes());
  share(pool, n, [&](int first, int last) {
    for (int k = first; k < last; k++) {
      to[k].game = uint8_t(games.typed_data()[k]);
      packed_episode(to[k], pack, static_cast<uint8_t*>(screens->untyped_data()) + k * pack.screens_size(),
                     seeded_random(seeds.typed_data()[k]));
    }
  });
  return ffi::Error::Success();
}

// One agent step of all consoles. The step after an episode's end resets.
ffi::Error step(ffi::ThreadPool pool, Bytes pack_buffer, Bytes players, Bytes screens, Words actions,
                ffi::Result<Bytes> players_out, ffi::Result<Bytes> screens_out, ffi::Result<Bytes> frames,
                ffi::Result<ffi::Buffer<ffi::F32>> reward, ffi::Result<ffi::Buffer<ffi::PRED>> terminated,
                ffi::Result<ffi::Buffer<ffi::PRED>> truncated) {
  const Pack& pack = pack_of(pack_buffer);
  const Protocol& protocol = pack.protocol;
  const States at = states(players, screens, *players_out, *screens_out);
  share(pool, at.n, [&](int first, int last) {
    Table table(pack);
    for (int k = first; k < last; k++) {
      Player& p = at.players[k];
      const int which = p.game;
      const Game& game = table.game(which);
      uint8_t* const pictures = at.screens + k * pack.screens_size();
      const uint8_t* before = nullptr;
      float gained = 0;
      bool cut = false;
      if (p.done) {
        packed_episode(p, pack, pictures, p.random);
      } else {
        const uint32_t action = console_action(*pack.game(which), actions.typed_data()[k]);
        before = advance(p, game, protocol, action, pictures, table.eye(which).spare(), gained);
        cut = protocol.max_frames && p.frames >= protocol.max_frames && !p.variables[kOver];
        p.done = p.variables[kOver] || cut;
      }
      table.eye(which).look(pictures + p.s.buffer * game.cart.height * kWidth, before,
                            static_cast<uint8_t*>(frames->untyped_data()) + k * frame_size(protocol));
      reward->typed_data()[k] = gained;
      terminated->typed_data()[k] = p.variables[kOver] != 0;
      truncated->typed_data()[k] = cut;
    }
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace atari

XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_init, atari::init,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Arg<atari::Words>()
                                  .Arg<ffi::Buffer<ffi::U32>>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_observe, atari::observe,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_step, atari::step,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>().Arg<atari::Words>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>().Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::PRED>>()
                                  .Ret<ffi::Buffer<ffi::PRED>>());
