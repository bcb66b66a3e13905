// Resizing as OpenCV's INTER_AREA does it, to the bit: by columns and then by rows.
#pragma once
#include <cmath>
#include <cstring>
#include <vector>

#include "platform.h"

namespace atari {

// How many source pixels there are for a pixel of the result. OpenCV computes it so, and 1 / (1 / 210.0) is not 210.
inline double pixels_per_pixel(int source, int target) { return 1.0 / (double(target) / source); }

// For each pixel of one axis of the result: the first source pixel, how many, and their weights.
struct Axis {
  struct Cell { int first, count; };
  std::vector<Cell> cells;
  std::vector<float> weights;  // `most` for each cell, zero beyond its count
  int most = 0;

  explicit Axis(const std::vector<std::vector<float>>& all, const std::vector<int>& first) {
    for (const auto& w : all) {
      cells.push_back({first[cells.size()], int(w.size())});
      if (int(w.size()) > most) most = int(w.size());
    }
    weights.assign(all.size() * most, 0.0f);
    for (size_t k = 0; k < all.size(); k++) {
      for (size_t j = 0; j < all[k].size(); j++) weights[k * most + j] = all[k][j];
    }
  }

  // The part of each source pixel in the area of a pixel of the result.
  static Axis by_area(int source, int target) {
    const double scale = double(source) / target;
    std::vector<std::vector<float>> all;
    std::vector<int> starts;
    for (int k = 0; k < target; k++) {
      const double from = k * scale, to = from + scale, width = scale < source - from ? scale : source - from;
      int inner_from = int(std::ceil(from)), inner_to = int(std::floor(to));
      if (inner_to > source - 1) inner_to = source - 1;
      if (inner_from > inner_to) inner_from = inner_to;
      std::vector<float> w;
      starts.push_back(inner_from);
      if (inner_from - from > 1e-3) {
        starts.back()--;
        w.push_back(float((inner_from - from) / width));
      }
      for (int x = inner_from; x < inner_to; x++) w.push_back(float(1.0 / width));
      if (to - inner_to > 1e-3) {
        const double part = to - inner_to < 1 ? to - inner_to : 1;
        w.push_back(float((part < width ? part : width) / width));
      }
      all.push_back(w);
    }
    return Axis(all, starts);
  }

  // The sum of `source / target` pixels, a whole number.
  static Axis by_sum(int source, int target) {
    const int count = source / target;
    std::vector<int> starts;
    for (int k = 0; k < target; k++) starts.push_back(k * count);
    return Axis(std::vector<std::vector<float>>(target, std::vector<float>(count, 1.0f)), starts);
  }

  // One source pixel, or two where a pixel of the result reaches into the next one. Their weights are whole numbers whose
  // sum is 2048.
  static Axis by_line(int source, int target) {
    const double inverse = double(target) / source, scale = 1.0 / inverse;
    std::vector<std::vector<float>> all;
    std::vector<int> starts;
    for (int k = 0; k < target; k++) {
      int first = int(std::floor(k * scale));
      float part = float((k + 1) - (first + 1) * inverse);
      part = part <= 0 ? 0 : part - std::floor(part);
      if (first >= source - 1) {
        first = source - 1;
        part = 0;
      }
      starts.push_back(first);
      all.push_back({std::rint((1 - part) * 2048)});
      if (part > 0) all.back().push_back(std::rint(part * 2048));
    }
    return Axis(all, starts);
  }
};

// What a pixel of the result is, with the rounding of OpenCV, which depends on the sizes.
struct Filter {
  float scale, offset;  // of the sum of the rows' values, before it is rounded to the nearest, halves to even
  int32_t linear;       // bool: the weights are those of Axis::by_line instead, and the values are rounded down

