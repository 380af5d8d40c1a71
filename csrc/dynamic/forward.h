// The whole forward pass: r passes over the children and what happens between them.
#pragma once

#include "few_images.h"
#include "passes.h"
#include "small_problems.h"
#include "steps.h"

namespace {

// pose [B, J, D] and the sums of all passes [r, B, J, D].
template <typename T, typename S>
void route(const DynamicCall<T>& c) {
  const Problem& p = c.p;
  const Steps<T> steps{p, c.bias, c.alphas};
  const int64_t all = p.B * p.J * p.D;
  if (small<T>(p)) return route_small<T, S>(p, steps, c.poses, c.weight, c.child_weight, c.pose, c.sums);
  if (few<T>(p)) {
    route_few<T, S>(p, steps, c.poses, c.weight, c.child_weight, c.sums);
  } else {
    std::vector<T> V(all);
    for (int64_t t = 0; t < p.iterations; ++t) {
      sum_pass<T, S>(p, c.poses, c.weight, t > 0 ? V.data() : nullptr, c.child_weight, c.sums + t * all, nullptr);
      if (t + 1 < p.iterations) steps.next(c.sums + t * all, t, V.data());
    }
  }
  steps.result(c.sums + (p.iterations - 1) * all, c.pose);
}

}  // namespace
