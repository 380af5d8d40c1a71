// The three passes over the children that routing is made of, votes in registers and L1 only.
//
//   sum         s_j  = Σ_i c_ij û_ij
//   agreement   dV_j = Σ_i db_ij û_ij
//   parameters  du_i, dW_ij, dw_i
//
// with û_ij = u_i W_ij, b_ij = û_ij·V_j, p_ij = softmax_j(b_ij), c_ij = w_i p_ij. Images lie in the SIMD lanes: one
// block is LANES images, padded with zeros. This header is compiled once per instruction set; see dispatch.cpp.
//
// Letters: B images, I children, J parents, d and D sizes of a child's and a parent's pose.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "problem.h"

namespace {

// ---------------------------------------------------------------------------------------------- vectors

template <typename T>
struct Simd {
  static constexpr int width = VECTOR_BYTES / sizeof(T);
  typedef T type __attribute__((vector_size(VECTOR_BYTES), aligned(VECTOR_BYTES), may_alias));
  typedef T unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(alignof(T)), may_alias));
};
template <typename T>
using Vec = typename Simd<T>::type;

constexpr int GROUPS = 2;  // vectors per block: one broadcast weight serves two multiplications
template <typename T>
constexpr int LANES = Simd<T>::width * GROUPS;

template <typename T>
inline Vec<T> splat(T x) {
  return x - Vec<T>{};
}

template <typename T>
inline Vec<T> larger(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}

// e^x for x ≤ 0: x = n ln 2 + r, a Taylor polynomial in r, and n added to the exponent bits.
inline Vec<float> exponential(Vec<float> x) {
  typedef int32_t Bits __attribute__((vector_size(VECTOR_BYTES), may_alias));
  x = larger<float>(x, splat<float>(-87.0f));
  const Vec<float> shift = splat<float>(12582912.0f);  // 1.5·2²³: adding it rounds to an integer
  Vec<float> n = (x * 1.44269504088896341f + shift) - shift;
  Vec<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec<float> p = splat<float>(1.0f / 5040);
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + c;
  Bits exponent = (__builtin_convertvector(n, Bits) + 127) << 23;
  return p * reinterpret_cast<Vec<float>&>(exponent);
}

inline Vec<double> exponential(Vec<double> x) {
  typedef int64_t Bits __attribute__((vector_size(VECTOR_BYTES), may_alias));
  x = larger<double>(x, splat<double>(-708.0));
  const Vec<double> shift = splat<double>(6755399441055744.0);  // 1.5·2⁵²
  Vec<double> n = (x * 1.4426950408889634074 + shift) - shift;
  Vec<double> r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  Vec<double> p = splat<double>(1.0 / 6227020800.0);
  for (double c : {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                   1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0})
    p = p * r + c;
  Bits exponent = (__builtin_convertvector(n, Bits) + 1023) << 52;
  return p * reinterpret_cast<Vec<double>&>(exponent);
}

template <typename T>
inline T horizontal_sum(const Vec<T>& v) {
  typedef T Half __attribute__((vector_size(VECTOR_BYTES / 2), may_alias));
  Half low, high;
  std::memcpy(&low, &v, sizeof low);
  std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
  low += high;
  T total = 0;
  for (int lane = 0; lane < Simd<T>::width / 2; ++lane) total += low[lane];
  return total;
}

// Transposes a square of vectors: in log2(width) rounds, pairs of rows exchange blocks of half the size.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAVE_TRANSPOSE 1
template <typename T, int step, int... e>
inline void exchange(Vec<T>& a, Vec<T>& b, std::integer_sequence<int, e...>) {
  constexpr int w = Simd<T>::width;
  Vec<T> low = __builtin_shufflevector(a, b, ((e & step) ? w + e - step : e)...);
  Vec<T> high = __builtin_shufflevector(a, b, ((e & step) ? w + e : e + step)...);
  a = low;
  b = high;
}

template <typename T, int step>
inline void transpose(Vec<T>* rows) {
  constexpr int w = Simd<T>::width;
  for (int i = 0; i < w; ++i)
    if (!(i & step)) exchange<T, step>(rows[i], rows[i + step], std::make_integer_sequence<int, w>());
  if constexpr (step > 1) transpose<T, step / 2>(rows);
}
#endif
#endif

// A vector-aligned scratch array that frees itself.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t vectors) : storage_(vectors * Simd<T>::width + Simd<T>::width) {
    auto address = reinterpret_cast<uintptr_t>(storage_.data());
    uintptr_t aligned = (address + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES;
    data_ = reinterpret_cast<Vec<T>*>(aligned);
  }
  Vec<T>* data() { return data_; }

 private:
  std::vector<T> storage_;
  Vec<T>* data_;
};

// ---------------------------------------------------------------------------------------------- layout

