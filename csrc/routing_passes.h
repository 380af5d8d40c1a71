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

#include "simd.h"

namespace {

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

}  // namespace
