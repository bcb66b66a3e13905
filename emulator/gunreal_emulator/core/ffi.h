// What the functions for compiled JAX programs have in common on the CPU (ffi.cpp) and on a GPU (ffi.cu).
#pragma once
#include "pack.h"
#include "xla/ffi/api/ffi.h"

namespace atari {

namespace ffi = xla::ffi;
using Bytes = ffi::AnyBuffer;
using Words = ffi::Buffer<ffi::S32>;
using Seeds = ffi::Buffer<ffi::U32>;
using Flags = ffi::Buffer<ffi::PRED>;
using Rewards = ffi::Buffer<ffi::F32>;

// Arguments: the pack, games [n], seeds [n]. Results: players and their pictures.
template <class Binding>
auto bind_init(Binding binding) {
  return std::move(binding).template Arg<Bytes>().template Arg<Words>().template Arg<Seeds>().template Ret<Bytes>()
      .template Ret<Bytes>();
}

// Arguments: the pack, players, pictures. Result: observations.
template <class Binding>
auto bind_observe(Binding binding) {
  return std::move(binding).template Arg<Bytes>().template Arg<Bytes>().template Arg<Bytes>().template Ret<Bytes>();
}

// Arguments: the pack, players, pictures, actions [n]. Results: players, pictures, observations, rewards, and whether the
// episodes have terminated and were truncated. The attribute is the number of consoles for each warp of a GPU, or 0.
template <class Binding>
auto bind_step(Binding binding) {
  return std::move(binding).template Arg<Bytes>().template Arg<Bytes>().template Arg<Bytes>().template Arg<Words>()
      .template Ret<Bytes>().template Ret<Bytes>().template Ret<Bytes>().template Ret<Rewards>().template Ret<Flags>()
      .template Ret<Flags>().template Attr<int32_t>("lanes");
}

template <class T>
T* data(Bytes buffer) { return reinterpret_cast<T*>(buffer.untyped_data()); }

inline int count(const Bytes& players) { return int(players.dimensions()[0]); }

}  // namespace atari