// x[image][row][n] of one block of images → out[n][lane]; images past the end become zeros.
template <typename T>
void pack(const T* x, int64_t image_stride, int64_t first, int64_t count, int64_t n, Vec<T>* out) {
  T* lanes = reinterpret_cast<T*>(out);
  constexpr int L = LANES<T>;
  int64_t k0 = 0;
#ifdef HAVE_TRANSPOSE
  constexpr int w = Simd<T>::width;
  if (count == L) {
    const int64_t whole = n / w * w;
    for (int g = 0; g < GROUPS; ++g)
      for (k0 = 0; k0 < whole; k0 += w) {
        Vec<T> rows[w];
        for (int lane = 0; lane < w; ++lane)
          rows[lane] = *reinterpret_cast<const typename Simd<T>::unaligned*>(x + (first + g * w + lane) * image_stride + k0);
        transpose<T, w / 2>(rows);
        for (int k = 0; k < w; ++k) out[(k0 + k) * GROUPS + g] = rows[k];
      }
  }
#endif
  if (count < L) std::memset(lanes, 0, sizeof(T) * n * L);
  for (int lane = 0; lane < count; ++lane) {
    const T* source = x + (first + lane) * image_stride;
    for (int64_t k = k0; k < n; ++k) lanes[k * L + lane] = source[k];
  }
}

template <typename T>
void unpack(const Vec<T>* in, T* x, int64_t image_stride, int64_t first, int64_t count, int64_t n) {
  const T* lanes = reinterpret_cast<const T*>(in);
  int64_t k0 = 0;
#ifdef HAVE_TRANSPOSE
  constexpr int w = Simd<T>::width;
  if (count == LANES<T>)
    for (; k0 + w <= n; k0 += w)
      for (int g = 0; g < GROUPS; ++g) {
        Vec<T> rows[w];
        for (int k = 0; k < w; ++k) rows[k] = in[(k0 + k) * GROUPS + g];
        transpose<T, w / 2>(rows);
        for (int lane = 0; lane < w; ++lane)
          *reinterpret_cast<typename Simd<T>::unaligned*>(x + (first + g * w + lane) * image_stride + k0) = rows[lane];
      }
#endif
  for (int lane = 0; lane < count; ++lane) {
    T* target = x + (first + lane) * image_stride;
    for (int64_t k = k0; k < n; ++k) target[k] = lanes[k * LANES<T> + lane];
  }
}

template <typename T>
const T* weights_of(const Problem& p, const T* W, int64_t child) {
  return W + (p.shared ? 0 : child * p.J * p.d * p.D);
}

// The pose sizes of a problem; those that are common are known when compiling, zero stands for any.
template <int d_, int D_>
struct Shape {
  const Problem& p;
  int64_t d() const { return d_ ? d_ : p.d; }
  int64_t D() const { return D_ ? D_ : p.D; }
};

// ---------------------------------------------------------------------------------------------- one child, one block

// Calls f(k, width) for tiles that cover 0 .. D: six numbers at a time fill twelve of sixteen registers with sums; then four,
// then one.
template <typename F>
inline __attribute__((always_inline)) void for_tiles(int64_t D, F f) {
  int64_t k = 0;
  for (; k + 6 <= D; k += 6) f(k, std::integral_constant<int, 6>());
  for (; k + 4 <= D; k += 4) f(k, std::integral_constant<int, 4>());
  for (; k < D; ++k) f(k, std::integral_constant<int, 1>());
}

// K numbers of a vote, [K][GROUPS]: u [d][GROUPS] times W [d][D], from column 0 of W.
template <typename T, int K, typename S>
inline __attribute__((always_inline)) void vote_tile(const S& size, const Vec<T>* u, const T* W, Vec<T> (&vote)[K][GROUPS]) {
  for (int k = 0; k < K; ++k)
    for (int g = 0; g < GROUPS; ++g) vote[k][g] = Vec<T>{};
  for (int64_t a = 0; a < size.d(); ++a)
    for (int k = 0; k < K; ++k) {
      Vec<T> w = splat<T>(W[a * size.D() + k]);
      for (int g = 0; g < GROUPS; ++g) vote[k][g] += u[a * GROUPS + g] * w;
    }
}

// One child's vote for one parent, [D][GROUPS], and its products with N things of the parent's, Σ_k vote_k x_k.
template <typename T, int N, typename S>
inline __attribute__((always_inline)) void make_vote(const S& size, const Vec<T>* u, const T* W, Vec<T>* vote,
                                                     const std::array<const Vec<T>*, N>& with,
                                                     const std::array<Vec<T>*, N>& products) {
  Vec<T> dots[N + 1][GROUPS] = {};
  for_tiles(size.D(), [&](int64_t k, auto width) __attribute__((always_inline)) {
    Vec<T> tile[width()][GROUPS];
    vote_tile<T, width()>(size, u, W + k, tile);
    for (int n = 0; n < width(); ++n)
      for (int g = 0; g < GROUPS; ++g) {
        const int64_t at = (k + n) * GROUPS + g;
        vote[at] = tile[n][g];
        for (int m = 0; m < N; ++m) dots[m][g] += tile[n][g] * with[m][at];
      }
  });
  for (int n = 0; n < N; ++n)
    for (int g = 0; g < GROUPS; ++g) products[n][g] = dots[n][g];
}

