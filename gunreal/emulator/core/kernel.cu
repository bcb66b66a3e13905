// The agent step of all consoles in one launch, with a thread for each console. It has not been run on a GPU.
#include "agent.h"

namespace atari {

// One axis of the area resize. For each target pixel: the first source pixel, their number, and `most` weights.
struct DeviceAxis {
  const int2* cells;
  const float* weights;
  int most;
};

// Pointers to the memory of the GPU. The arrays over the `n` consoles are those of vector.h.
struct Batch {
  Game game;
  Protocol protocol;
  const Player* start;
  const uint8_t *start_screens, *gray;  // [2, height of the screen, 160], [256]
  DeviceAxis rows, columns;
  Player* players;
  uint8_t *screens, *spare, *frames;    // [n, 2, height of the screen, 160], [n, ..., 160], [n, height, width]
  const int32_t* actions;
  float* reward;
  uint8_t *terminated, *truncated;
  int n;
};

// Writes the gray maximum of `a` and, unless it is null, `b` to `out` [height, width], with the arithmetic of resize.h.
__device__ void observe(const Batch& batch, const uint8_t* a, const uint8_t* b, uint8_t* out) {
  const DeviceAxis &rows = batch.rows, &columns = batch.columns;
  for (int y = 0; y < batch.protocol.height; y++) {
    for (int x = 0; x < batch.protocol.width; x++) {
      float sum = 0;
      for (int i = 0; i < rows.cells[y].y; i++) {
        const int row = (rows.cells[y].x + i) * kWidth;
        float line = 0;
        for (int j = 0; j < columns.cells[x].y; j++) {
          const int at = row + columns.cells[x].x + j;
          const uint8_t first = batch.gray[a[at]], second = b ? batch.gray[b[at]] : 0;
          const float value = float(first > second ? first : second);
          line = __fadd_rn(line, __fmul_rn(value, columns.weights[x * columns.most + j]));
        }
        sum = __fadd_rn(sum, __fmul_rn(rows.weights[y * rows.most + i], line));
      }
      out[y * batch.protocol.width + x] = uint8_t(min(__float2int_rn(sum), 255));
    }
  }
}

__global__ void agent_steps(Batch batch) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= batch.n) return;
  const Game& game = batch.game;
  const Protocol& protocol = batch.protocol;
  const size_t half = size_t(game.cart.height) * kWidth;
  Player& p = batch.players[k];
  uint8_t* screens = batch.screens + 2 * k * half;
  const uint8_t* before = nullptr;
  float reward = 0;
  bool truncated = false;
  if (p.done) {
    new_episode(p, game, protocol, *batch.start, batch.start_screens, screens, false, 0);
  } else {
    before = advance(p, game, protocol, uint32_t(batch.actions[k]), screens, batch.spare + k * half, reward);
    truncated = protocol.max_frames && p.frames >= protocol.max_frames && !p.variables[kOver];
    p.done = p.variables[kOver] || truncated;
  }
  observe(batch, screens + p.s.buffer * half, before, batch.frames + size_t(k) * protocol.height * protocol.width);
  batch.reward[k] = reward;
  batch.terminated[k] = p.variables[kOver] != 0;
  batch.truncated[k] = truncated;
}

}  // namespace atari
