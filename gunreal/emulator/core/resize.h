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

class Resize {
 public:
  Resize(int height, int width, int out_height, int out_width)
      : width_(width), out_width_(out_width), rows_(height, out_height), columns_(width, out_width),
        line_(out_width), sum_(out_width) {}

  // One channel: `in` [height, width] to `out` [out_height, out_width].
  void operator()(const uint8_t* in, uint8_t* out) {
    int have = -1;  // the source row that `line_` was made of
    for (size_t y = 0; y < rows_.cells.size(); y++) {
      const Axis::Cell cell = rows_.cells[y];
      for (int k = 0; k < cell.count; k++) {
        const uint8_t* row = in + (cell.first + k) * width_;
        if (have < 0 || (have != cell.first + k && std::memcmp(in + have * width_, row, size_t(width_)) != 0)) narrow(row);
        have = cell.first + k;
        const float weight = rows_.weights[y * rows_.most + k];
        if (k == 0) {
          for (int x = 0; x < out_width_; x++) sum_[x] = weight * line_[x];
        } else {
          for (int x = 0; x < out_width_; x++) sum_[x] += weight * line_[x];
        }
      }
      for (int x = 0; x < out_width_; x++) {  // to the nearest, halves to even
        const float v = sum_[x] + 12582912.0f;  // 1.5 * 2^23: the sum's last bit is worth 1
        uint32_t bits;
        std::memcpy(&bits, &v, 4);
        const int32_t rounded = int32_t(bits & 0x7FFFFF) - 0x400000;
        out[y * out_width_ + x] = uint8_t(rounded > 255 ? 255 : rounded);
      }
    }
  }

 private:
  void narrow(const uint8_t* row) {
    const float* w = columns_.weights.data();
    for (int x = 0; x < out_width_; x++, w += columns_.most) {
      const Axis::Cell cell = columns_.cells[x];
      float sum = 0;
      for (int k = 0; k < cell.count; k++) sum += float(row[cell.first + k]) * w[k];
      line_[x] = sum;
    }
  }

  int width_, out_width_;
  Axis rows_, columns_;
  std::vector<float> line_, sum_;
};

}  // namespace atari