// Its products with something of the parent's, Σ_k vote_k x_k: [GROUPS].
template <typename T, typename S>
inline __attribute__((always_inline)) void dot(const S& size, const Vec<T>* vote, const Vec<T>* x, Vec<T>* out) {
  Vec<T> even[GROUPS] = {}, odd[GROUPS] = {};  // two chains, so that one addition need not wait for the last
  int64_t k = 0;
  for (; k + 2 <= size.D(); k += 2)
    for (int g = 0; g < GROUPS; ++g) {
      even[g] += vote[k * GROUPS + g] * x[k * GROUPS + g];
      odd[g] += vote[(k + 1) * GROUPS + g] * x[(k + 1) * GROUPS + g];
    }
  if (k < size.D())
    for (int g = 0; g < GROUPS; ++g) even[g] += vote[k * GROUPS + g] * x[k * GROUPS + g];
  for (int g = 0; g < GROUPS; ++g) out[g] = even[g] + odd[g];
}

// sum_k += c · vote_k for the numbers of one parent.
template <typename T, typename S>
inline __attribute__((always_inline)) void add_scaled(const S& size, const Vec<T>* c, const Vec<T>* vote, Vec<T>* sum) {
  for (int64_t k = 0; k < size.D(); ++k)
    for (int g = 0; g < GROUPS; ++g) sum[k * GROUPS + g] += c[g] * vote[k * GROUPS + g];
}

// Softmax over the parents in place: b [J][GROUPS] → p. A leaky one has another logit 0, which is dropped.
template <typename T>
inline void softmax(Vec<T>* b, int64_t J, bool leaky) {
  for (int g = 0; g < GROUPS; ++g) {
    Vec<T> top = leaky ? Vec<T>{} : b[g];
    for (int64_t j = 0; j < J; ++j) top = larger<T>(top, b[j * GROUPS + g]);
    Vec<T> total = leaky ? exponential(-top) : Vec<T>{};
    for (int64_t j = 0; j < J; ++j) {
      Vec<T> e = exponential(b[j * GROUPS + g] - top);
      b[j * GROUPS + g] = e;
      total += e;
    }
    Vec<T> scale = T(1) / total;
    for (int64_t j = 0; j < J; ++j) b[j * GROUPS + g] *= scale;
  }
}

// ---------------------------------------------------------------------------------------------- the passes

// The images of a block and a range of children: the unit of work of the first two passes.
template <typename T>
struct Task {
  int64_t block, count, first_child, last_child;
};

// Splits the work into blocks × ranges so that every thread has some; the split depends on sizes and threads only,
// so that results are the same from run to run.
template <typename T>
std::vector<Task<T>> split(const Problem& p, int64_t& ranges) {
  int64_t blocks = (p.B + LANES<T> - 1) / LANES<T>;
  ranges = 1;
  while (blocks * ranges < p.threads || (blocks * ranges) % p.threads != 0) {
    if (ranges >= p.threads || ranges * 16 > p.I) break;
    ++ranges;
  }
  std::vector<Task<T>> tasks;
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t r = 0; r < ranges; ++r) {
      int64_t count = std::min<int64_t>(LANES<T>, p.B - block * LANES<T>);
      tasks.push_back({block, count, p.I * r / ranges, p.I * (r + 1) / ranges});
    }
  return tasks;
}

// Runs body(task, sum) for every task, where sum [J·D][GROUPS] starts at zero, and adds the ranges of a block in order
// into out [B, J, D].
template <typename T, typename Body>
void reduce_over_children(const Problem& p, T* out, Body body) {
  int64_t ranges;
  std::vector<Task<T>> tasks = split<T>(p, ranges);
  const int64_t n = p.J * p.D * GROUPS;
  Scratch<T> partial(n * static_cast<int64_t>(tasks.size()));
#pragma omp parallel for num_threads(p.threads) schedule(static)
  for (int64_t t = 0; t < static_cast<int64_t>(tasks.size()); ++t) body(tasks[t], partial.data() + t * n);
  for (size_t t = 0; t < tasks.size(); t += ranges) {
    Vec<T>* sum = partial.data() + t * n;
    for (int64_t r = 1; r < ranges; ++r)
      for (int64_t k = 0; k < n; ++k) sum[k] += sum[r * n + k];
    unpack<T>(sum, out, p.J * p.D, tasks[t].block * LANES<T>, tasks[t].count, p.J * p.D);
  }
}

// sum_jk += Σ_i u_i W_ijk over a few children, whose poses lie one after the other: a plain matrix product, with the sum
// in registers while the children pass by.
template <typename T, int K, typename S>
inline __attribute__((always_inline)) void add_products(const S& size, const Vec<T>* poses, int64_t children, const T* W,
                                                        int64_t step, Vec<T>* sum) {
  Vec<T> tile[K][GROUPS];
  for (int k = 0; k < K; ++k)
    for (int g = 0; g < GROUPS; ++g) tile[k][g] = sum[k * GROUPS + g];
  for (int64_t i = 0; i < children; ++i)
    for (int64_t a = 0; a < size.d(); ++a)
      for (int k = 0; k < K; ++k) {
        Vec<T> w = splat<T>(W[i * step + a * size.D() + k]);
        for (int g = 0; g < GROUPS; ++g) tile[k][g] += poses[(i * size.d() + a) * GROUPS + g] * w;
      }
  for (int k = 0; k < K; ++k)
    for (int g = 0; g < GROUPS; ++g) sum[k * GROUPS + g] = tile[k][g];
}

