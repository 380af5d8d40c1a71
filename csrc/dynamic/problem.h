// A call of dynamic or optimised routing, and its options: those of torchcaps/ops/dynamic/plan.py, field by field.
//
// Letters: B images, I children, J parents, d and D sizes of a child's and a parent's pose.
#pragma once

#include "../common/call.h"

// Sizes; whether the weights are [J, d, D] for all children, not [I, J, d, D]; whether the first pass has no V. Then the options.
#define DYNAMIC_NUMBERS(NUMBER)                                                              \
  NUMBER(B) NUMBER(I) NUMBER(J) NUMBER(d) NUMBER(D) NUMBER(shared) NUMBER(threads) NUMBER(first_even) \
  NUMBER(kind) NUMBER(iterations) NUMBER(squash) NUMBER(update) NUMBER(gradient) NUMBER(leaky) NUMBER(amend)

// What goes in, and what comes out; null where it is not wanted.
#define DYNAMIC_TENSORS(TENSOR)                                                              \
  TENSOR(poses) TENSOR(weight) TENSOR(child_weight) TENSOR(bias) TENSOR(alphas) TENSOR(agree) TENSOR(grad) TENSOR(sums) \
  TENSOR(pose) TENSOR(coupling) TENSOR(dposes) TENSOR(dweight) TENSOR(dchild) TENSOR(dbias)

struct Problem {
  DYNAMIC_NUMBERS(NUMBER_MEMBER)
};

template <typename T>
struct DynamicCall {
  Problem p;
  DYNAMIC_TENSORS(TENSOR_MEMBER)
};

#define DYNAMIC_FIELDS DYNAMIC_NUMBERS(FIELD_NAME) DYNAMIC_TENSORS(FIELD_NAME)

// Names that an option may have; Python asks for their numbers (torchcaps_option).
#define DYNAMIC_OPTIONS(OPTION)                                                                                   \
  OPTION(DYNAMIC, "dynamic") OPTION(OPTIMIZED, "optimized")                                                       \
  OPTION(SABOUR, "sabour") OPTION(EXPONENTIAL, "exponential") OPTION(HALF, "half") OPTION(UNIT, "unit") OPTION(NONE, "none") \
  OPTION(ACCUMULATE, "accumulate") OPTION(REPLACE, "replace") OPTION(ALL, "all") OPTION(LAST, "last")

#define OPTION_NUMBER(number, name) number,
enum Option { DYNAMIC_OPTIONS(OPTION_NUMBER) };

namespace {

template <typename T>
const T* weights_of(const Problem& p, const T* W, int64_t child) {
  return W + (p.shared ? 0 : child * p.J * p.d * p.D);
}

// The pose sizes of a problem; those that are common are known when compiling, zero stands for any.
template <int d_, int D_>
struct Shape {
  const Problem& p;
  int64_t d() const { return d_ ? d_ : p.d; }
  int64_t D() const { return D_ ? D_ : p.D; }
};

}  // namespace
