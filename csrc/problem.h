// What every kernel needs to know, shared with torchcaps/ops/routed/native.py field by field.
#pragma once

#include <cstdint>

struct Problem {
  int64_t B, I, J, d, D;  // images, children, parents, sizes of a child's and a parent's pose
  int32_t shared;         // weights [J, d, D] for all children instead of [I, J, d, D]
  int32_t leaky;          // softmax over {0, b_1 … b_J}, the first dropped
  int32_t threads;
};

// What happens between the passes of a forward pass.
struct Plan {
  int64_t iterations;
  int32_t squash;  // SABOUR … UNIT
  int32_t replace;  // V is what the last iteration gave, not the sum of all
};
