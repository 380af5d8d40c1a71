// What every kernel needs to know, shared with torchcaps/ops/routed/native.py and ops/em/native.py field by field.
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
  int32_t squash;  // SABOUR … NONE
  int32_t replace;  // V is what the last iteration gave, not the sum of all
};

// EM routing between capsules on a grid. A link joins a position of children to a position of parents by a slice of weights.
struct Grid {
  int64_t B, Q, P, K, T, J;   // images, positions of children and of parents, slices of weights, types of children and parents
  int64_t rows, inner, cols;  // a pose is rows × inner, a weight inner × cols, a vote rows × cols
  int32_t everywhere;         // a child shares itself out among its parents at all positions, not at each on its own
  int32_t threads;
  const int32_t* first;   // [Q + 1]: where the links of a child's position begin in the two lists
  const int32_t* parent;  // the position that a link leads to
  const int32_t* slice;   // the weights that it uses
};
