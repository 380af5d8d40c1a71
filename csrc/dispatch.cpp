// Chooses the widest instruction set that this processor has, once, when the library is loaded.
#include <cstdint>

#include "problem.h"

#define DECLARE(T, suffix, variant)                                                                                     \
  extern "C" void torchcaps_route_##suffix##_##variant(const Problem*, const Plan*, const T*, const T*, const T*,       \
                                                       const T*, const T*, T*, T*);                                     \
  extern "C" void torchcaps_sum_##suffix##_##variant(const Problem*, const T*, const T*, const T*, const T*, T*, T*);   \
  extern "C" void torchcaps_agreement_##suffix##_##variant(const Problem*, const T*, const T*, const T*, const T*,      \
                                                           const T*, T*);                                               \
  extern "C" void torchcaps_parameters_##suffix##_##variant(const Problem*, int64_t, int, int, const T*, const T*,      \
                                                            const T*, const T*, const T*, T*, T*, T*);          \
  extern "C" int torchcaps_small_##suffix##_##variant(const Problem*);                                                  \
  extern "C" void torchcaps_small_gradients_##suffix##_##variant(const Problem*, const Plan*, int, const T*, const T*,  \
                                                                 const T*, const T*, const T*, const T*, const T*, T*,  \
                                                                 T*, T*, T*);                                           \
  extern "C" void torchcaps_em_moments_##suffix##_##variant(const Grid*, const void*);                                  \
  extern "C" void torchcaps_em_gradients_##suffix##_##variant(const Grid*, const void*);
#define DECLARE_BOTH(variant) DECLARE(float, f32, variant) DECLARE(double, f64, variant)

DECLARE_BOTH(portable)
#ifdef TORCHCAPS_X86
DECLARE_BOTH(avx2)
DECLARE_BOTH(avx512)
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
#define CHOOSE(name, ...)                                       \
  switch (variant) {                                            \
    case AVX512: return torchcaps_##name##_avx512(__VA_ARGS__); \
    case AVX2: return torchcaps_##name##_avx2(__VA_ARGS__);     \
    default: return torchcaps_##name##_portable(__VA_ARGS__);   \
  }
#else
#define CHOOSE(name, ...) return torchcaps_##name##_portable(__VA_ARGS__);
#endif

#define DEFINE(T, suffix)                                                                                               \
  extern "C" void torchcaps_route_##suffix(const Problem* p, const Plan* plan, const T* u, const T* W, const T* w,      \
                                           const T* bias, const T* alphas, T* pose, T* sums) {                          \
    CHOOSE(route_##suffix, p, plan, u, W, w, bias, alphas, pose, sums)                                                  \
  }                                                                                                                     \
  extern "C" void torchcaps_sum_##suffix(const Problem* p, const T* u, const T* W, const T* V, const T* w, T* s,        \
                                         T* coupling) {                                                                 \
    CHOOSE(sum_##suffix, p, u, W, V, w, s, coupling)                                                                    \
  }                                                                                                                     \
  extern "C" void torchcaps_agreement_##suffix(const Problem* p, const T* u, const T* W, const T* V, const T* G,        \
                                               const T* w, T* dV) {                                                     \
    CHOOSE(agreement_##suffix, p, u, W, V, G, w, dV)                                                                    \
  }                                                                                                                     \
  extern "C" void torchcaps_parameters_##suffix(const Problem* p, int64_t iterations, int first_even, int through,      \
                                                const T* u, const T* W, const T* V, const T* G, const T* w, T* du,      \
                                                T* dW, T* dw) {                                                         \
    CHOOSE(parameters_##suffix, p, iterations, first_even, through, u, W, V, G, w, du, dW, dw)                          \
  }                                                                                                                     \
  extern "C" int torchcaps_small_##suffix(const Problem* p) { CHOOSE(small_##suffix, p) }                               \
  extern "C" void torchcaps_small_gradients_##suffix(const Problem* p, const Plan* plan, int last_only, const T* u,     \
                                                     const T* W, const T* w, const T* bias, const T* alphas,            \
                                                     const T* sums, const T* grad, T* du, T* dW, T* dw, T* dbias) {     \
    CHOOSE(small_gradients_##suffix, p, plan, last_only, u, W, w, bias, alphas, sums, grad, du, dW, dw, dbias)          \
  }                                                                                                                     \
  extern "C" void torchcaps_em_moments_##suffix(const Grid* g, const void* call) {                                      \
    CHOOSE(em_moments_##suffix, g, call)                                                                                \
  }                                                                                                                     \
  extern "C" void torchcaps_em_gradients_##suffix(const Grid* g, const void* call) {                                    \
    CHOOSE(em_gradients_##suffix, g, call)                                                                              \
  }

DEFINE(float, f32)
DEFINE(double, f64)

// 0 portable, 1 AVX2, 2 AVX-512.
extern "C" int torchcaps_variant() { return variant; }

// Ask for a variant; one that the processor lacks is refused. Returns the one in use.
extern "C" int torchcaps_use_variant(int wanted) {
  if (wanted >= PORTABLE && wanted <= best()) variant = static_cast<Variant>(wanted);
  return variant;
}
