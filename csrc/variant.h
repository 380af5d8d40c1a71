// The functions for one instruction set. Before including it, define VECTOR_BYTES and VARIANT(name).
#include "functions.h"

#define DEFINE(name)                                                                                \
  extern "C" int64_t VARIANT(name##_f32)(const void* call) { return run_##name<float>(call); }      \
  extern "C" int64_t VARIANT(name##_f64)(const void* call) { return run_##name<double>(call); }

TORCHCAPS_FUNCTIONS(DEFINE)