// Children are read a few at a time: their poses lie together in memory, and one image's are far from the next's.
constexpr int64_t CHILDREN = 8;

// Packs the poses of children from .. from + n [n][d][GROUPS] and their weights [n][GROUPS] (ones without weights).
template <typename T>
inline void load_children(const Problem& p, const T* u, const T* w, int64_t block, int64_t count, int64_t from, int64_t n,
                          Vec<T>* poses, Vec<T>* weights) {
  const int64_t first = block * LANES<T>;
  pack<T>(u + from * p.d, p.I * p.d, first, count, n * p.d, poses);
  if (w) {
    pack<T>(w + from, p.I, first, count, n, weights);
  } else {
    for (int64_t k = 0; k < n * GROUPS; ++k) weights[k] = splat<T>(1);
  }
}

// The first sum, where every p_ij is the same: s = Σ_i (w_i p u_i) W_ij.
template <typename T, typename S>
void even_sum_pass(const Problem& p, const T* u, const T* W, const T* w, T* s) {
  const S size{p};
  const T even = T(1) / T(p.J + (p.leaky ? 1 : 0));
  const int64_t step = p.shared ? 0 : p.J * p.d * p.D;
  reduce_over_children<T>(p, s, [&](const Task<T>& task, Vec<T>* sum) {
    Scratch<T> scratch(CHILDREN * (p.d + 1) * GROUPS);
    Vec<T>*poses = scratch.data(), *weights = poses + CHILDREN * p.d * GROUPS;
    for (int64_t from = task.first_child; from < task.last_child; from += CHILDREN) {
      const int64_t children = std::min(CHILDREN, task.last_child - from);
      load_children(p, u, w, task.block, task.count, from, children, poses, weights);
      for (int64_t i = 0; i < children; ++i)
        for (int64_t a = 0; a < p.d; ++a)
          for (int g = 0; g < GROUPS; ++g) poses[(i * p.d + a) * GROUPS + g] *= weights[i * GROUPS + g] * even;
      for (int64_t j = 0; j < p.J; ++j) {
        const T* Wj = weights_of(p, W, from) + j * size.d() * size.D();
        Vec<T>* out = sum + j * size.D() * GROUPS;
        for_tiles(size.D(), [&](int64_t k, auto width) __attribute__((always_inline)) {
          add_products<T, width()>(size, poses, children, Wj + k, step, out + k * GROUPS);
        });
      }
    }
  });
}

// s = Σ_i w_i p_ij û_ij with p = softmax_j(û_ij·V_j), or all p the same without V. `coupling` [B, I, J], if wanted, receives
// w_i p_ij.
template <typename T, typename S>
void sum_pass(const Problem& p, const T* u, const T* W, const T* V, const T* w, T* s, T* coupling) {
  if (!V && !coupling) return even_sum_pass<T, S>(p, u, W, w, s);
  const S size{p};
  const int64_t parent = size.D() * GROUPS, all = p.J * parent;
  reduce_over_children<T>(p, s, [&](const Task<T>& task, Vec<T>* sum) {
    const int64_t first = task.block * LANES<T>;
    Scratch<T> scratch((CHILDREN * (p.d + 1) + p.J) * GROUPS + 2 * all);
    Vec<T>*poses = scratch.data(), *weights = poses + CHILDREN * p.d * GROUPS, *share = weights + CHILDREN * GROUPS;
    Vec<T>*votes = share + p.J * GROUPS, *agree = votes + all;
    if (V) pack<T>(V, p.J * p.D, first, task.count, p.J * p.D, agree);
    const T even = T(1) / T(p.J + (p.leaky ? 1 : 0));
    for (int64_t i = task.first_child; i < task.last_child; ++i) {
      const int64_t nth = (i - task.first_child) % CHILDREN;
      if (nth == 0)
        load_children(p, u, w, task.block, task.count, i, std::min(CHILDREN, task.last_child - i), poses, weights);
      const Vec<T>*pose = poses + nth * p.d * GROUPS, *weight = weights + nth * GROUPS;
      const T* Wi = weights_of(p, W, i);
      for (int64_t j = 0; j < p.J; ++j) {
        const T* Wij = Wi + j * size.d() * size.D();
        if (V) {
          make_vote<T, 1>(size, pose, Wij, votes + j * parent, {agree + j * parent}, {share + j * GROUPS});
        } else {
          make_vote<T, 0>(size, pose, Wij, votes + j * parent, {}, {});
          for (int g = 0; g < GROUPS; ++g) share[j * GROUPS + g] = splat<T>(even);
        }
      }
      if (V) softmax<T>(share, p.J, p.leaky);
      for (int64_t j = 0; j < p.J; ++j) {
        for (int g = 0; g < GROUPS; ++g) share[j * GROUPS + g] *= weight[g];
        add_scaled<T>(size, share + j * GROUPS, votes + j * parent, sum + j * parent);
      }
      if (coupling) unpack<T>(share, coupling + i * p.J, p.I * p.J, first, task.count, p.J);
    }
  });
}

