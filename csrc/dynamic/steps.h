// What happens between two passes, from the sums s_j to what the children are compared with next: torchcaps/ops/dynamic/steps.py
// in C++. Plain loops over [B, J, D], a small part of the work; forward only, but for the images in lanes below.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "../common/simd.h"
#include "problem.h"

namespace {

template <typename T>
inline T length(const T* s, int64_t n) {
  T sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += s[k] * s[k];
  return std::sqrt(sum);
}

// n, or NaN where it is not finite: see torchcaps/ops/finite.py.
template <typename T>
inline T finite_or_nan(T n) {
  return n < std::numeric_limits<T>::infinity() ? n : std::numeric_limits<T>::quiet_NaN();
}

// v = f(‖s‖)·s; the zero vector stays zero. Without a finite length there is no direction: NaN, but for NONE.
template <typename T>
inline T squash_factor(T length, int kind) {
  const T n = finite_or_nan(length);
  switch (kind) {
    case SABOUR: return n / (1 + n * n);
    case HALF: return n / (T(0.5) + n * n);
    case EXPONENTIAL: return n == 0 ? T(0) : -std::expm1(-n) / n;
    case NONE: return T(1);
    default: return n == 0 ? T(0) : 1 / n;
  }
}

// Its derivative f'(n), for n ≠ 0. Divided by b twice, since b² overflows long before b does.
template <typename T>
inline T squash_slope(T n, int kind) {
  const T a = kind == HALF ? T(0.5) : T(1), b = a + n * n;
  switch (kind) {
    case EXPONENTIAL: return (std::exp(-n) + std::expm1(-n) / n) / n;
    case UNIT: return -1 / (n * n);
    case NONE: return T(0);
    default: return (a - n * n) / b / b;
  }
}

// The larger of two lengths; NaN if one of them is.
template <typename T>
inline T longer(T a, T b) {
  return a >= b ? a : b >= a ? b : std::numeric_limits<T>::quiet_NaN();
}

// Dynamic routing without alphas, optimised routing with one per iteration; bias [J, D] or null.
template <typename T>
struct Steps {
  const Problem& p;
  const T *bias, *alphas;

  // out (+)= squash(s + bias) for one parent, with room for s + bias.
  void squashed(const T* s, int64_t j, bool add, T* room, T* out) const {
    for (int64_t k = 0; k < p.D; ++k) room[k] = bias ? s[k] + bias[j * p.D + k] : s[k];
    const T f = squash_factor(length(room, p.D), p.squash);
    for (int64_t k = 0; k < p.D; ++k) out[k] = add ? out[k] + f * room[k] : f * room[k];
  }

  // V for the pass after pass t, in place of the one before.
  void next(const T* s, int64_t t, T* V) const {
    std::vector<T> room(p.D);
    for (int64_t n = 0; n < p.B * p.J; ++n, s += p.D, V += p.D) {
      if (!alphas) {
        squashed(s, n % p.J, t > 0 && p.update != REPLACE, room.data(), V);
        continue;
      }
      const T f = squash_factor(length(s, p.D), UNIT);
      for (int64_t k = 0; k < p.D; ++k) V[k] = s[k] * f / alphas[t];
    }
  }

  // The parents' poses from the last sums.
  void result(const T* s, T* pose) const {
    std::vector<T> room(p.D);
    for (int64_t b = 0; b < p.B; ++b, s += p.J * p.D, pose += p.J * p.D) {
      T longest = 0;
      if (alphas)
        for (int64_t j = 0; j < p.J; ++j) longest = longer(longest, length(s + j * p.D, p.D));
      longest = finite_or_nan(longest);
      for (int64_t j = 0; j < p.J; ++j) {
        if (!alphas) {
          squashed(s + j * p.D, j, false, room.data(), pose + j * p.D);
        } else {
          for (int64_t k = 0; k < p.D; ++k) pose[j * p.D + k] = s[j * p.D + k] / (1 + longest);
        }
      }
    }
  }
};

// The same for the images of one vector, forward and backward: images in the lanes. Everything of a parent is [J·D] vectors.
template <typename T>
struct LaneSteps {
  const Problem& p;
  const T *bias, *alphas;

  LaneSteps(const Steps<T>& steps)
      : p(steps.p), bias(steps.alphas ? nullptr : steps.bias), alphas(steps.alphas) {}

  int kind() const { return alphas ? UNIT : p.squash; }
  bool accumulates() const { return !alphas && p.update != REPLACE; }

  Vec<T> shifted(const Vec<T>* s, int64_t n) const { return bias ? s[n] + bias[n] : s[n]; }

