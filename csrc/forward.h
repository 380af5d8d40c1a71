// The whole forward pass: r passes over the children and what happens between them.
#pragma once

#include "few_images.h"
#include "routing_passes.h"
#include "small_problems.h"
#include "steps.h"

namespace {

// pose [B, J, D] and the sums of all passes [r, B, J, D].
template <typename T, typename S>
void route(const Problem& p, const Plan& plan, const T* u, const T* W, const T* w, const T* bias, const T* alphas, T* pose,
           T* sums) {
  const Steps<T> steps{p, plan, bias, alphas};
  const int64_t all = p.B * p.J * p.D;
  if (small<T>(p)) return route_small<T, S>(p, steps, u, W, w, pose, sums);
  if (few<T>(p)) {
    route_few<T, S>(p, steps, u, W, w, sums);
  } else {
    std::vector<T> V(all);
    for (int64_t t = 0; t < plan.iterations; ++t) {
      sum_pass<T, S>(p, u, W, t > 0 ? V.data() : nullptr, w, sums + t * all, nullptr);
      if (t + 1 < plan.iterations) steps.next(sums + t * all, t, V.data());
    }
  }
  steps.result(sums + (plan.iterations - 1) * all, pose);
}

}  // namespace