// The gradient of the logits: x_ij = w_i û_ij·G_j → db_ij = p_ij (x_ij − Σ_k p_ik x_ik), in place of x.
template <typename T>
inline Vec<T> softmax_gradient(const Vec<T>* share, Vec<T>* x, int64_t J, int g) {
  Vec<T> mean = Vec<T>{};
  for (int64_t j = 0; j < J; ++j) mean += share[j * GROUPS + g] * x[j * GROUPS + g];
  for (int64_t j = 0; j < J; ++j) x[j * GROUPS + g] = share[j * GROUPS + g] * (x[j * GROUPS + g] - mean);
  return mean;
}

// dV_j = Σ_i db_ij û_ij, the gradient of V through the softmax of b = û·V, for the gradient G of s.
template <typename T, typename S>
void agreement_pass(const Problem& p, const T* u, const T* W, const T* V, const T* G, const T* w, T* dV) {
  const S size{p};
  const int64_t parent = size.D() * GROUPS, all = p.J * parent;
  reduce_over_children<T>(p, dV, [&](const Task<T>& task, Vec<T>* sum) {
    const int64_t first = task.block * LANES<T>;
    Scratch<T> scratch((CHILDREN * (p.d + 1) + 2 * p.J) * GROUPS + 3 * all);
    Vec<T>*poses = scratch.data(), *weights = poses + CHILDREN * p.d * GROUPS, *share = weights + CHILDREN * GROUPS;
    Vec<T>*x = share + p.J * GROUPS, *votes = x + p.J * GROUPS, *agree = votes + all, *grad = agree + all;
    pack<T>(V, p.J * p.D, first, task.count, p.J * p.D, agree);
    pack<T>(G, p.J * p.D, first, task.count, p.J * p.D, grad);
    for (int64_t i = task.first_child; i < task.last_child; ++i) {
      const int64_t nth = (i - task.first_child) % CHILDREN;
      if (nth == 0)
        load_children(p, u, w, task.block, task.count, i, std::min(CHILDREN, task.last_child - i), poses, weights);
      const Vec<T>*pose = poses + nth * p.d * GROUPS, *weight = weights + nth * GROUPS;
      const T* Wi = weights_of(p, W, i);
      for (int64_t j = 0; j < p.J; ++j) {
        make_vote<T, 2>(size, pose, Wi + j * size.d() * size.D(), votes + j * parent,
                        {agree + j * parent, grad + j * parent}, {share + j * GROUPS, x + j * GROUPS});
        for (int g = 0; g < GROUPS; ++g) x[j * GROUPS + g] *= weight[g];
      }
      softmax<T>(share, p.J, p.leaky);
      for (int g = 0; g < GROUPS; ++g) softmax_gradient<T>(share, x, p.J, g);
      for (int64_t j = 0; j < p.J; ++j) add_scaled<T>(size, x + j * GROUPS, votes + j * parent, sum + j * parent);
    }
  });
}

// ---------------------------------------------------------------------------------------------- gradients of u, W, w

// Everything the last pass reads for all iterations, packed once: [t][block][J·D][GROUPS].
template <typename T>
struct Packed {
  Scratch<T> storage;
  int64_t n, blocks;
  Packed(const Problem& p, const T* x, int64_t iterations, int64_t blocks_)
      : storage(iterations * blocks_ * p.J * p.D * GROUPS), n(p.J * p.D * GROUPS), blocks(blocks_) {
    for (int64_t t = 0; t < iterations; ++t)
      for (int64_t block = 0; block < blocks; ++block) {
        int64_t count = std::min<int64_t>(LANES<T>, p.B - block * LANES<T>);
        pack<T>(x + t * p.B * p.J * p.D, p.J * p.D, block * LANES<T>, count, p.J * p.D, at(t, block));
      }
  }
  Vec<T>* at(int64_t t, int64_t block) { return storage.data() + (t * blocks + block) * n; }
};

