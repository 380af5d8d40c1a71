// The functions of the library for dynamic and optimised routing.
#pragma once

#include "forward.h"
#include "gradients.h"
#include "small_gradients.h"

namespace {

// Calls a pass with the pose sizes known to the compiler if they are common ones.
template <typename T, typename Pass>
void with_shape(const DynamicCall<T>& c, Pass pass) {
  if (c.p.d == 8 && c.p.D == 16) return pass(c, Shape<8, 16>{c.p});
  if (c.p.d == 16 && c.p.D == 16) return pass(c, Shape<16, 16>{c.p});
  return pass(c, Shape<0, 0>{c.p});
}

#define DYNAMIC_FUNCTION(name, ...)                                                       \
  template <typename T>                                                                   \
  int64_t run_##name(const void* call) {                                                  \
    with_shape(*static_cast<const DynamicCall<T>*>(call), [](const auto& c, auto shape) { \
      using S = decltype(shape);                                                          \
      __VA_ARGS__;                                                                        \
    });                                                                                   \
    return 0;                                                                             \
  }

DYNAMIC_FUNCTION(route, route<T, S>(c))
DYNAMIC_FUNCTION(sum, sum_pass<T, S>(c.p, c.poses, c.weight, c.agree, c.child_weight, c.sums, c.coupling))
DYNAMIC_FUNCTION(agreement, agreement_pass<T, S>(c.p, c.poses, c.weight, c.agree, c.grad, c.child_weight, c.sums))
DYNAMIC_FUNCTION(parameters, parameter_pass<T, S>(c))
DYNAMIC_FUNCTION(small_gradients, small_gradients<T, S>(c))

template <typename T>
int64_t run_small(const void* call) {
  return small<T>(static_cast<const DynamicCall<T>*>(call)->p);
}

}  // namespace
