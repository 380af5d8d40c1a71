// The three passes over the children that routing is made of, votes in registers and L1 only.
//
//   sum         s_j  = Σ_i c_ij û_ij
//   agreement   dV_j = Σ_i db_ij û_ij
//   parameters  du_i, dW_ij, dw_i
//
// with û_ij = u_i W_ij, b_ij = û_ij·V_j, p_ij = softmax_j(b_ij), c_ij = w_i p_ij. Images lie in the SIMD lanes: one
// block is LANES images, padded with zeros. This header is compiled once per instruction set; see ../entries.cpp.
//
// Letters: B images, I children, J parents, d and D sizes of a child's and a parent's pose.
#pragma once

#include "../common/simd.h"
#include "problem.h"

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
    for (int g = 0; g < GROUPS; ++g) vote[k][g] = u[g] * splat<T>(W[k]);
  for (int64_t a = 1; a < size.d(); ++a)
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

// Its products with something of the parent's, Σ_k vote_k x_k: [G].
template <typename T, int G = GROUPS, typename S>
inline __attribute__((always_inline)) void dot(const S& size, const Vec<T>* vote, const Vec<T>* x, Vec<T>* out) {
  Vec<T> even[G] = {}, odd[G] = {};  // two chains, so that one addition need not wait for the last
  int64_t k = 0;
  for (; k + 2 <= size.D(); k += 2)
    for (int g = 0; g < G; ++g) {
      even[g] += vote[k * G + g] * x[k * G + g];
      odd[g] += vote[(k + 1) * G + g] * x[(k + 1) * G + g];
    }
  if (k < size.D())
    for (int g = 0; g < G; ++g) even[g] += vote[k * G + g] * x[k * G + g];
  for (int g = 0; g < G; ++g) out[g] = even[g] + odd[g];
}

// sum_k += c · vote_k for the numbers of one parent.
template <typename T, int G = GROUPS, typename S>
inline __attribute__((always_inline)) void add_scaled(const S& size, const Vec<T>* c, const Vec<T>* vote, Vec<T>* sum) {
  Vec<T> scale[G];  // a copy, which stays in registers: for all the compiler knows, `sum` could overwrite c
  for (int g = 0; g < G; ++g) scale[g] = c[g];
  for (int64_t k = 0; k < size.D(); ++k)
    for (int g = 0; g < G; ++g) sum[k * G + g] += scale[g] * vote[k * G + g];
}

// Softmax over the parents in place: b [J][G] → p. A leaky one has another logit 0, which is dropped. As in torch all p of a child
// are NaN if one logit is NaN or ∞, or if all are −∞: e^(b − top) is NaN then, whatever `top` made of a NaN.
template <typename T, int G = GROUPS>
inline void softmax(Vec<T>* b, int64_t J, bool leaky) {
  for (int g = 0; g < G; ++g) {
    Vec<T> top = leaky ? Vec<T>{} : b[g];
    for (int64_t j = 0; j < J; ++j) top = larger<T>(top, b[j * G + g]);
    Vec<T> total = leaky ? exponential(-top) : Vec<T>{};
    for (int64_t j = 0; j < J; ++j) {
      Vec<T> e = exponential(b[j * G + g] - top);
      b[j * G + g] = e;
      total += e;
    }
    Vec<T> scale = T(1) / total;
    for (int64_t j = 0; j < J; ++j) b[j * G + g] *= scale;
  }
}

// Children are read a few at a time: their poses lie together in memory, and one image's are far from the next's.
constexpr int64_t CHILDREN = 8;

// Packs, for a block of images, the poses of children from .. from + n [n][d][GROUPS] and their weights [n][GROUPS] (ones without weights).
template <typename T>
inline void load_children(const Problem& p, const T* u, const T* w, int64_t image, int64_t images, int64_t from, int64_t n,
                          Vec<T>* poses, Vec<T>* weights) {
  pack<T>(u + from * p.d, p.I * p.d, image, images, n * p.d, poses);
  if (w) {
    pack<T>(w + from, p.I, image, images, n, weights);
  } else {
    for (int64_t k = 0; k < n * GROUPS; ++k) weights[k] = splat<T>(1);
  }
}

// What a pass works on at a time: a block of images, a few children packed for it, and what is known of its parents.
template <typename T>
struct Work {
  int64_t first_image, images, first_child, children;
  const Vec<T>*poses, *weights;               // [children][d][GROUPS], [children][GROUPS]
  const Vec<T>* parents[2];                   // packed [J·D][GROUPS]
  Vec<T>*sum, *room;                          // [J·D][GROUPS], scratch
};