// What routing looked like for one child in one block: per iteration [t][J][GROUPS] the couplings `share` and the
// gradients of the logits `x`, both times the child's weight. `vote` is room for one vote.
template <typename T, typename S>
inline void replay(const S& size, int64_t iterations, bool first_even, const Vec<T>* pose, const Vec<T>* weight,
                   const T* Wi, Packed<T>& V, Packed<T>& G, int64_t block, Vec<T>* vote, Vec<T>* share, Vec<T>* x,
                   Vec<T>* dweight) {
  const Problem& p = size.p;
  const int64_t parent = size.D() * GROUPS;
  const T even = T(1) / T(p.J + (p.leaky ? 1 : 0));
  for (int64_t j = 0; j < p.J; ++j) {
    make_vote<T, 0>(size, pose, Wi + j * size.d() * size.D(), vote, {}, {});
    for (int64_t t = 0; t < iterations; ++t) {
      const int64_t at = (t * p.J + j) * GROUPS;
      dot<T>(size, vote, G.at(t, block) + j * parent, x + at);
      if (t > 0 || !first_even) {
        dot<T>(size, vote, V.at(t, block) + j * parent, share + at);
      } else {
        for (int g = 0; g < GROUPS; ++g) share[at + g] = splat<T>(even);
      }
    }
  }
  for (int64_t t = 0; t < iterations; ++t) {
    Vec<T>*st = share + t * p.J * GROUPS, *xt = x + t * p.J * GROUPS;
    if (t > 0 || !first_even) softmax<T>(st, p.J, p.leaky);
    for (int g = 0; g < GROUPS; ++g) {
      dweight[g] += softmax_gradient<T>(st, xt, p.J, g);
      for (int64_t j = 0; j < p.J; ++j) st[j * GROUPS + g] *= weight[g], xt[j * GROUPS + g] *= weight[g];
    }
  }
}

// dû_k (+)= Σ_t c_t G_tk + db_t V_tk for N iterations from t0 on and one parent; what one iteration adds to V has no
// gradient where `through` is false.
template <typename T, int N, typename S>
inline void vote_gradient(const S& size, int64_t t0, bool skip_first, bool through, const Vec<T>* share, const Vec<T>* x,
                          Packed<T>& V, Packed<T>& G, int64_t block, int64_t j, bool add, Vec<T>* dvote) {
  const int64_t parent = size.D() * GROUPS, J = size.p.J;
  for (int g = 0; g < GROUPS; ++g) {
    Vec<T> c[N], db[N];
    const Vec<T>*grad[N], *agree[N];
    for (int n = 0; n < N; ++n) {
      const int64_t at = ((t0 + n) * J + j) * GROUPS + g;
      c[n] = share[at];
      db[n] = through && !(skip_first && t0 + n == 0) ? x[at] : Vec<T>{};
      grad[n] = G.at(t0 + n, block) + j * parent + g;
      agree[n] = V.at(t0 + n, block) + j * parent + g;
    }
    for (int64_t k = 0; k < size.D(); ++k) {
      Vec<T> sum = add ? dvote[k * GROUPS + g] : Vec<T>{};
      for (int n = 0; n < N; ++n) sum += c[n] * grad[n][k * GROUPS] + db[n] * agree[n][k * GROUPS];
      dvote[k * GROUPS + g] = sum;
    }
  }
}

// du_a = Σ_jk dû_jk W_jak for A of the child's numbers.
template <typename T, int A, typename S>
inline void pose_gradient(const S& size, const T* Wi, const Vec<T>* dvotes, Vec<T>* du) {
  Vec<T> sum[A][GROUPS] = {};
  for (int64_t j = 0; j < size.p.J; ++j)
    for (int64_t k = 0; k < size.D(); ++k) {
      const Vec<T>* dv = dvotes + (j * size.D() + k) * GROUPS;
      for (int a = 0; a < A; ++a) {
        Vec<T> w = splat<T>(Wi[(j * size.d() + a) * size.D() + k]);
        for (int g = 0; g < GROUPS; ++g) sum[a][g] += dv[g] * w;
      }
    }
  for (int a = 0; a < A; ++a)
    for (int g = 0; g < GROUPS; ++g) du[a * GROUPS + g] = sum[a][g];
}

// dW_jak = Σ_images u_a dû_jk for A × K numbers; u and dû of all blocks, `u_step` and `v_step` vectors apart.
template <typename T, int A, int K>
inline void weight_gradient(const Vec<T>* u, int64_t u_step, const Vec<T>* dvotes, int64_t v_step, int64_t blocks, T* dW,
                            int64_t D) {
  Vec<T> sum[A][K] = {};
  for (int64_t block = 0; block < blocks; ++block)
    for (int g = 0; g < GROUPS; ++g)
      for (int a = 0; a < A; ++a)
        for (int k = 0; k < K; ++k)
          sum[a][k] += u[block * u_step + a * GROUPS + g] * dvotes[block * v_step + k * GROUPS + g];
  for (int a = 0; a < A; ++a)
    for (int k = 0; k < K; ++k) dW[a * D + k] += horizontal_sum<T>(sum[a][k]);
}

// dW of one child from its poses and dû in all blocks.
template <typename T, typename S>
inline void all_weight_gradients(const S& size, const Vec<T>* pose, int64_t u_step, const Vec<T>* dvote, int64_t blocks,
                                 T* dW) {
  const int64_t d = size.d(), D = size.D(), v_step = size.p.J * D * GROUPS;
  for (int64_t j = 0; j < size.p.J; ++j) {
    const Vec<T>* dv = dvote + j * D * GROUPS;
    T* target = dW + j * d * D;
    int64_t a = 0;
    for (; a + 2 <= d; a += 2)
      for_tiles(D, [&](int64_t k, auto width) __attribute__((always_inline)) {
        weight_gradient<T, 2, width()>(pose + a * GROUPS, u_step, dv + k * GROUPS, v_step, blocks, target + a * D + k, D);
      });
    for (; a < d; ++a)
      for_tiles(D, [&](int64_t k, auto width) __attribute__((always_inline)) {
        weight_gradient<T, 1, width()>(pose + a * GROUPS, u_step, dv + k * GROUPS, v_step, blocks, target + a * D + k, D);
      });
  }
}

