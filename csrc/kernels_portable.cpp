// portable: vectors of 16 bytes.
#define VECTOR_BYTES 16
#define VARIANT(name) torchcaps_##name##_portable
#include "variant.h"
