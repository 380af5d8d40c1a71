// What the library has: the algorithms, their functions, their calls, and the names of their options. A new algorithm is a header
// of its own and a line in each list.
#pragma once

#include "conv/functions.h"
#include "dynamic/functions.h"
#include "em/functions.h"

// Each takes the address of a call and returns a number: run_NAME<T> in the algorithm's header.
#define TORCHCAPS_FUNCTIONS(FUNCTION)                                                                  \
  FUNCTION(route) FUNCTION(sum) FUNCTION(agreement) FUNCTION(parameters) FUNCTION(small) FUNCTION(small_gradients) \
  FUNCTION(em_moments) FUNCTION(em_gradients)                                                          \
  FUNCTION(conv_forward) FUNCTION(conv_images) FUNCTION(conv_weight) FUNCTION(conv_results)            \
  FUNCTION(conv_image_gradients) FUNCTION(conv_weight_gradients) FUNCTION(conv_lanes) FUNCTION(conv_digest)                  \
  FUNCTION(conv_few_forward) FUNCTION(conv_few_weight_gradients)                                        \
  FUNCTION(conv_image_room) FUNCTION(conv_weight_room) FUNCTION(conv_result_room)

// The name of a call and its fields in their order.
#define TORCHCAPS_CALLS(CALL) CALL("dynamic", DYNAMIC_FIELDS) CALL("em", EM_FIELDS) CALL("conv", CONV_FIELDS)

#define TORCHCAPS_OPTIONS(OPTION) DYNAMIC_OPTIONS(OPTION)