// Gradients of poses, weights and child weights, given V and G of every iteration [T, B, J, D]. Children are spread over
// the threads, so every dW_ij is written by one thread; shared weights are summed per thread and then in order. A few
// children are taken through all blocks together, so that V and G of a block are read once for all of them.
template <typename T, typename S>
void parameter_pass(const Problem& p, int64_t iterations, bool first_even, bool through, const T* u, const T* W, const T* Vs,
                    const T* Gs, const T* w, T* du, T* dW, T* dw) {
  const S size{p};
  const int64_t parent = size.D() * GROUPS, all = p.J * parent, matrix = p.J * p.d * p.D;
  const int64_t blocks = (p.B + LANES<T> - 1) / LANES<T>;
  Packed<T> V(p, Vs, iterations, blocks), G(p, Gs, iterations, blocks);
  const int64_t bytes = std::max<int64_t>(1, blocks * all * VECTOR_BYTES);
  const int64_t chunk = std::max<int64_t>(1, std::min<int64_t>(CHILDREN, (256 << 10) / bytes));
  std::vector<T> shared_sums(p.shared ? p.threads * matrix : 0, T(0));
  if (!p.shared) std::memset(dW, 0, sizeof(T) * p.I * matrix);
#pragma omp parallel for num_threads(p.threads) schedule(static)
  for (int64_t thread = 0; thread < p.threads; ++thread) {
    const int64_t begin = p.I * thread / p.threads, end = p.I * (thread + 1) / p.threads;
    Scratch<T> scratch(chunk * blocks * (p.d * GROUPS + all) + (chunk * (p.d + 2) + 2 * iterations * p.J) * GROUPS + parent);
    Vec<T>*poses = scratch.data(), *dvotes = poses + chunk * blocks * p.d * GROUPS;
    Vec<T>*dposes = dvotes + chunk * blocks * all, *weights = dposes + chunk * p.d * GROUPS;
    Vec<T>*dweights = weights + chunk * GROUPS, *share = dweights + chunk * GROUPS, *x = share + iterations * p.J * GROUPS, *vote = x + iterations * p.J * GROUPS;
    for (int64_t from = begin; from < end; from += chunk) {
      const int64_t to = std::min(end, from + chunk);
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = block * LANES<T>, count = std::min<int64_t>(LANES<T>, p.B - first), n = to - from;
        Vec<T>* block_poses = poses + block * chunk * p.d * GROUPS;
        load_children(p, u, w, block, count, from, n, block_poses, weights);
        for (int64_t i = from; i < to; ++i) {
          const T* Wi = weights_of(p, W, i);
          Vec<T>*pose = block_poses + (i - from) * p.d * GROUPS, *dpose = dposes + (i - from) * p.d * GROUPS;
          Vec<T>*dvote = dvotes + ((i - from) * blocks + block) * all, *dweight = dweights + (i - from) * GROUPS;
          for (int g = 0; g < GROUPS; ++g) dweight[g] = Vec<T>{};
          replay<T>(size, iterations, first_even, pose, weights + (i - from) * GROUPS, Wi, V, G, block, vote, share, x, dweight);
          for (int64_t j = 0; j < p.J; ++j) {
            int64_t t = 0;
            for (; t + 3 <= iterations; t += 3)
              vote_gradient<T, 3>(size, t, first_even, through, share, x, V, G, block, j, t > 0, dvote + j * parent);
            for (; t < iterations; ++t)
              vote_gradient<T, 1>(size, t, first_even, through, share, x, V, G, block, j, t > 0, dvote + j * parent);
          }
          int64_t a = 0;
          for (; a + 4 <= size.d(); a += 4) pose_gradient<T, 4>(size, Wi + a * size.D(), dvote, dpose + a * GROUPS);
          for (; a < size.d(); ++a) pose_gradient<T, 1>(size, Wi + a * size.D(), dvote, dpose + a * GROUPS);
        }
        unpack<T>(dposes, du + from * p.d, p.I * p.d, first, count, n * p.d);
        unpack<T>(dweights, dw + from, p.I, first, count, n);
      }
      for (int64_t i = from; i < to; ++i)
        all_weight_gradients<T>(size, poses + (i - from) * p.d * GROUPS, chunk * p.d * GROUPS, dvotes + (i - from) * blocks * all,
                                blocks, p.shared ? shared_sums.data() + thread * matrix : dW + i * matrix);
    }
  }
  if (p.shared)
    for (int64_t n = 0; n < matrix; ++n) {
      T total = 0;
      for (int64_t part = 0; part < p.threads; ++part) total += shared_sums[part * matrix + n];
      dW[n] = total;
    }
}

