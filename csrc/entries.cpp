// The plain C interface: every function is compiled once per instruction set, and chosen here when the library is loaded.
#include <cstring>

#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16  // of nothing: only names are used here
#endif
#include "functions.h"

#define DECLARE(name, variant)                                          \
  extern "C" int64_t torchcaps_##name##_f32_##variant(const void*);     \
  extern "C" int64_t torchcaps_##name##_f64_##variant(const void*);
#define DECLARE_PORTABLE(name) DECLARE(name, portable)
TORCHCAPS_FUNCTIONS(DECLARE_PORTABLE)
#ifdef TORCHCAPS_X86
#define DECLARE_X86(name) DECLARE(name, avx2) DECLARE(name, avx512)
TORCHCAPS_FUNCTIONS(DECLARE_X86)
#endif

namespace {

enum Variant { PORTABLE, AVX2, AVX512 };

Variant best() {
#ifdef TORCHCAPS_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return AVX2;
#endif
  return PORTABLE;
}

Variant variant = best();

}  // namespace

#ifdef TORCHCAPS_X86
#define CHOOSE(name)                                     \
  switch (variant) {                                     \
    case AVX512: return torchcaps_##name##_avx512(call); \
    case AVX2: return torchcaps_##name##_avx2(call);     \
    default: return torchcaps_##name##_portable(call);   \
  }
#else
#define CHOOSE(name) return torchcaps_##name##_portable(call);
#endif

#define CHOOSE_FUNCTION(name)                                                          \
  extern "C" int64_t torchcaps_##name##_f32(const void* call) { CHOOSE(name##_f32) }   \
  extern "C" int64_t torchcaps_##name##_f64(const void* call) { CHOOSE(name##_f64) }
TORCHCAPS_FUNCTIONS(CHOOSE_FUNCTION)

extern "C" int torchcaps_abi() { return TORCHCAPS_ABI; }

// The fields of a call in their order, a space after each; null for a call that the library does not know.
extern "C" const char* torchcaps_fields(const char* call) {
#define FIELDS_OF(name, fields) \
  if (!std::strcmp(call, name)) return fields;
  TORCHCAPS_CALLS(FIELDS_OF)
  return nullptr;
}

// The number of an option by its name; −1 for one that the library does not know.
extern "C" int64_t torchcaps_option(const char* name) {
#define COMPARE(number, text) \
  if (!std::strcmp(name, text)) return number;
  TORCHCAPS_OPTIONS(COMPARE)
  return -1;
}

// 0 portable, 1 AVX2, 2 AVX-512.
extern "C" int torchcaps_variant() { return variant; }

// Ask for a variant; one that the processor lacks is refused. Returns the one in use.
extern "C" int torchcaps_use_variant(int wanted) {
  if (wanted >= PORTABLE && wanted <= best()) variant = static_cast<Variant>(wanted);
  return variant;
}
