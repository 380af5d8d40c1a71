// Forward passes for fewer images than lanes.
#pragma once

#include "simd.h"

namespace {

// For fewer images than lanes the votes are smaller than the weights: they are computed once, with a pose's numbers in the
// lanes, and the passes read them instead of the weights.

template <typename T>
inline Vec<T> row(const T* x) {
  return *reinterpret_cast<const typename Simd<T>::unaligned*>(x);
}

template <typename T>
inline T dot_row(const T* x, const T* y, int64_t n) {
  constexpr int w = Simd<T>::width;
  Vec<T> sum = Vec<T>{};
  int64_t k = 0;
  for (; k + w <= n; k += w) sum += row<T>(x + k) * row<T>(y + k);
  T total = horizontal_sum<T>(sum);
  for (; k < n; ++k) total += x[k] * y[k];
  return total;
}

template <typename T>
inline void add_scaled_row(T c, const T* x, T* sum, int64_t n) {
  constexpr int w = Simd<T>::width;
  int64_t k = 0;
  for (; k + w <= n; k += w)
    *reinterpret_cast<typename Simd<T>::unaligned*>(sum + k) = row<T>(sum + k) + splat<T>(c) * row<T>(x + k);
  for (; k < n; ++k) sum[k] += c * x[k];
}

// Sums over the children, one range of them per thread, added in order: body(image, first child, last child, sum [J, D]).
template <typename T, typename Body>
void sum_over_ranges(const Problem& p, T* s, Body body) {
  const int64_t JD = p.J * p.D, ranges = p.threads;
  std::vector<T> partial(p.B * ranges * JD, T(0));
#pragma omp parallel for num_threads(p.threads) schedule(static, 1)
  for (int64_t range = 0; range < ranges; ++range)
    for (int64_t b = 0; b < p.B; ++b)
      body(b, p.I * range / ranges, p.I * (range + 1) / ranges, partial.data() + (b * ranges + range) * JD);
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t n = 0; n < JD; ++n) {
      T total = 0;
      for (int64_t range = 0; range < ranges; ++range) total += partial[(b * ranges + range) * JD + n];
      s[b * JD + n] = total;
    }
}

// One child's vote for one parent.
template <typename T, typename S>
inline void vote_row(const S& size, const T* pose, const T* Wij, T* vote) {
  constexpr int w = Simd<T>::width;
  int64_t k = 0;
  for (; k + w <= size.D(); k += w) {
    Vec<T> sum = Vec<T>{};
    for (int64_t a = 0; a < size.d(); ++a) sum += splat<T>(pose[a]) * row<T>(Wij + a * size.D() + k);
    *reinterpret_cast<typename Simd<T>::unaligned*>(vote + k) = sum;
  }
  for (; k < size.D(); ++k) {
    T sum = 0;
    for (int64_t a = 0; a < size.d(); ++a) sum += pose[a] * Wij[a * size.D() + k];
    vote[k] = sum;
  }
}

// votes [B, I, J, D] = u_i W_ij, and their first sum s [B, J, D], where every p_ij is the same.
template <typename T, typename S>
void votes_pass(const Problem& p, const T* u, const T* W, const T* w, T* votes, T* s) {
  const S size{p};
  const T even = T(1) / T(p.J + (p.leaky ? 1 : 0));
  sum_over_ranges<T>(p, s, [&](int64_t b, int64_t first, int64_t last, T* sum) {
    for (int64_t i = first; i < last; ++i) {
      const T* Wi = weights_of(p, W, i);
      const T c = w ? even * w[b * p.I + i] : even;
      T* vote = votes + (b * p.I + i) * p.J * size.D();
      for (int64_t j = 0; j < p.J; ++j)
        vote_row<T>(size, u + (b * p.I + i) * size.d(), Wi + j * size.d() * size.D(), vote + j * size.D());
      add_scaled_row<T>(c, vote, sum, p.J * size.D());
    }
  });
}

// Softmax of b [J], which has room for whole vectors.
template <typename T>
inline void softmax_row(T* b, int64_t J, bool leaky) {
  constexpr int w = Simd<T>::width;
  T top = leaky ? T(0) : b[0];
  for (int64_t j = 0; j < J; ++j) top = std::max(top, b[j]);
  for (int64_t j = J; j % w; ++j) b[j] = top;
  T total = leaky ? exponential(splat<T>(-top))[0] : T(0);
  for (int64_t j = 0; j < J; j += w) {
    Vec<T>& e = *reinterpret_cast<Vec<T>*>(b + j);
    e = exponential(e - splat<T>(top));
  }
  for (int64_t j = 0; j < J; ++j) total += b[j];
  const T scale = T(1) / total;
  for (int64_t j = 0; j < J; ++j) b[j] *= scale;
}

// s [B, J, D] = Σ_i w_i p_ij û_ij from stored votes.
template <typename T, typename S>
void votes_sum_pass(const Problem& p, const T* votes, const T* V, const T* w, T* s) {
  const S size{p};
  const int64_t JD = p.J * p.D;
  sum_over_ranges<T>(p, s, [&](int64_t b, int64_t first, int64_t last, T* sum) {
    Scratch<T> scratch(p.J / Simd<T>::width + 1);
    T* share = reinterpret_cast<T*>(scratch.data());
    for (int64_t i = first; i < last; ++i) {
      const T* vote = votes + (b * p.I + i) * JD;
      for (int64_t j = 0; j < p.J; ++j)
        share[j] = dot_row<T>(vote + j * size.D(), V + b * JD + j * size.D(), size.D());
      softmax_row<T>(share, p.J, p.leaky);
      const T weight = w ? w[b * p.I + i] : T(1);
      for (int64_t j = 0; j < p.J; ++j)
        add_scaled_row<T>(share[j] * weight, vote + j * size.D(), sum + j * size.D(), size.D());
    }
  });
}

}  // namespace
