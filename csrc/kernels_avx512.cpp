// avx512: vectors of 64 bytes.
#define VECTOR_BYTES 64
#define VARIANT(name) torchcaps_##name##_avx512
#include "variant.h"
