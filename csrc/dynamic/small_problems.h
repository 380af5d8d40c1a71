// Many images of a small problem: a block of them from start to end, its votes kept in the cache.
//
// Where the votes of a block fit into the cache, they need not be computed again for every pass. Weights are read once per
// block, by products that take GROUPS vectors of images at a time; the passes over the votes then take one vector at a time, so
// that what they read and add up stays in the first-level cache: votes are [GROUPS][I][J·D].
#pragma once

#include "passes.h"
#include "steps.h"

namespace {

constexpr int64_t VOTES_KEPT = 1 << 20, WEIGHTS_KEPT = 4 << 20;  // bytes, of a block and of all children

// Whether that is so: votes and weights fit, and there are blocks for all threads. Fewer images have their own way.
template <typename T>
bool small(const Problem& p) {
  const int64_t votes = p.I * p.J * p.D, weights = (p.shared ? 1 : p.I) * p.J * p.D * p.d;
  return p.I > 0 && p.B >= 8 && (p.B + LANES<T> - 1) / LANES<T> >= p.threads && votes * GROUPS * VECTOR_BYTES <= VOTES_KEPT &&
         weights * static_cast<int64_t>(sizeof(T)) <= WEIGHTS_KEPT;
}

// Calls f(part, first, last) for parts of the blocks of images, one for each thread; sizes and threads alone decide on them.
template <typename T, typename F>
void for_parts(const Problem& p, F f) {
  const int64_t blocks = (p.B + LANES<T> - 1) / LANES<T>;
#pragma omp parallel for num_threads(p.threads) schedule(static, 1)
  for (int64_t part = 0; part < p.threads; ++part) f(part, blocks * part / p.threads, blocks * (part + 1) / p.threads);
}

// Poses, weights and votes of one block after the other.
template <typename T, typename S>
class Block {
 public:
  Block(const Problem& p, const T* u, const T* W, const T* w)
      : size{p},
        JD(p.J * p.D),
        even(T(1) / T(p.J + (p.leaky ? 1 : 0))),
        p_(p),
        u_(u),
        W_(W),
        w_(w),
        poses_(p.I * p.d * GROUPS),
        weights_(GROUPS * p.I),
        votes_(GROUPS * p.I * JD) {
    std::fill_n(weights_.data(), GROUPS * p.I, splat<T>(1));
  }

  void load(int64_t block) {
    first = block * LANES<T>;
    images = std::min<int64_t>(LANES<T>, p_.B - first);
    pack<T>(u_, p_.I * p_.d, first, images, p_.I * p_.d, poses_.data());
    if (w_)
      for (int g = 0; g < GROUPS; ++g) load(w_, p_.I, g, weights_.data() + g * p_.I);
  }

  // n numbers per image of vector g, [n], and back.
  void load(const T* x, int64_t n, int g, Vec<T>* out) const { pack<T, 1>(x, n, start(g), count(g), n, out); }
  void store(const Vec<T>* in, int64_t n, int g, T* x) const { unpack<T, 1>(in, x, n, start(g), count(g), n); }

  const Vec<T>* pose(int64_t i) { return poses_.data() + i * size.d() * GROUPS; }
  const Vec<T>& weight(int g, int64_t i) { return weights_.data()[g * p_.I + i]; }
  Vec<T>* votes(int g, int64_t i) { return votes_.data() + (g * p_.I + i) * JD; }
  const T* matrices(int64_t i) const { return weights_of(p_, W_, i); }

  // Calls body(g, i, n) for every vector of images and all children, n from i on, after making their votes if asked for. A few
  // children at a time: their votes are still near when the body reads them, and the parents stay near while it goes from child to
  // child. The next call goes the other way, because the last children's votes are the nearest then.
  template <typename Body>
  void for_children(bool make, Body body) {
    const int64_t chunks = (p_.I + CHILDREN - 1) / CHILDREN;
    down_ = !make && !down_;
    for (int64_t n = 0; n < chunks; ++n) {
      const int64_t from = (down_ ? chunks - 1 - n : n) * CHILDREN, to = std::min(p_.I, from + CHILDREN);
      for (int64_t i = from; make && i < to; ++i) make_votes(i);
      for (int g = 0; g * Simd<T>::width < images; ++g)
        for (int64_t i = from; i < to; i += 2) body(g, i, std::min<int64_t>(2, to - i));
    }
  }

