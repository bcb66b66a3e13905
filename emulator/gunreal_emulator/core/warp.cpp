// The GPU's code on the CPU, with the lanes of a warp in turn, for tests.
#include <memory>
#include <vector>

#include "warp.h"

namespace atari {

class CpuWarp {
 public:
  explicit CpuWarp(std::vector<std::unique_ptr<Lane>>& lanes) : lanes_(lanes), rests_(lanes.size()) {}

  template <class F>
  void each(F f) {
    for (auto& lane : lanes_) f(*lane);
  }
  template <class F>
  bool any(F f) {
    bool found = false;
    for (auto& lane : lanes_) found |= f(*lane);
    return found;
  }
  void finish() {
    for (size_t k = 0; k < lanes_.size(); k++) rests_[k] = lanes_[k]->finish();
  }
  template <class F>
  void together(F f) {
    for (const Rest& rest : rests_) {
      for (int thread = 0; thread < kLanes; thread++) f(rest, thread);
    }
  }

 private:
  std::vector<std::unique_ptr<Lane>>& lanes_;
  std::vector<Rest> rests_;
};

}  // namespace atari

// One step of all consoles, in warps of `lanes` consoles.
extern "C" void atari_warp_steps(const atari::Batch* batch, int lanes) {
  using namespace atari;
  for (int first = 0; first < batch->n; first += lanes) {
    std::vector<Game> games;
    std::vector<std::unique_ptr<Lane>> all;
    for (int k = 0; k < batch->pack->games; k++) games.push_back(batch->pack->unpack(k));
    for (int lane = 0; lane < kLanes; lane++) {
      const int k = lane < lanes && first + lane < batch->n ? first + lane : -1;
      all.push_back(std::make_unique<Lane>(*batch, games[k < 0 ? 0 : batch->pack->index(batch->players[k].game)], k));
    }
    CpuWarp warp(all);
    agent_steps(warp, *batch->pack);
  }
}
