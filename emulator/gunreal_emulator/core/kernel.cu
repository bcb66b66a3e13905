// The kernels: one launch is an agent step of all consoles.
#include "warp.h"

namespace atari {

constexpr int kWarps = 2;           // of a block
constexpr int kBlocks = 8;          // of a multiprocessor, so that a thread may have 128 registers
constexpr int kLargestRom = 16384;  // bytes

// The warp of the calling thread, for `agent_steps`.
struct GpuWarp {
  Lane& lane;
  Rest* rests;  // [kLanes], in shared memory
  int thread;   // of the warp

  template <class F>
  __device__ void each(F f) {
    f(lane);
    __syncwarp();
  }
  template <class F>
  __device__ bool any(F f) {
    return __any_sync(~0u, f(lane));
  }
  __device__ void finish() {
    rests[thread] = lane.finish();
    __syncwarp();
  }
  template <class F>
  __device__ void together(F f) {
    for (int k = 0; k < kLanes; k++) f(rests[k], thread);
    __syncwarp();
  }
};

// Each warp has `lanes` consoles. If all consoles of the block play one game, its ROM is read from shared memory, which has kLargestRom
// bytes.
__global__ void __launch_bounds__(kWarps* kLanes, kBlocks) step_kernel(const __grid_constant__ Batch batch, int lanes) {
  extern __shared__ uint64_t rom[];
  __shared__ Game shared_game;
  __shared__ Rest rests[kWarps][kLanes];
  const Pack& pack = *batch.pack;
  const int thread = int(threadIdx.x) % kLanes, warp = int(threadIdx.x) / kLanes;
  const int first = int(blockIdx.x) * kWarps * lanes, mine = first + warp * lanes + thread;
  const int k = thread < lanes && mine < batch.n ? mine : -1;
  const int block_game = batch.players[first].game, game = k < 0 ? block_game : batch.players[k].game;
  Game own;
  const bool one_game = __syncthreads_and(game == block_game);
  if (one_game) {
    if (threadIdx.x == 0) {
      shared_game = pack.unpack(game);
      shared_game.cart.rom = reinterpret_cast<const uint8_t*>(rom);
    }
    const uint64_t* from = reinterpret_cast<const uint64_t*>(pack.unpack(game).cart.rom);
    for (uint32_t i = threadIdx.x; i < pack.game(game)->game.cart.size / 8; i += blockDim.x) rom[i] = from[i];
  } else {
    own = pack.unpack(game);
  }
  __syncthreads();
  Lane lane(batch, one_game ? shared_game : own, k);
  GpuWarp all{lane, rests[warp], thread};
  agent_steps(all, pack);
}

// New episodes of `games` with `seeds`, with a block of kLanes threads for each console.
__global__ void init_kernel(const Pack* pack, const int32_t* games, const uint32_t* seeds, Player* players, uint8_t* screens) {
  __shared__ Rest rest;
  const int k = int(blockIdx.x);
  if (threadIdx.x == 0) {
    Player& p = players[k];
    p.game = uint8_t(pack->index(games[k]));
    rest = Rest{};
    rest.screens = screens + k * pack->screens_size();
    rest.game = p.game;
    rest.restart = restart_episode(p, *pack, seeded_random(seeds[k]));
  }
  __syncthreads();
  restart_part(*pack, rest, int(threadIdx.x));
}

// The pictures that were drawn last as observations, with a block of kLanes threads for each console.
__global__ void observe_kernel(const Pack* pack, const Player* players, const uint8_t* screens, uint8_t* frames) {
  const Player& p = players[blockIdx.x];
  Rest rest{};
  rest.game = p.game;
  rest.now = screens + blockIdx.x * pack->screens_size() + p.s.buffer * (game_screens_size(pack->game(p.game)->game) / 2);
  rest.frames = frames + blockIdx.x * frame_size(pack->protocol);
  observe_part(*pack, rest, int(threadIdx.x));
}

}  // namespace atari