  // sum_j += Σ c_ij û_ij over n children from i on, c [n][J]: two at a time halve the way of the sum to the cache and back.
  void add_votes(int g, int64_t i, int64_t n, const Vec<T>* c, Vec<T>* sum) {
    const Vec<T>* x = votes(g, i);
    for (int64_t j = 0; j < p_.J; ++j, x += size.D(), sum += size.D()) {
      if (n < 2) {
        add_scaled<T, 1>(size, c + j, x, sum);
        continue;
      }
      const Vec<T> scale = c[j], next = c[p_.J + j];
      for (int64_t k = 0; k < size.D(); ++k) {
        const Vec<T> part = sum[k] + scale * x[k];
        sum[k] = part + next * x[JD + k];
      }
    }
  }

  const S size;
  const int64_t JD;
  const T even;  // p_ij of the first pass
  int64_t first, images;

 private:
  int64_t start(int g) const { return first + g * Simd<T>::width; }
  int64_t count(int g) const {
    return std::max<int64_t>(0, std::min<int64_t>(Simd<T>::width, images - g * Simd<T>::width));
  }

  void make_votes(int64_t i) {
    const T* Wij = matrices(i);
    const Vec<T>* u = pose(i);
    for (int64_t j = 0; j < p_.J; ++j, Wij += size.d() * size.D())
      for_tiles(size.D(), [&](int64_t k, auto width) __attribute__((always_inline)) {
        Vec<T> tile[width()][GROUPS];
        vote_tile<T, width()>(size, u, Wij + k, tile);
        for (int g = 0; g < GROUPS; ++g) {
          Vec<T>* out = votes(g, i) + j * size.D() + k;
          for (int n = 0; n < width(); ++n) out[n] = tile[n][g];
        }
      });
  }

  const Problem& p_;
  const T *u_, *W_, *w_;
  bool down_ = false;
  Scratch<T> poses_, weights_, votes_;  // [I][d][GROUPS], [GROUPS][I], [GROUPS][I][J·D]
};

// Sums of all passes [r, B, J, D] and pose [B, J, D].
template <typename T, typename S>
void route_small(const Problem& p, const Steps<T>& given, const T* u, const T* W, const T* w, T* pose, T* sums) {
  const LaneSteps<T> steps(given);
  const int64_t iterations = p.iterations;
  for_parts<T>(p, [&](int64_t, int64_t from, int64_t to) {
    Block<T, S> block(p, u, W, w);
    const int64_t JD = block.JD, D = block.size.D();
    Scratch<T> room(GROUPS * JD * 2 + 2 * p.J);
    Vec<T>*sum = room.data(), *V = sum + GROUPS * JD, *share = V + GROUPS * JD;
    for (int64_t b = from; b < to; ++b) {
      block.load(b);
      for (int64_t t = 0; t < iterations; ++t) {
        std::fill_n(sum, GROUPS * JD, Vec<T>{});
        block.for_children(t == 0, [&](int g, int64_t i, int64_t n) {
          for (int64_t c = 0; c < n; ++c) {
            Vec<T>* cj = share + c * p.J;
            const Vec<T>* votes = block.votes(g, i + c);
            for (int64_t j = 0; t > 0 && j < p.J; ++j) dot<T, 1>(block.size, votes + j * D, V + g * JD + j * D, cj + j);
            if (t > 0) {
              softmax<T, 1>(cj, p.J, p.leaky);
            } else {
              std::fill_n(cj, p.J, splat<T>(block.even));
            }
            for (int64_t j = 0; j < p.J; ++j) cj[j] *= block.weight(g, i + c);
          }
          block.add_votes(g, i, n, share, sum + g * JD);
        });
        for (int g = 0; g < GROUPS; ++g) {
          Vec<T>*s = sum + g * JD, *v = V + g * JD;
          block.store(s, JD, g, sums + t * p.B * JD);
          if (t + 1 < iterations) steps.next(s, t, t > 0 ? v : nullptr, v);
        }
      }
      for (int g = 0; g < GROUPS; ++g) {
        steps.result(sum + g * JD, sum + g * JD);
        block.store(sum + g * JD, JD, g, pose);
      }
    }
  });
}

}  // namespace