  // One row's part in a pixel, where `linear` is set. `line` is a sum over columns.
  ATARI_INLINE static int32_t row_part(int32_t line, float weight) { return int32_t(weight) * (line >> 4) >> 16; }
  ATARI_INLINE static uint8_t pixel(int32_t parts) { return uint8_t(parts > 1018 ? 255 : (parts + 2) >> 2); }
};

struct Scaling {
  Filter filter{1, 0, 0};
  Axis rows, columns;

  // To an array of [out_height, out_width].
  Scaling(int height, int width, int out_height, int out_width)
      : rows(axis(height, out_height, kind(height, width, out_height, out_width))),
        columns(axis(width, out_width, kind(height, width, out_height, out_width))) {
    const Kind how = kind(height, width, out_height, out_width);
    const int area = height / out_height * (width / out_width);
    filter.linear = how == kLine;
    if (how == kSum) {
      filter.scale = 1.0f / float(area);
      if (height == 2 * out_height && width == 2 * out_width) filter.offset = 0.125f;  // halves of four pixels go up
    }
  }

 private:
  enum Kind { kArea, kSum, kLine };

  static Kind kind(int height, int width, int out_height, int out_width) {
    if (out_height > height || out_width > width) return kLine;
    const double down = pixels_per_pixel(height, out_height), along = pixels_per_pixel(width, out_width);
    return down == std::floor(down) && along == std::floor(along) ? kSum : kArea;
  }
  static Axis axis(int source, int target, Kind how) {
    return how == kArea ? Axis::by_area(source, target) : how == kSum ? Axis::by_sum(source, target) : Axis::by_line(source, target);
  }
};

// Sums over the pixels of a row, with `weights` that depend on the column.
class Columns {
 public:
  Columns(const Axis& axis, int source) : axis_(axis), target_(int(axis.cells.size())), source_(source) {
    const int target = target_;
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
      : out_width_(out_width), scaling_(height, width, out_height, out_width), columns_(scaling_.columns, width),
        line_(columns_.padded()), sum_(columns_.padded()), parts_(columns_.padded()) {}

  // One channel to `out` [out_height, out_width]. `row(y)` returns a row of the source, and `same(a, b)` whether two rows
  // are equal.
  template <class Row, class Same>
  void operator()(Row row, Same same, uint8_t* out) {
    const Axis& rows = scaling_.rows;
    int have = -1;  // the source row that `line_` was made of
    for (size_t y = 0; y < rows.cells.size(); y++) {
      const Axis::Cell cell = rows.cells[y];
      for (int k = 0; k < cell.count; k++) {
        const int from = cell.first + k;
        if (have < 0 || (have != from && !same(have, from))) columns_(row(from), line_.data());
        have = from;
        const float weight = rows.weights[y * rows.most + k];
        if (scaling_.filter.linear) {
          blend_line(weight, k == 0);
        } else {
          blend(weight, k == 0);
        }
      }
      if (scaling_.filter.linear) {
        for (int x = 0; x < out_width_; x++) out[y * out_width_ + x] = Filter::pixel(parts_[x]);
      } else {
        round(out + y * out_width_);
      }
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

  void blend_line(float weight, bool first) {
    for (int x = 0; x < out_width_; x++) {
      parts_[x] = (first ? 0 : parts_[x]) + Filter::row_part(int32_t(line_[x]), weight);
    }
  }

  // To the nearest, halves to even.
  void round(uint8_t* __restrict out) const {
    const float* __restrict sum = sum_.data();
    const float scale = scaling_.filter.scale, offset = scaling_.filter.offset;
    for (int x = 0, n = out_width_; x < n; x++) {
      const float v = sum[x] * scale + offset + 12582912.0f;  // 1.5 * 2^23: the sum's last bit is worth 1
      int32_t bits;
      std::memcpy(&bits, &v, 4);
      const int32_t rounded = bits - 0x4B400000;
      out[x] = uint8_t(rounded > 255 ? 255 : rounded);
    }
  }

  int out_width_;
  Scaling scaling_;
  Columns columns_;
  std::vector<float> line_, sum_;
  std::vector<int32_t> parts_;
};

}  // namespace atari
