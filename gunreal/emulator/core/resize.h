// Resizing by area: each pixel of the result is the mean of what it covers, by columns and then by rows, in float32.
#pragma once
#include <cmath>
#include <cstring>
#include <vector>

#include "platform.h"

namespace atari {

// For each pixel of one axis of the result: the first source pixel, how many, and their weights.
struct Axis {
  struct Cell { int first, count; };
  std::vector<Cell> cells;
  std::vector<float> weights;  // `most` for each cell, zero beyond its count
  int most = 0;

  Axis(int source, int target) {
    const double scale = double(source) / target;
    std::vector<std::vector<float>> all;
    for (int k = 0; k < target; k++) {
      const double from = k * scale, to = from + scale, width = scale < source - from ? scale : source - from;
      int inner_from = int(std::ceil(from)), inner_to = int(std::floor(to));
      if (inner_to > source - 1) inner_to = source - 1;
      if (inner_from > inner_to) inner_from = inner_to;
      std::vector<float> w;
      int first = inner_from;
      if (inner_from - from > 1e-3) {
        first = inner_from - 1;
        w.push_back(float((inner_from - from) / width));
      }
      for (int x = inner_from; x < inner_to; x++) w.push_back(float(1.0 / width));
      if (to - inner_to > 1e-3) {
        const double part = to - inner_to < 1 ? to - inner_to : 1;
        w.push_back(float((part < width ? part : width) / width));
      }
      cells.push_back({first, int(w.size())});
      if (int(w.size()) > most) most = int(w.size());
      all.push_back(w);
    }
    weights.assign(size_t(target) * most, 0.0f);
    for (int k = 0; k < target; k++) {
      for (size_t j = 0; j < all[k].size(); j++) weights[size_t(k) * most + j] = all[k][j];
    }
  }
};

// Sums over the pixels of a row, with `weights` that depend on the column.
class Columns {
 public:
  Columns(int source, int target) : axis_(source, target), target_(target), source_(source) {
    const size_t groups = size_t(target + 3) / 4;
    first_.resize(groups);
    shuffles_.assign(groups * axis_.most * 16, 0x80);
    weights_.assign(groups * axis_.most * 4, 0.0f);
    for (int x = 0; x < target; x++) {
      const size_t group = size_t(x) / 4, lane = x % 4;
      const Axis::Cell cell = axis_.cells[x];
      if (lane == 0) first_[group] = cell.first < source - 16 ? cell.first : source > 16 ? source - 16 : 0;
      for (int j = 0; j < cell.count; j++) {
        const int from = cell.first + j - first_[group];
        if (from > 15) fits_ = false;
        shuffles_[(group * axis_.most + j) * 16 + 4 * lane] = uint8_t(from);
        weights_[(group * axis_.most + j) * 4 + lane] = axis_.weights[size_t(x) * axis_.most + j];
      }
    }
  }

  int padded() const { return int(first_.size()) * 4; }

  // `row` [source] to `out` [padded()].
  void operator()(const uint8_t* row, float* out) const {
#if defined(ATARI_SSE)
    if (fits_ && source_ >= 16) {
      const uint8_t* shuffle = shuffles_.data();
      const float* weight = weights_.data();
      for (size_t group = 0; group < first_.size(); group++) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + first_[group]));
        __m128 sum = _mm_setzero_ps();
        for (int j = 0; j < axis_.most; j++, shuffle += 16, weight += 4) {
          const __m128i chosen = _mm_shuffle_epi8(bytes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(shuffle)));
          sum = _mm_add_ps(sum, _mm_mul_ps(_mm_cvtepi32_ps(chosen), _mm_loadu_ps(weight)));
        }
        _mm_storeu_ps(out + 4 * group, sum);
      }
      return;
    }
#endif
    const float* w = axis_.weights.data();
    for (int x = 0; x < target_; x++, w += axis_.most) {
      const Axis::Cell cell = axis_.cells[x];
      float sum = 0;
      for (int k = 0; k < cell.count; k++) sum += float(row[cell.first + k]) * w[k];
      out[x] = sum;
    }
  }

 private:
  Axis axis_;
  int target_, source_;
  std::vector<int> first_;         // for each four pixels of the result: the source pixel where 16 bytes are loaded
  std::vector<uint8_t> shuffles_;  // where each of the four finds its j-th source pixel
  std::vector<float> weights_;
  bool fits_ = true;               // the sources of any four lie within 16 bytes
};

class Resize {
 public:
  Resize(int height, int width, int out_height, int out_width)
      : out_width_(out_width), rows_(height, out_height), columns_(width, out_width), line_(columns_.padded()),
        sum_(columns_.padded()) {}

  // One channel to `out` [out_height, out_width]. `row(y)` returns a row of the source, and `same(a, b)` whether two rows
  // are equal.
  template <class Row, class Same>
  void operator()(Row row, Same same, uint8_t* out) {
    int have = -1;  // the source row that `line_` was made of
    for (size_t y = 0; y < rows_.cells.size(); y++) {
      const Axis::Cell cell = rows_.cells[y];
      for (int k = 0; k < cell.count; k++) {
        const int from = cell.first + k;
        if (have < 0 || (have != from && !same(have, from))) columns_(row(from), line_.data());
        have = from;
        blend(rows_.weights[y * rows_.most + k], k == 0);
      }
      round(out + y * out_width_);
    }
  }

 private:
  void blend(float weight, bool first) {
    const float* __restrict line = line_.data();
    float* __restrict sum = sum_.data();
    const int n = columns_.padded();
    if (first) {
      for (int x = 0; x < n; x++) sum[x] = weight * line[x];
    } else {
      for (int x = 0; x < n; x++) sum[x] += weight * line[x];
    }
  }

  // To the nearest, halves to even.
  void round(uint8_t* __restrict out) const {
    const float* __restrict sum = sum_.data();
    for (int x = 0, n = out_width_; x < n; x++) {
      const float v = sum[x] + 12582912.0f;  // 1.5 * 2^23: the sum's last bit is worth 1
      int32_t bits;
      std::memcpy(&bits, &v, 4);
      const int32_t rounded = bits - 0x4B400000;
      out[x] = uint8_t(rounded > 255 ? 255 : rounded);
    }
  }

  int out_width_;
  Axis rows_;
  Columns columns_;
  std::vector<float> line_, sum_;
};

}  // namespace atari
