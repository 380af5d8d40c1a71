// The last pass of the backward pass: gradients of poses, weights and child weights.
#pragma once

#include "passes.h"

namespace {

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
    if (a < d)
      for_tiles(D, [&](int64_t k, auto width) __attribute__((always_inline)) {
        weight_gradient<T, 1, width()>(pose + a * GROUPS, u_step, dv + k * GROUPS, v_step, blocks, target + a * D + k, D);
      });
  }
}

// Gradients of poses, weights and child weights, given V (agree) and G (grad) of every iteration [T, B, J, D]. Children are spread over
// the threads, so every dW_ij is written by one thread; shared weights are summed per thread and then in order. A few
// children are taken through all blocks together, so that V and G of a block are read once for all of them.
template <typename T, typename S>
void parameter_pass(const DynamicCall<T>& c) {
  const Problem& p = c.p;
  const S size{p};
  const int64_t iterations = p.iterations;
  const bool first_even = p.first_even, through = p.gradient != LAST;
  const T *u = c.poses, *W = c.weight, *w = c.child_weight;
  T *du = c.dposes, *dW = c.dweight, *dw = c.dchild;
  const int64_t parent = size.D() * GROUPS, all = p.J * parent, matrix = p.J * p.d * p.D;
  const int64_t blocks = (p.B + LANES<T> - 1) / LANES<T>;
  Packed<T> V(p, c.agree, iterations, blocks), G(p, c.grad, iterations, blocks);
  const int64_t bytes = std::max<int64_t>(1, blocks * all * VECTOR_BYTES);
  const int64_t chunk = std::max<int64_t>(1, std::min<int64_t>(CHILDREN, (256 << 10) / bytes));
  std::vector<T> shared_sums(p.shared ? p.threads * matrix : 0, T(0));
  if (!p.shared) std::fill_n(dW, p.I * matrix, T(0));
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
        load_children(p, u, w, first, count, from, n, block_poses, weights);
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

}  // namespace
