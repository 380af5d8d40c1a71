// What happens between two passes for the images of one vector, forward and backward: steps.h with images in the lanes, and
// the gradients of torchcaps/ops/routed/steps.py. Everything of a parent is [J·D] vectors.
#pragma once

#include "simd.h"
#include "steps.h"

namespace {

template <typename T>
struct LaneSteps {
  const Problem& p;
  const Plan& plan;
  const T *bias, *alphas;

  LaneSteps(const Steps<T>& steps)
      : p(steps.p), plan(steps.plan), bias(steps.alphas ? nullptr : steps.bias), alphas(steps.alphas) {}

  int kind() const { return alphas ? UNIT : plan.squash; }
  bool accumulates() const { return !alphas && !plan.replace; }

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
