// A call of EM routing between capsules on a grid; shapes as in torchcaps/ops/em/moments.py. A link joins a position of children to
// a position of parents by a slice of weights.
#pragma once

#include "../common/call.h"

// Images, positions of children and of parents, slices of weights, types of children and of parents; a pose is rows × inner, a
// weight inner × cols, a vote rows × cols. Whether a child shares itself out among its parents at all positions, not at each.
#define EM_NUMBERS(NUMBER)                                                                                          \
  NUMBER(B) NUMBER(Q) NUMBER(P) NUMBER(K) NUMBER(T) NUMBER(J) NUMBER(rows) NUMBER(inner) NUMBER(cols) NUMBER(everywhere) \
  NUMBER(threads)

// Where the links of a child's position begin in the two lists [Q + 1], the position that a link leads to, the weights it uses.
#define EM_LINKS(LINK) LINK(first) LINK(parent) LINK(slice)

// What goes in: the first iteration has no log_p, mean and precision. What comes out, its gradients, and those of what went in.
#define EM_TENSORS(TENSOR)                                                                                          \
  TENSOR(poses) TENSOR(weight) TENSOR(activation) TENSOR(shift) TENSOR(log_p) TENSOR(mean) TENSOR(precision)        \
  TENSOR(amount) TENSOR(new_mean) TENSOR(variance) TENSOR(log_mass) TENSOR(grad_amount) TENSOR(grad_mean)           \
  TENSOR(grad_variance) TENSOR(dposes) TENSOR(dweight) TENSOR(dactivation) TENSOR(dlog_p) TENSOR(dmean)             \
  TENSOR(dprecision)

#define LINK_MEMBER(name) const int32_t* name;

struct Grid {
  EM_NUMBERS(NUMBER_MEMBER)
  EM_LINKS(LINK_MEMBER)
};

template <typename T>
struct EmCall {
  Grid g;
  const uint8_t* present;  // [B, P]: false where nothing is sent
  EM_TENSORS(TENSOR_MEMBER)
};

#define EM_FIELDS EM_NUMBERS(FIELD_NAME) EM_LINKS(FIELD_NAME) FIELD_NAME(present) EM_TENSORS(FIELD_NAME)
