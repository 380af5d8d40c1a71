// The transform of a tile, a rectangle of nh × nw real numbers, each a vector of channels: rows first, then columns. Of its columns
// v = 0 … nw/2 are kept, those that are real (v = 0, v = nw/2) with u = 0 … nh/2 only: the others are their conjugates.
#pragma once

#include "dft.h"

namespace {

// All rows or all columns of a tile with N numbers in each, as real transforms.
template <typename T, int N>
struct Lines {
  using V = Vec<T>;
  static constexpr int last = N / 2;

  // Row i of the tile → re and im of its frequencies v, at v·nh + i.
  static FLATTEN void rows(const V* tile, int64_t row, int64_t step, int64_t nh, V* re, V* im) {
    for (int64_t i = 0; i < nh; ++i, tile += row) {
      V x[N], real[last + 1], imaginary[last + 1];
      unroll<N>([&](auto n) { x[n] = tile[n * step]; });
      Dft<T, N>::forward(x, real, imaginary);
      unroll<last + 1>([&](auto v) {
        re[v * nh + i] = real[v];
        if constexpr (v > 0 && 2 * v < N) im[v * nh + i] = imaginary[v];
      });
    }
  }

  static FLATTEN void rows_back(const V* re, const V* im, int64_t nh, V* tile, int64_t row, int64_t step) {
    for (int64_t i = 0; i < nh; ++i, tile += row) {
      V x[N], real[last + 1], imaginary[last + 1];
      unroll<last + 1>([&](auto v) {
        real[v] = re[v * nh + i];
        if constexpr (v > 0 && 2 * v < N) imaginary[v] = im[v * nh + i];
      });
      Dft<T, N>::backward(real, imaginary, x);
      unroll<N>([&](auto n) { tile[n * step] = x[n]; });
    }
  }

  // Columns of N numbers one after the other, in place: the real part of u goes to u, the imaginary part to N − u.
  static FLATTEN void columns(V* column, int64_t count) {
    for (int64_t n = 0; n < count; ++n, column += N) {
      V x[N], real[last + 1], imaginary[last + 1];
      unroll<N>([&](auto i) { x[i] = column[i]; });
      Dft<T, N>::forward(x, real, imaginary);
      unroll<last + 1>([&](auto u) {
        column[u] = real[u];
        if constexpr (u > 0 && 2 * u < N) column[N - u] = imaginary[u];
      });
    }
  }

  static FLATTEN void columns_back(V* column, int64_t count) {
    for (int64_t n = 0; n < count; ++n, column += N) {
      V x[N], real[last + 1], imaginary[last + 1];
      unroll<last + 1>([&](auto u) {
        real[u] = column[u];
        if constexpr (u > 0 && 2 * u < N) imaginary[u] = column[N - u];
      });
      Dft<T, N>::backward(real, imaginary, x);
      unroll<N>([&](auto i) { column[i] = x[i]; });
    }
  }
};

// The lengths that there are.
#define CONV_LENGTHS(LENGTH) \
  LENGTH(1) LENGTH(2) LENGTH(4) LENGTH(6) LENGTH(8) LENGTH(10) LENGTH(12) LENGTH(14) LENGTH(16) LENGTH(18) LENGTH(20)

inline bool is_length(int64_t n) {
#define SAME(length) || n == length
  return false CONV_LENGTHS(SAME);
}

template <typename T>
class TileSpectrum {
 public:
  const int64_t nh, nw;

  TileSpectrum(int64_t nh, int64_t nw)
      : nh(nh), nw(nw), scratch_(2 * nh * (nw / 2 + 1)), re_(scratch_.data()), im_(re_ + nh * (nw / 2 + 1)) {}

  // Of a tile whose rows are `row` vectors apart and whose columns `column`.
  void forward(const Vec<T>* tile, int64_t row, int64_t column) {
    switch (nw) {
#define ROWS(length) \
  case length: Lines<T, length>::rows(tile, row, column, nh, re_, im_); break;
      CONV_LENGTHS(ROWS)
    }
    switch (nh) {
#define COLUMNS(length)                               \
  case length:                                        \
    Lines<T, length>::columns(re_, nw / 2 + 1);       \
    Lines<T, length>::columns(im_ + nh, complex_());  \
    break;
      CONV_LENGTHS(COLUMNS)
    }
  }

  // The tile from its frequencies, which are used up. Those that are not real must be there twice, once for their conjugates.
  void backward(Vec<T>* tile, int64_t row, int64_t column) {
    switch (nh) {
#define COLUMNS_BACK(length)                               \
  case length:                                             \
    Lines<T, length>::columns_back(re_, nw / 2 + 1);       \
    Lines<T, length>::columns_back(im_ + nh, complex_());  \
    break;
      CONV_LENGTHS(COLUMNS_BACK)
    }
    switch (nw) {
#define ROWS_BACK(length) \
  case length: Lines<T, length>::rows_back(re_, im_, nh, tile, row, column); break;
      CONV_LENGTHS(ROWS_BACK)
    }
  }

  // Calls real(x) or complex(re, im) for every frequency, in the order in which they are stored. Of a column that is not real, the
  // transforms a of its real and b of its imaginary part give a + ib, and at nh − u: conj(a) + i conj(b).
  template <typename Real, typename Complex>
  ALWAYS_INLINE void read(Real real, Complex complex) const {
    for (int64_t v = 0; v <= nw / 2; ++v) {
      const Vec<T>*a = re_ + v * nh, *b = im_ + v * nh;
      const bool alone = v == 0 || 2 * v == nw;
      alone ? real(a[0]) : complex(a[0], b[0]);
      for (int64_t u = 1; 2 * u < nh; ++u) {
        if (alone) {
          complex(a[u], a[nh - u]);
        } else {
          complex(a[u] - b[nh - u], a[nh - u] + b[u]);
          complex(a[u] + b[nh - u], b[u] - a[nh - u]);
        }
      }
      if (nh > 1) alone ? real(a[nh / 2]) : complex(a[nh / 2], b[nh / 2]);
    }
  }

  // The other way: real(x) and complex(re, im) set them.
  template <typename Real, typename Complex>
  ALWAYS_INLINE void write(Real real, Complex complex) {
    for (int64_t v = 0; v <= nw / 2; ++v) {
      Vec<T>*a = re_ + v * nh, *b = im_ + v * nh;
      const bool alone = v == 0 || 2 * v == nw;
      alone ? real(a[0]) : complex(a[0], b[0]);
      for (int64_t u = 1; 2 * u < nh; ++u) {
        if (alone) {
          complex(a[u], a[nh - u]);
        } else {
          Vec<T> re, im, other_re, other_im;
          complex(re, im);
          complex(other_re, other_im);
          a[u] = re + other_re, a[nh - u] = im - other_im;
          b[u] = im + other_im, b[nh - u] = other_re - re;
        }
      }
      if (nh > 1) alone ? real(a[nh / 2]) : complex(a[nh / 2], b[nh / 2]);
    }
  }

 private:
  int64_t complex_() const { return std::max<int64_t>(0, nw / 2 - 1); }  // columns that are not real

  Scratch<T> scratch_;
  Vec<T>*const re_, *const im_;
};

}  // namespace
