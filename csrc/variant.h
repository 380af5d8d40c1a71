// The plain C functions of one instruction set. Before including it, define VECTOR_BYTES and VARIANT(name).
#include "em_gradients.h"
#include "em_moments.h"
#include "forward.h"
#include "routing_gradients.h"
#include "small_gradients.h"

// Calls a pass with the pose sizes known to the compiler if they are common ones.
#define WITH_SHAPE(pass, T, ...)                                                        \
  do {                                                                                  \
    if (p->d == 8 && p->D == 16) return pass<T, Shape<8, 16>>(*p, __VA_ARGS__);         \
    if (p->d == 16 && p->D == 16) return pass<T, Shape<16, 16>>(*p, __VA_ARGS__);       \
    return pass<T, Shape<0, 0>>(*p, __VA_ARGS__);                                       \
  } while (false)

#define DEFINE_PASSES(T, suffix)                                                                                        \
  extern "C" void VARIANT(route_##suffix)(const Problem* p, const Plan* plan, const T* u, const T* W, const T* w,       \
                                          const T* bias, const T* alphas, T* pose, T* sums) {                           \
    WITH_SHAPE(route, T, *plan, u, W, w, bias, alphas, pose, sums);                                                     \
  }                                                                                                                     \
  extern "C" void VARIANT(sum_##suffix)(const Problem* p, const T* u, const T* W, const T* V, const T* w, T* s,         \
                                        T* coupling) {                                                                  \
    WITH_SHAPE(sum_pass, T, u, W, V, w, s, coupling);                                                                           \
  }                                                                                                                     \
  extern "C" void VARIANT(agreement_##suffix)(const Problem* p, const T* u, const T* W, const T* V, const T* G,         \
                                              const T* w, T* dV) {                                                      \
    WITH_SHAPE(agreement_pass, T, u, W, V, G, w, dV);                                                                           \
  }                                                                                                                     \
  extern "C" void VARIANT(parameters_##suffix)(const Problem* p, int64_t iterations, int first_even, int through,       \
                                               const T* u, const T* W, const T* V, const T* G, const T* w, T* du,       \
                                               T* dW, T* dw) {                                                          \
    WITH_SHAPE(parameter_pass, T, iterations, first_even, through, u, W, V, G, w, du, dW, dw);                                  \
  }                                                                                                                     \
  extern "C" int VARIANT(small_##suffix)(const Problem* p) { return small<T>(*p); }                                     \
  extern "C" void VARIANT(small_gradients_##suffix)(const Problem* p, const Plan* plan, int last_only, const T* u,      \
                                                    const T* W, const T* w, const T* bias, const T* alphas,             \
                                                    const T* sums, const T* grad, T* du, T* dW, T* dw, T* dbias) {      \
    const SmallGradientsCall<T> call{u, W, w, sums, grad, last_only != 0, du, dW, dw, dbias};                           \
    WITH_SHAPE(small_gradients, T, *plan, bias, alphas, call);                                                          \
  }

// The same for EM routing: 4×4 poses are the common ones.
#define WITH_POSE(pass, T, call)                                                                      \
  do {                                                                                                \
    if (g->rows == 4 && g->inner == 4 && g->cols == 4) return pass<T, Pose<4, 4, 4>>(*g, call);       \
    return pass<T, Pose<0, 0, 0>>(*g, call);                                                          \
  } while (false)

#define DEFINE_EM(T, suffix)                                                                                            \
  extern "C" void VARIANT(em_moments_##suffix)(const Grid* g, const void* call) {                                       \
    WITH_POSE(em_moments, T, *static_cast<const MomentsCall<T>*>(call));                                                \
  }                                                                                                                     \
  extern "C" void VARIANT(em_gradients_##suffix)(const Grid* g, const void* call) {                                     \
    WITH_POSE(em_gradients, T, *static_cast<const GradientsCall<T>*>(call));                                            \
  }

DEFINE_EM(float, f32)
DEFINE_EM(double, f64)
DEFINE_PASSES(float, f32)
DEFINE_PASSES(double, f64)