// ---------------------------------------------------------------------------------------------- few images

// For fewer images than lanes the votes are smaller than the weights: they are computed once, with a pose's numbers in the
// lanes, and the passes read them instead of the weights.

template <typename T>
inline Vec<T> row(const T* x) {
  return *reinterpret_cast<const typename Simd<T>::unaligned*>(x);
}

template <typename T>
inline T dot_row(const T* x, const T* y, int64_t n) {
  constexpr int w = Simd<T>::width;
  Vec<T> sum = Vec<T>{};
  int64_t k = 0;
  for (; k + w <= n; k += w) sum += row<T>(x + k) * row<T>(y + k);
  T total = horizontal_sum<T>(sum);
  for (; k < n; ++k) total += x[k] * y[k];
  return total;
}

template <typename T>
inline void add_scaled_row(T c, const T* x, T* sum, int64_t n) {
  constexpr int w = Simd<T>::width;
  int64_t k = 0;
  for (; k + w <= n; k += w)
    *reinterpret_cast<typename Simd<T>::unaligned*>(sum + k) = row<T>(sum + k) + splat<T>(c) * row<T>(x + k);
  for (; k < n; ++k) sum[k] += c * x[k];
}

// votes [B, I, J, D] = u_i W_ij.
template <typename T, typename S>
void votes_pass(const Problem& p, const T* u, const T* W, T* votes) {
  const S size{p};
  constexpr int w = Simd<T>::width;
#pragma omp parallel for num_threads(p.threads) schedule(static)
  for (int64_t i = 0; i < p.I; ++i) {
    const T* Wi = weights_of(p, W, i);
    for (int64_t b = 0; b < p.B; ++b)
      for (int64_t j = 0; j < p.J; ++j) {
        T* vote = votes + ((b * p.I + i) * p.J + j) * size.D();
        const T* pose = u + (b * p.I + i) * size.d();
        const T* Wij = Wi + j * size.d() * size.D();
        int64_t k = 0;
        for (; k + w <= size.D(); k += w) {
          Vec<T> sum = Vec<T>{};
          for (int64_t a = 0; a < size.d(); ++a) sum += splat<T>(pose[a]) * row<T>(Wij + a * size.D() + k);
          *reinterpret_cast<typename Simd<T>::unaligned*>(vote + k) = sum;
        }
        for (; k < size.D(); ++k) {
          T sum = 0;
          for (int64_t a = 0; a < size.d(); ++a) sum += pose[a] * Wij[a * size.D() + k];
          vote[k] = sum;
        }
      }
  }
}

// Softmax of b [J], which has room for whole vectors.
template <typename T>
inline void softmax_row(T* b, int64_t J, bool leaky) {
  constexpr int w = Simd<T>::width;
  T top = leaky ? T(0) : b[0];
  for (int64_t j = 0; j < J; ++j) top = std::max(top, b[j]);
  for (int64_t j = J; j % w; ++j) b[j] = top;
  T total = leaky ? exponential(splat<T>(-top))[0] : T(0);
  for (int64_t j = 0; j < J; j += w) {
    Vec<T>& e = *reinterpret_cast<Vec<T>*>(b + j);
    e = exponential(e - splat<T>(top));
  }
  for (int64_t j = 0; j < J; ++j) total += b[j];
  for (int64_t j = 0; j < J; ++j) b[j] /= total;
}

// s [B, J, D] = Σ_i w_i p_ij û_ij from stored votes; p even without V.
template <typename T, typename S>
void votes_sum_pass(const Problem& p, const T* votes, const T* V, const T* w, T* s) {
  const S size{p};
  const int64_t JD = p.J * p.D, ranges = p.threads;
  std::vector<T> partial(p.B * ranges * JD, T(0));
#pragma omp parallel for num_threads(p.threads) schedule(static)
  for (int64_t task = 0; task < p.B * ranges; ++task) {
    const int64_t b = task / ranges, range = task % ranges;
    T* sum = partial.data() + task * JD;
    Scratch<T> scratch(p.J / Simd<T>::width + 1);
    T* share = reinterpret_cast<T*>(scratch.data());
    for (int64_t i = p.I * range / ranges; i < p.I * (range + 1) / ranges; ++i) {
      const T* vote = votes + (b * p.I + i) * JD;
      for (int64_t j = 0; j < p.J; ++j)
        share[j] = V ? dot_row<T>(vote + j * size.D(), V + b * JD + j * size.D(), size.D()) : T(0);
      softmax_row<T>(share, p.J, p.leaky);
      const T weight = w ? w[b * p.I + i] : T(1);
      for (int64_t j = 0; j < p.J; ++j)
        add_scaled_row<T>(share[j] * weight, vote + j * size.D(), sum + j * size.D(), size.D());
    }
  }
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t n = 0; n < JD; ++n) {
      T total = 0;
      for (int64_t range = 0; range < ranges; ++range) total += partial[(b * ranges + range) * JD + n];
      s[b * JD + n] = total;
    }
}

}  // namespace