  // Per lane the length of s + bias of one parent, whose numbers begin at `from`.
  Vec<T> lengths(const Vec<T>* s, int64_t from) const {
    Vec<T> sum = Vec<T>{};
    for (int64_t n = from; n < from + p.D; ++n) sum += shifted(s, n) * shifted(s, n);
    for (int lane = 0; lane < Simd<T>::width; ++lane) sum[lane] = std::sqrt(sum[lane]);
    return sum;
  }

  // out = squash(s + bias) · scale, plus `before` if there is one; out may be s.
  void squashed(const Vec<T>* s, T scale, const Vec<T>* before, Vec<T>* out) const {
    for (int64_t from = 0; from < p.J * p.D; from += p.D) {
      Vec<T> f = lengths(s, from);
      for (int lane = 0; lane < Simd<T>::width; ++lane) f[lane] = squash_factor(f[lane], kind()) * scale;
      for (int64_t n = from; n < from + p.D; ++n) out[n] = before ? before[n] + f * shifted(s, n) : f * shifted(s, n);
    }
  }

  // f g + (f'/n) ((s + bias)·g) (s + bias), times scale; zero where the length n is. NONE has no second term, whatever s holds.
  void squash_gradient(const Vec<T>* s, const Vec<T>* grad, T scale, Vec<T>* out) const {
    for (int64_t from = 0; from < p.J * p.D; from += p.D) {
      Vec<T> f = lengths(s, from), radial = Vec<T>{};
      for (int64_t n = from; n < from + p.D; ++n) radial += shifted(s, n) * grad[n];
      for (int lane = 0; lane < Simd<T>::width; ++lane) {
        const T n = f[lane];
        radial[lane] = n == 0 ? T(0) : radial[lane] * squash_slope(n, kind()) / n * scale;
        f[lane] = n == 0 ? T(0) : squash_factor(n, kind()) * scale;
      }
      for (int64_t n = from; n < from + p.D; ++n)
        out[n] = kind() == NONE ? f * grad[n] : f * grad[n] + radial * shifted(s, n);
    }
  }

  // V for the pass after pass t; `before` is the one that pass t had, null for the first.
  void next(const Vec<T>* s, int64_t t, const Vec<T>* before, Vec<T>* V) const {
    squashed(s, alphas ? 1 / alphas[t] : T(1), accumulates() ? before : nullptr, V);
  }

  // The gradient of s from that of what it adds to V.
  void next_gradient(const Vec<T>* s, int64_t t, const Vec<T>* grad, Vec<T>* out) const {
    squash_gradient(s, grad, alphas ? 1 / alphas[t] : T(1), out);
  }

  // The parents' poses from the last sums; may be in place.
  void result(const Vec<T>* s, Vec<T>* pose) const {
    if (!alphas) return squashed(s, T(1), nullptr, pose);
    const Vec<T> scale = T(1) / (T(1) + longest(s));
    for (int64_t n = 0; n < p.J * p.D; ++n) pose[n] = s[n] * scale;
  }

  Vec<T> longest(const Vec<T>* s) const {
    Vec<T> top = Vec<T>{};
    for (int64_t from = 0; from < p.J * p.D; from += p.D) {
      const Vec<T> n = lengths(s, from);
      for (int lane = 0; lane < Simd<T>::width; ++lane) top[lane] = longer<T>(top[lane], n[lane]);
    }
    for (int lane = 0; lane < Simd<T>::width; ++lane) top[lane] = finite_or_nan<T>(top[lane]);
    return top;
  }

  // Its gradient; equally long longest sums share what the length gets.
  void result_gradient(const Vec<T>* s, const Vec<T>* grad, Vec<T>* out) const {
    if (!alphas) return squash_gradient(s, grad, T(1), out);
    const Vec<T> top = longest(s), scale = T(1) / (T(1) + top), none = Vec<T>{};
    Vec<T> inner = none, count = none;
    for (int64_t n = 0; n < p.J * p.D; ++n) inner -= s[n] * grad[n];
    for (int64_t from = 0; from < p.J * p.D; from += p.D) count += lengths(s, from) == top ? splat<T>(1) : none;
    const Vec<T> share = top == none ? none : inner * scale * scale / count / top;
    for (int64_t from = 0; from < p.J * p.D; from += p.D) {
      const Vec<T> along = lengths(s, from) == top ? share : none;
      for (int64_t n = from; n < from + p.D; ++n) out[n] = grad[n] * scale + along * s[n];
    }
  }
};

}  // namespace
