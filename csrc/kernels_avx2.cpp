// avx2: vectors of 32 bytes.
#define VECTOR_BYTES 32
#define VARIANT(name) torchcaps_##name##_avx2
#include "variant.h"
