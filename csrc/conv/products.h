// The products of spectra, frequency by frequency. Rows of all matrices are padded to whole vectors (spectra.h), so that a product may
// compute what lies behind their ends; nobody reads it.
#pragma once

#include "dft.h"
#include "spectra.h"

namespace {

// c[i][·] = Σ_k a(i, k) b[k][·] for some rows i and `vectors` vectors, or added to what is there. One number a is used for all vectors,
// a vector b for all rows.
template <typename T, int rows, int vectors>
void multiply(const T* a, int64_t a_row, int64_t a_step, const T* b, int64_t b_step, int64_t depth, T* c, int64_t c_row, bool add, bool past) {
  constexpr int width = Simd<T>::width;
  Vec<T> sum[rows * vectors];
  unroll<rows * vectors>([&](auto n) { sum[n] = Vec<T>{}; });
  for (int64_t k = 0; k < depth; ++k, a += a_step, b += b_step) {
    Vec<T> right[vectors];
    unroll<vectors>([&](auto v) { right[v] = *reinterpret_cast<const Vec<T>*>(b + v * width); });
    unroll<rows * vectors>([&](auto n) { sum[n] += a[n / vectors * a_row] * right[n % vectors]; });
  }
  if (add) unroll<rows * vectors>([&](auto n) { sum[n] += *reinterpret_cast<const Vec<T>*>(c + n / vectors * c_row + n % vectors * width); });
  const auto write = [&](auto store) {
    unroll<rows * vectors>([&](auto n) { store(sum[n], c + n / vectors * c_row + n % vectors * width); });
  };
  if (past) return write(store_past<T>);
  write([](const Vec<T>& v, T* to) { *reinterpret_cast<Vec<T>*>(to) = v; });
}

constexpr int MOST_ROWS = VECTOR_BYTES == 64 ? 12 : 6;  // their sums stay in registers, of which there are 32 or 16
constexpr int PANEL = 2;                                 // vectors
constexpr int64_t MOST_DEPTH = 512;                      // terms in one sum: sums of sums round less than one long sum

// A left matrix, transposed or not, times a panel of the right one.
template <typename T>
struct Left {
  const T* data;
  int64_t row, step;
};

template <typename T, int vectors, int rows = MOST_ROWS>
void multiply_some(int64_t count, const Left<T>& a, const T* b, int64_t b_step, int64_t depth, T* c, int64_t c_row, bool add, bool past) {
  if (count == rows) return multiply<T, rows, vectors>(a.data, a.row, a.step, b, b_step, depth, c, c_row, add, past);
  if constexpr (rows > 1) multiply_some<T, vectors, rows - 1>(count, a, b, b_step, depth, c, c_row, add, past);
}

template <typename T, int vectors>
void multiply_panel(Left<T> a, int64_t rows, const T* b, int64_t b_step, int64_t depth, T* c, int64_t c_row, bool past) {
  const int64_t blocks = (rows + MOST_ROWS - 1) / MOST_ROWS;
  for (int64_t n = 0; n < blocks; ++n) {
    const int64_t from = rows * n / blocks, to = rows * (n + 1) / blocks;  // of nearly equal size
    for (int64_t k = 0; k < depth; k += MOST_DEPTH) {
      const Left<T> some{a.data + from * a.row + k * a.step, a.row, a.step};
      const bool last = k + MOST_DEPTH >= depth;
      multiply_some<T, vectors>(to - from, some, b + k * b_step, b_step, std::min(MOST_DEPTH, depth - k), c + from * c_row, c_row, k > 0,
                                past && last && k == 0);
    }
  }
}

// For every matrix and every panel of columns: f(frequency, first column, vectors).
template <typename T, typename F>
void for_panels(int64_t matrices, int64_t columns, int64_t threads, F f) {
  const int64_t vectors = blocks_of<T>(columns), panels = (vectors + PANEL - 1) / PANEL;
#pragma omp parallel for schedule(dynamic) num_threads(static_cast<int>(threads))
  for (int64_t unit = 0; unit < matrices * panels; ++unit) {
    const int64_t panel = unit % panels;
    f(unit / panels, panel * PANEL * Simd<T>::width, std::min<int64_t>(PANEL, vectors - panel * PANEL));
  }
}

// results = images · weight
template <typename T>
void multiply_forward(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  for_panels<T>(g.matrices, c.K, c.threads, [&](int64_t f, int64_t column, int64_t vectors) {
    const Left<T> images{g.images.at(f, 0), g.images.row, 1};
    const auto run = vectors == PANEL ? multiply_panel<T, PANEL> : multiply_panel<T, 1>;
    run(images, g.images.rows, g.weight.at(f, 0) + column, g.weight.row, g.weight.rows, g.results.at(f, 0) + column, g.results.row, false);
  });
}

// weight = imagesᵀ · results, for channels first … end − 1
template <typename T>
void multiply_weight_gradients(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  for_panels<T>(g.matrices, c.K, c.threads, [&](int64_t f, int64_t column, int64_t vectors) {
    const Left<T> images{g.images.at(f, 0) + g.first * g.phases, 1, g.images.row};
    const auto run = vectors == PANEL ? multiply_panel<T, PANEL> : multiply_panel<T, 1>;
    run(images, g.weight.rows, g.results.at(f, 0) + column, g.results.row, g.results.rows, g.weight.at(f, 0) + column, g.weight.row, g.weight.is_large(g.matrices));
  });
}

// images = results · weightᵀ: of the weight a panel at a time is transposed
template <typename T>
void multiply_image_gradients(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  constexpr int width = Simd<T>::width;
  for_panels<T>(g.matrices, g.weight.rows, c.threads, [&](int64_t f, int64_t column, int64_t vectors) {
    static thread_local std::vector<T> room;
    room.resize((c.K + 1) * PANEL * width);
    Vec<T>* panel = reinterpret_cast<Vec<T>*>((reinterpret_cast<uintptr_t>(room.data()) + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES);
    const int64_t rows = std::min<int64_t>(PANEL * width, g.weight.rows - column);
    pack<T, PANEL>(g.weight.at(f, column), g.weight.row, 0, rows, c.K, panel);
    const Left<T> results{g.results.at(f, 0), g.results.row, 1};
    const auto run = vectors == PANEL ? multiply_panel<T, PANEL> : multiply_panel<T, 1>;
    run(results, g.results.rows, reinterpret_cast<const T*>(panel), PANEL * width, c.K, g.images.at(f, 0) + column, g.images.row, g.images.is_large(g.matrices));
  });
}

}  // namespace
