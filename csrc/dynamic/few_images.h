// The forward pass for fewer images than lanes.
#pragma once

#include <memory>

#include "../common/simd.h"
#include "steps.h"

namespace {

// The votes are then smaller than the weights: they are computed once, with a pose's numbers in the lanes, and the passes
// read them instead of the weights.

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

// Softmax of b [J], times scale; b has room for whole vectors. NaN and ∞ as in routing_passes.h.
template <typename T>
inline void softmax_row(T* b, int64_t J, bool leaky, T scale) {
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
  for (int64_t j = 0; j < J; ++j) b[j] *= scale / total;
}

// One range of children of one image: votes [J, D] per child, and their first sum, where every p_ij is the same.
template <typename T, typename S>
void votes_and_sum(const S& size, int64_t b, int64_t first, int64_t last, const T* u, const T* W, const T* w, T* votes, T* sum) {
  const Problem& p = size.p;
  const T even = T(1) / T(p.J + (p.leaky ? 1 : 0));
  for (int64_t i = b * p.I + first; i < b * p.I + last; ++i) {
    const T* Wi = weights_of(p, W, i - b * p.I);
    T* vote = votes + i * p.J * size.D();
    for (int64_t j = 0; j < p.J; ++j)
      vote_row<T>(size, u + i * size.d(), Wi + j * size.d() * size.D(), vote + j * size.D());
    add_scaled_row<T>(w ? even * w[i] : even, vote, sum, p.J * size.D());
  }
}

// The same range in a later pass: the sum Σ_i w_i p_ij û_ij from the votes.
template <typename T, typename S>
void sum_of_votes(const S& size, int64_t b, int64_t first, int64_t last, const T* votes, const T* V, const T* w, T* sum) {
  const Problem& p = size.p;
  const int64_t D = size.D();
  Scratch<T> scratch(p.J / Simd<T>::width + 1);
  T* share = reinterpret_cast<T*>(scratch.data());
  for (int64_t i = b * p.I + first; i < b * p.I + last; ++i) {
    const T* vote = votes + i * p.J * D;
    for (int64_t j = 0; j < p.J; ++j) share[j] = dot_row<T>(vote + j * D, V + (b * p.J + j) * D, D);
    softmax_row<T>(share, p.J, p.leaky, w ? w[i] : T(1));
    for (int64_t j = 0; j < p.J; ++j) add_scaled_row<T>(share[j], vote + j * D, sum + j * D, D);
  }
}

// All passes in one parallel region, because waking the threads costs as much as a pass: sums [r, B, J, D]. Every thread has
// one range of the children; their sums are added in order.
template <typename T, typename S>
void route_few(const Problem& p, const Steps<T>& steps, const T* u, const T* W, const T* w, T* sums) {
  const S size{p};
  const int64_t JD = p.J * p.D, ranges = p.threads;
  std::unique_ptr<T[]> votes(new T[p.B * p.I * JD]);
  std::vector<T> partial(p.B * ranges * JD), V(p.B * JD);
#pragma omp parallel num_threads(p.threads)
  for (int64_t t = 0; t < p.iterations; ++t) {
#pragma omp for schedule(static, 1)
    for (int64_t range = 0; range < ranges; ++range)
      for (int64_t b = 0; b < p.B; ++b) {
        const int64_t first = p.I * range / ranges, last = p.I * (range + 1) / ranges;
        T* sum = partial.data() + (b * ranges + range) * JD;
        std::fill_n(sum, JD, T(0));
        if (t == 0) {
          votes_and_sum<T>(size, b, first, last, u, W, w, votes.get(), sum);
        } else {
          sum_of_votes<T>(size, b, first, last, votes.get(), V.data(), w, sum);
        }
      }
#pragma omp single
    {
      T* s = sums + t * p.B * JD;
      for (int64_t b = 0; b < p.B; ++b)
        for (int64_t n = 0; n < JD; ++n) {
          T total = 0;
          for (int64_t range = 0; range < ranges; ++range) total += partial[(b * ranges + range) * JD + n];
          s[b * JD + n] = total;
        }
      steps.next(s, t, V.data());
    }
  }
}

// Whether the votes are worth storing: fewer images than half a vector block of floats, and at most 16 MB.
template <typename T>
bool few(const Problem& p) {
  return p.B < 8 && p.B * p.I * p.J * p.D * static_cast<int64_t>(sizeof(T)) <= (16 << 20);
}

}  // namespace
