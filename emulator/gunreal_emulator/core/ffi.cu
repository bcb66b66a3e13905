// Steps of consoles as functions that compiled JAX programs call on a GPU.
#include "ffi.h"
#include "kernel.cu"

namespace atari {
namespace {

using Stream = ffi::PlatformStream<cudaStream_t>;

ffi::Error finished() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return ffi::Error::Success();
  return ffi::Error::Internal(std::string("the emulator's kernel can't be launched: ") + cudaGetErrorString(error));
}

// Consoles for each warp: as many as leave two warps for each multiprocessor. With more warps, a step takes longer.
int lanes_for(int n) {
  int device = 0, processors = 1, lanes = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  while (lanes < kLanes && lanes * processors * 2 < n) lanes *= 2;
  return lanes;
}

ffi::Error writable(cudaStream_t stream, const Bytes& in, const Bytes& out) {
  if (in.untyped_data() != out.untyped_data()) {
    cudaMemcpyAsync(out.untyped_data(), in.untyped_data(), in.size_bytes(), cudaMemcpyDeviceToDevice, stream);
  }
  return finished();
}

ffi::Error observe(cudaStream_t stream, Bytes packed, Bytes players, Bytes screens, ffi::Result<Bytes> frames) {
  observe_kernel<<<count(players), kLanes, 0, stream>>>(data<Pack>(packed), data<Player>(players), data<uint8_t>(screens),
                                                        data<uint8_t>(*frames));
  return finished();
}

ffi::Error init(cudaStream_t stream, Bytes packed, Words games, Seeds seeds, ffi::Result<Bytes> players,
                ffi::Result<Bytes> screens) {
  cudaMemsetAsync(screens->untyped_data(), 0, screens->size_bytes(), stream);
  init_kernel<<<count(*players), kLanes, 0, stream>>>(data<Pack>(packed), games.typed_data(), seeds.typed_data(),
                                                      data<Player>(*players), data<uint8_t>(*screens));
  return finished();
}

ffi::Error step(cudaStream_t stream, ffi::ScratchAllocator scratch, Bytes packed, Bytes players, Bytes screens,
                Words actions, ffi::Result<Bytes> players_out, ffi::Result<Bytes> screens_out, ffi::Result<Bytes> frames,
                ffi::Result<Rewards> reward, ffi::Result<Flags> terminated, ffi::Result<Flags> truncated, int32_t wanted) {
  const int n = count(players), lanes = wanted ? wanted : lanes_for(n), consoles = kWarps * lanes;
  if (ffi::Error error = writable(stream, players, *players_out); error.failure()) return error;
  if (ffi::Error error = writable(stream, screens, *screens_out); error.failure()) return error;
  const auto spare = scratch.Allocate(screens.size_bytes() / 2, 16);
  if (!spare) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "the GPU's memory is too small for so many consoles");
  const Batch batch{data<Pack>(packed), data<Player>(*players_out), data<uint8_t>(*screens_out),
                    static_cast<uint8_t*>(*spare), actions.typed_data(), data<uint8_t>(*frames), reward->typed_data(),
                    reinterpret_cast<uint8_t*>(terminated->typed_data()),
                    reinterpret_cast<uint8_t*>(truncated->typed_data()), n};
  step_kernel<<<(n + consoles - 1) / consoles, kWarps * kLanes, kLargestRom, stream>>>(batch, lanes);
  return finished();
}

}  // namespace
}  // namespace atari

// Registers, threads of a block, blocks that fit on a multiprocessor, and bytes of local memory of a thread, of the step.
extern "C" int atari_occupancy(int* registers, int* threads, int* blocks, int* local_bytes) {
  using namespace atari;
  cudaFuncAttributes of{};
  if (const cudaError_t error = cudaFuncGetAttributes(&of, step_kernel)) return int(error);
  *registers = of.numRegs;
  *threads = kWarps * kLanes;
  *local_bytes = int(of.localSizeBytes);
  return int(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, step_kernel, *threads, kLargestRom));
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_init, atari::init, atari::bind_init(xla::ffi::Ffi::Bind().Ctx<atari::Stream>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_observe, atari::observe,
                              atari::bind_observe(xla::ffi::Ffi::Bind().Ctx<atari::Stream>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(atari_step, atari::step,
                              atari::bind_step(xla::ffi::Ffi::Bind().Ctx<atari::Stream>().Ctx<xla::ffi::ScratchAllocator>()));
