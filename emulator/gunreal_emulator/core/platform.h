// Definitions with which g++ and nvcc can compile the same headers.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__SSSE3__) && !defined(__CUDACC__)
#define ATARI_SSE
#include <tmmintrin.h>
#endif

#if defined(__CUDACC__)
#define ATARI_FN __host__ __device__
#define ATARI_INLINE __host__ __device__ __forceinline__
#define ATARI_SLOW __host__ __device__ __noinline__
#define ATARI_INLINED
#else
#define ATARI_FN
#define ATARI_INLINE inline __attribute__((always_inline))
#define ATARI_SLOW __attribute__((noinline, visibility("hidden")))
#if defined(__SANITIZE_ADDRESS__)
#define ATARI_INLINED  // which would take minutes to compile
#else
#define ATARI_INLINED __attribute__((always_inline))  // behind the parameters of a lambda
#endif
#endif

// a - b, around the ends of the range. In minutes without HMOVE or a new timer, the times of the last ones get there.
ATARI_INLINE int32_t minus(int32_t a, int32_t b) { return int32_t(uint32_t(a) - uint32_t(b)); }

ATARI_INLINE uint32_t lowest_bit(uint32_t x) {
#if defined(__CUDA_ARCH__)
  return uint32_t(__ffs(int(x)) - 1);
#else
  return uint32_t(__builtin_ctz(x));
#endif
}

#if defined(__CUDA_ARCH__)
#define ATARI_LIKELY(x) (x)
#define ATARI_UNLIKELY(x) (x)
#else
#define ATARI_LIKELY(x) __builtin_expect(!!(x), 1)
#define ATARI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#endif
