// What happens between two passes, from the sums s_j to what the children are compared with next: torchcaps/ops/routed/steps.py
// in C++, forward only. Plain loops over [B, J, D], a small part of the work.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "problem.h"

namespace {

enum Squash { SABOUR, EXPONENTIAL, HALF, UNIT, NONE };

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
  const Plan& plan;
  const T *bias, *alphas;

  // out (+)= squash(s + bias) for one parent, with room for s + bias.
  void squashed(const T* s, int64_t j, bool add, T* room, T* out) const {
    for (int64_t k = 0; k < p.D; ++k) room[k] = bias ? s[k] + bias[j * p.D + k] : s[k];
    const T f = squash_factor(length(room, p.D), plan.squash);
    for (int64_t k = 0; k < p.D; ++k) out[k] = add ? out[k] + f * room[k] : f * room[k];
  }

  // V for the pass after pass t, in place of the one before.
  void next(const T* s, int64_t t, T* V) const {
    std::vector<T> room(p.D);
    for (int64_t n = 0; n < p.B * p.J; ++n, s += p.D, V += p.D) {
      if (!alphas) {
        squashed(s, n % p.J, t > 0 && !plan.replace, room.data(), V);
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

}  // namespace
