// The functions of the library for EM routing.
#pragma once

#include "gradients.h"
#include "moments.h"

namespace {

// Calls a pass with the pose sizes known to the compiler if they are the common ones, 4×4.
#define EM_FUNCTION(name)                                                                 \
  template <typename T>                                                                   \
  int64_t run_##name(const void* call) {                                                  \
    const auto& c = *static_cast<const EmCall<T>*>(call);                                 \
    if (c.g.rows == 4 && c.g.inner == 4 && c.g.cols == 4) {                               \
      name<T, Pose<4, 4, 4>>(c);                                                          \
    } else {                                                                              \
      name<T, Pose<0, 0, 0>>(c);                                                          \
    }                                                                                     \
    return 0;                                                                             \
  }

EM_FUNCTION(em_moments)
EM_FUNCTION(em_gradients)

}  // namespace
