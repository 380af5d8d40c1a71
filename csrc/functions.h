// What the library has: the algorithms, their functions, their calls, and the names of their options. A new algorithm is a header
// of its own and a line in each list.
#pragma once

#include "dynamic/functions.h"
#include "em/functions.h"

// Each takes the address of a call and returns a number: run_NAME<T> in the algorithm's header.
#define TORCHCAPS_FUNCTIONS(FUNCTION)                                                                  \
  FUNCTION(route) FUNCTION(sum) FUNCTION(agreement) FUNCTION(parameters) FUNCTION(small) FUNCTION(small_gradients) \
  FUNCTION(em_moments) FUNCTION(em_gradients)

// The name of a call and its fields in their order.
#define TORCHCAPS_CALLS(CALL) CALL("dynamic", DYNAMIC_FIELDS) CALL("em", EM_FIELDS)

#define TORCHCAPS_OPTIONS(OPTION) DYNAMIC_OPTIONS(OPTION)