// Sums over the children into out [B, J, D]: body(work) adds to work.sum.
//
// Every thread has a range of the children and takes them, a chunk whose weights fit in the second-level cache, through all
// blocks of images: so each weight comes from memory once. Where that gives too few tasks, groups of blocks are spread over
// the threads too. `parents` are [B, J, D] each, or null. The split depends on sizes and threads only, and ranges are added in order, so
// that results are the same from run to run.
template <typename T, typename Body>
void reduce_over_children(const Problem& p, const T* u, const T* w, std::array<const T*, 2> parents, T* out, int64_t room_size,
                          Body body) {
  constexpr int64_t CHUNK = 4 * CHILDREN, CACHE = 256 << 10;
  const int64_t n = p.J * p.D * GROUPS, blocks = (p.B + LANES<T> - 1) / LANES<T>;
  const int64_t ranges = std::max<int64_t>(1, std::min<int64_t>(p.threads, p.I / 16));
  const int64_t fit = CACHE / (3 * n * VECTOR_BYTES), share = (blocks * ranges + p.threads - 1) / p.threads;
  const int64_t together = std::max<int64_t>(1, std::min(fit, share));  // blocks of a group
  const int64_t groups = (blocks + together - 1) / together;
  Scratch<T> partial(n * blocks * ranges);
#pragma omp parallel for num_threads(p.threads) schedule(static)
  for (int64_t task = 0; task < ranges * groups; ++task) {
    const int64_t range = task / groups, group = task % groups;
    const int64_t begin = p.I * range / ranges, end = p.I * (range + 1) / ranges;
    const int64_t first_block = group * together, last_block = std::min(blocks, first_block + together);
    Scratch<T> scratch(CHILDREN * (p.d + 1) * GROUPS + room_size + 2 * together * n);
    Vec<T>*poses = scratch.data(), *weights = poses + CHILDREN * p.d * GROUPS, *room = weights + CHILDREN * GROUPS;
    Vec<T>* packed = room + room_size;
    for (int64_t block = first_block; block < last_block; ++block)
      for (int m = 0; m < 2; ++m)
        if (parents[m])
          pack<T>(parents[m], p.J * p.D, block * LANES<T>, std::min<int64_t>(LANES<T>, p.B - block * LANES<T>), p.J * p.D,
                  packed + ((block - first_block) * 2 + m) * n);
    for (int64_t chunk = begin; chunk < end; chunk += CHUNK)
      for (int64_t block = first_block; block < last_block; ++block) {
        const int64_t image = block * LANES<T>, images = std::min<int64_t>(LANES<T>, p.B - image);
        const Vec<T>* known = packed + (block - first_block) * 2 * n;
        for (int64_t from = chunk; from < std::min(end, chunk + CHUNK); from += CHILDREN) {
          const int64_t children = std::min(CHILDREN, end - from);
          load_children(p, u, w, image, images, from, children, poses, weights);
          body(Work<T>{image, images, from, children, poses, weights, {known, known + n},
                       partial.data() + (block * ranges + range) * n, room});
        }
      }
  }
  for (int64_t block = 0; block < blocks; ++block) {
    Vec<T>* sum = partial.data() + block * ranges * n;
    for (int64_t r = 1; r < ranges; ++r)
      for (int64_t k = 0; k < n; ++k) sum[k] += sum[r * n + k];
    unpack<T>(sum, out, p.J * p.D, block * LANES<T>, std::min<int64_t>(LANES<T>, p.B - block * LANES<T>), p.J * p.D);
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

// The first sum, where every p_ij is the same: s = Σ_i (w_i p u_i) W_ij.
template <typename T, typename S>
void even_sum_pass(const Problem& p, const T* u, const T* W, const T* w, T* s) {
  const S size{p};
  const T even = T(1) / T(p.J + (p.leaky ? 1 : 0));
  const int64_t step = p.shared ? 0 : p.J * p.d * p.D, J = p.J;
  reduce_over_children<T>(p, u, w, {}, s, CHILDREN * p.d * GROUPS, [=, &p](const Work<T> work) {
    Vec<T>* scaled = work.room;
    for (int64_t i = 0; i < work.children; ++i)
      for (int g = 0; g < GROUPS; ++g) {
        const Vec<T> scale = work.weights[i * GROUPS + g] * even;
        for (int64_t n = i * size.d(); n < (i + 1) * size.d(); ++n) scaled[n * GROUPS + g] = work.poses[n * GROUPS + g] * scale;
      }
    const T* Wj = weights_of(p, W, work.first_child);
    Vec<T>* out = work.sum;
    for (int64_t j = 0; j < J; ++j, Wj += size.d() * size.D(), out += size.D() * GROUPS)
      for_tiles(size.D(), [&](int64_t k, auto width) __attribute__((always_inline)) {
        add_products<T, width()>(size, scaled, work.children, Wj + k, step, out + k * GROUPS);
      });
  });
}

// s = Σ_i w_i p_ij û_ij with p = softmax_j(û_ij·V_j), or all p the same without V. `coupling` [B, I, J], if wanted, receives
// w_i p_ij.
template <typename T, typename S>
void sum_pass(const Problem& p, const T* u, const T* W, const T* V, const T* w, T* s, T* coupling) {
  if (!V && !coupling) return even_sum_pass<T, S>(p, u, W, w, s);
  const S size{p};
  const int64_t parent = size.D() * GROUPS, J = p.J;
  const T even = T(1) / T(J + (p.leaky ? 1 : 0));
  reduce_over_children<T>(p, u, w, {V}, s, J * (parent + GROUPS), [=, &p](const Work<T> work) {
    Vec<T>*votes = work.room, *share = votes + J * parent, *sum = work.sum;
    const Vec<T>* agree = work.parents[0];
    for (int64_t i = 0; i < work.children; ++i) {
      const Vec<T>* pose = work.poses + i * size.d() * GROUPS;
      const T* Wij = weights_of(p, W, work.first_child + i);
      for (int64_t j = 0; j < J; ++j, Wij += size.d() * size.D()) {
        if (V) {
          make_vote<T, 1>(size, pose, Wij, votes + j * parent, {agree + j * parent}, {share + j * GROUPS});
        } else {
          make_vote<T, 0>(size, pose, Wij, votes + j * parent, {}, {});
          for (int g = 0; g < GROUPS; ++g) share[j * GROUPS + g] = splat<T>(even);
        }
      }
      if (V) softmax<T>(share, J, p.leaky);
      for (int64_t j = 0; j < J; ++j) {
        for (int g = 0; g < GROUPS; ++g) share[j * GROUPS + g] *= work.weights[i * GROUPS + g];
        add_scaled<T>(size, share + j * GROUPS, votes + j * parent, sum + j * parent);
      }
      if (coupling) unpack<T>(share, coupling + (work.first_child + i) * J, p.I * J, work.first_image, work.images, J);
    }
  });
}

// The gradient of the logits: x_ij = w_i û_ij·G_j → db_ij = p_ij (x_ij − Σ_k p_ik x_ik), in place of x.
template <typename T, int G = GROUPS>
inline Vec<T> softmax_gradient(const Vec<T>* share, Vec<T>* x, int64_t J, int g) {
  Vec<T> mean = Vec<T>{};
  for (int64_t j = 0; j < J; ++j) mean += share[j * G + g] * x[j * G + g];
  for (int64_t j = 0; j < J; ++j) x[j * G + g] = share[j * G + g] * (x[j * G + g] - mean);
  return mean;
}

// dV_j = Σ_i db_ij û_ij, the gradient of V through the softmax of b = û·V, for the gradient G of s.
template <typename T, typename S>
void agreement_pass(const Problem& p, const T* u, const T* W, const T* V, const T* G, const T* w, T* dV) {
  const S size{p};
  const int64_t parent = size.D() * GROUPS, J = p.J;
  reduce_over_children<T>(p, u, w, {V, G}, dV, J * (parent + 2 * GROUPS), [=, &p](const Work<T> work) {
    Vec<T>*votes = work.room, *share = votes + J * parent, *x = share + J * GROUPS, *sum = work.sum;
    const Vec<T>*agree = work.parents[0], *grad = work.parents[1];
    for (int64_t i = 0; i < work.children; ++i) {
      const Vec<T>* pose = work.poses + i * size.d() * GROUPS;
      const T* Wij = weights_of(p, W, work.first_child + i);
      for (int64_t j = 0; j < J; ++j, Wij += size.d() * size.D()) {
        make_vote<T, 2>(size, pose, Wij, votes + j * parent, {agree + j * parent, grad + j * parent},
                        {share + j * GROUPS, x + j * GROUPS});
        for (int g = 0; g < GROUPS; ++g) x[j * GROUPS + g] *= work.weights[i * GROUPS + g];
      }
      softmax<T>(share, J, p.leaky);
      for (int g = 0; g < GROUPS; ++g) softmax_gradient<T>(share, x, J, g);
      for (int64_t j = 0; j < J; ++j) add_scaled<T>(size, x + j * GROUPS, votes + j * parent, sum + j * parent);
    }
  });
}

}  // namespace
