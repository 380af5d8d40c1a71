// EM routing: what forward and backward share. Lanes are types of parents; a tile is a vote, or a sum of votes, of as many parents
// as a vector has lanes: rows × cols vectors.
#pragma once

#include <cmath>
#include <limits>

#include "../common/simd.h"
#include "grid.h"

namespace {

constexpr int64_t AT_ONCE = 4;  // types at one position that are handled together, so that sums are loaded once for all of them
template <typename T>
constexpr T INFINITE = std::numeric_limits<T>::infinity();
constexpr double NEVER = 1e30;  // ln of the mass of a parent that nobody sends to

// The sizes of a pose and a weight; those that are common are known when compiling, zero stands for any.
template <int rows_, int inner_, int cols_>
struct Pose {
  const Grid& g;
  int64_t rows() const { return rows_ ? rows_ : g.rows; }
  int64_t inner() const { return inner_ ? inner_ : g.inner; }
  int64_t cols() const { return cols_ ? cols_ : g.cols; }
  int64_t size() const { return rows() * cols(); }
};

template <typename T>
int64_t tiles_of(const Grid& g) {
  return (g.J + Simd<T>::width - 1) / Simd<T>::width;
}

// x[j][n] of one position → tiles [tile][n]; lanes past the last parent hold `missing`.
template <typename T>
void to_tiles(const Grid& g, const T* x, int64_t n, T missing, Vec<T>* out) {
  constexpr int w = Simd<T>::width;
  for (int64_t tile = 0; tile < tiles_of<T>(g); ++tile)
    for (int64_t k = 0; k < n; ++k)
      for (int lane = 0; lane < w; ++lane) {
        const int64_t j = tile * w + lane;
        out[tile * n + k][lane] = j < g.J ? x[j * n + k] : missing;
      }
}

template <typename T>
void from_tiles(const Grid& g, const Vec<T>* in, int64_t n, T* x) {
  constexpr int w = Simd<T>::width;
  for (int64_t j = 0; j < g.J; ++j)
    for (int64_t k = 0; k < n; ++k) x[j * n + k] = in[j / w * n + k][j % w];
}

// Weights [K, T, J, inner, cols] → tiles [K, T, tile, inner · cols].
template <typename T>
void weights_to_tiles(const Grid& g, const T* W, Vec<T>* out) {
  const int64_t n = g.inner * g.cols;
#pragma omp parallel for num_threads(g.threads)
  for (int64_t s = 0; s < g.K * g.T; ++s) to_tiles<T>(g, W + s * g.J * n, n, T(0), out + s * tiles_of<T>(g) * n);
}

// V = M W (+ shift), all parents of a tile at once. Here and below __restrict keeps what is read in registers while V is written.
template <typename T, typename S>
inline void vote(const S& s, const T* __restrict M, const Vec<T>* __restrict W, const T* __restrict shift, Vec<T>* __restrict V) {
  for (int64_t r = 0; r < s.rows(); ++r)
    for (int64_t c = 0; c < s.cols(); ++c) {
      Vec<T> sum = W[c] * M[r * s.inner()];
      for (int64_t m = 1; m < s.inner(); ++m) sum += W[m * s.cols() + c] * M[r * s.inner() + m];
      if (shift) sum += shift[r * s.cols() + c];
      V[r * s.cols() + c] = sum;
    }
}

// ln a_j N(V; μ, σ²) without its constants: ln p − ½ Σ (V − μ)² / σ². The precision comes before the square, which may overflow:
// lanes past the last parent have precision 0.
template <typename T, typename S>
inline Vec<T> score(const S& s, const Vec<T>* __restrict V, Vec<T> log_p, const Vec<T>* __restrict mean,
                    const Vec<T>* __restrict precision) {
  Vec<T> even = Vec<T>{}, odd = Vec<T>{};
  int64_t h = 0;
  for (; h + 2 <= s.size(); h += 2) {
    Vec<T> z = V[h] - mean[h], y = V[h + 1] - mean[h + 1];
    even += z * precision[h] * z;
    odd += y * precision[h + 1] * y;
  }
  if (h < s.size()) even += (V[h] - mean[h]) * precision[h] * (V[h] - mean[h]);
  return log_p - (even + odd) * T(0.5);
}

template <typename T>
inline T largest_lane(const Vec<T>& v) {
  T found = v[0];
  for (int lane = 1; lane < Simd<T>::width; ++lane) found = std::max(found, T(v[lane]));
  return found;
}

// x − ln Σ e^x over n vectors: logarithms of the shares of a child. All are NaN if one of x is NaN or ∞, or all are −∞.
template <typename T>
void log_softmax(Vec<T>* x, int64_t n) {
  Vec<T> top = x[0], sum = Vec<T>{};
  for (int64_t k = 1; k < n; ++k) top = larger<T>(top, x[k]);
  const T most = largest_lane<T>(top);
  for (int64_t k = 0; k < n; ++k) sum += exponential(x[k] - most);
  const T total = most + std::log(horizontal_sum<T>(sum));
  for (int64_t k = 0; k < n; ++k) x[k] -= total;
}

// The parents of the last iteration in tiles, for one image. None before the first E-step.
template <typename T>
struct Parents {
  Scratch<T> log_p, mean, precision;

  Parents(const Grid& g, int64_t size)
      : log_p(g.P * tiles_of<T>(g)), mean(g.P * tiles_of<T>(g) * size), precision(g.P * tiles_of<T>(g) * size) {}

  void load(const Grid& g, int64_t size, int64_t image, const T* p, const T* m, const T* v) {
    const int64_t tiles = tiles_of<T>(g);
    for (int64_t at = 0; at < g.P; ++at) {
      const int64_t from = (image * g.P + at) * g.J;
      to_tiles<T>(g, p + from, 1, -INFINITE<T>, log_p.data() + at * tiles);
      to_tiles<T>(g, m + from * size, size, T(0), mean.data() + at * tiles * size);
      to_tiles<T>(g, v + from * size, size, T(0), precision.data() + at * tiles * size);
    }
  }
};

// The links of one position of children whose parents are there.
struct Reached {
  std::vector<int32_t> parent, slice;

  void find(const Grid& g, int64_t q, const uint8_t* present) {
    parent.clear();
    slice.clear();
    for (int32_t link = g.first[q]; link < g.first[q + 1]; ++link)
      if (!present || present[g.parent[link]]) {
        parent.push_back(g.parent[link]);
        slice.push_back(g.slice[link]);
      }
  }
  int64_t count() const { return static_cast<int64_t>(parent.size()); }
};

inline int64_t most_links(const Grid& g) {
  int64_t most = 1;
  for (int64_t q = 0; q < g.Q; ++q) most = std::max<int64_t>(most, g.first[q + 1] - g.first[q]);
  return most;
}

// Logarithms of a child's shares for all tiles that it reaches, x [link][tile]: even ones, or those of its scores.
template <typename T>
void log_shares(const Grid& g, int64_t links, bool scored, Vec<T>* x) {
  const int64_t tiles = tiles_of<T>(g);
  if (scored) {
    if (g.everywhere) return log_softmax<T>(x, links * tiles);
    for (int64_t link = 0; link < links; ++link) log_softmax<T>(x + link * tiles, tiles);
    return;
  }
  const T even = -std::log(T(g.J) * T(g.everywhere ? links : 1));
  for (int64_t k = 0; k < links * tiles; ++k) x[k] = splat<T>(even);
}

}  // namespace
