// How spectra lie in memory. A spectrum is a stack of matrices, one for every real frequency and three for every complex one, since
// Gauss's three real products do for a complex one: of images [B·tiles × phases·C], of the weight [phases·C × K], of results
// [B·tiles × K]. Phases and channels are in the same order in both: a block of channels after the other, in it the phases.
//
// A row begins at a cache line and is padded to whole ones. Rows and matrices are an odd number of lines apart, if they are not small:
// at powers of two all of a column, or of a frequency after the other, would fall into the same few places of the caches.
#pragma once

#include "problem.h"

namespace {

constexpr int64_t LINE = 64;  // bytes

inline int64_t odd(int64_t lines) { return lines >= 8 ? lines | 1 : lines; }

template <typename T>
struct Stack {
  T* data;
  int64_t rows, columns, row, matrix;  // sizes, and distances of two rows and of two matrices

  Stack(T* data, int64_t rows, int64_t columns)
      : data(data), rows(rows), columns(columns), row(odd((columns * int64_t(sizeof(T)) + LINE - 1) / LINE) * (LINE / sizeof(T))),
        matrix(odd(rows * row / (LINE / sizeof(T))) * (LINE / sizeof(T))) {}
  T* at(int64_t frequency, int64_t r) const { return data + frequency * matrix + r * row; }
  bool is_large(int64_t matrices) const { return matrices * matrix * int64_t(sizeof(T)) > LARGE; }
};

// What follows from the sizes of a call.
template <typename T>
struct Geometry {
  const Axis h, w;
  const int64_t tiles, phases, matrices, first, end;  // tiles of an image; input channels first … end − 1 are meant
  const Stack<T> images, weight, results;

  explicit Geometry(const ConvCall<T>& c)
      : h(height(c)), w(width(c)), tiles(h.tiles() * w.tiles()), phases(h.phases() * w.phases()), matrices(count(c.tile_h, c.tile_w)),
        first(c.first_block * Simd<T>::width), end(std::min(c.C, first + c.blocks * Simd<T>::width)),
        images(c.image_spectrum, c.B * tiles, phases * c.C), weight(c.weight_spectrum, phases * (end - first), c.K),
        results(c.result_spectrum, c.B * tiles, c.K) {}

  // Frequencies that are their own conjugates are real: two of every axis, or one where its length is one.
  static int64_t count(int64_t nh, int64_t nw) {
    const int64_t real = std::min<int64_t>(nh, 2) * std::min<int64_t>(nw, 2);
    return real + (nh * nw - real) / 2 * 3;
  }

  // The place of a phase of a block of channels in a row, or of the channels among the rows.
  int64_t place(const Channels<T>& block, int64_t phase, int64_t first_channel = 0) const {
    return (block.first - first_channel) * phases + phase * block.lanes;
  }
  int64_t top(int64_t phase) const { return phase / w.phases(); }
  int64_t left(int64_t phase) const { return phase % w.phases(); }
};

}  // namespace
