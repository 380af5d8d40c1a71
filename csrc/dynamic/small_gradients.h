// The backward pass of many images of a small problem, a block of them from start to end: see small_problems.h.
//
// One product makes the votes; the passes backward over them leave the couplings c_ij(t) and the gradients of the logits db_ij(t).
// With these, dû_ij = Σ_t c_ij(t) G_j(t) + db_ij(t) V_j(t) needs the votes no more, and two products make du and dW of it.
#pragma once

#include "small_problems.h"

namespace {

// One part of the blocks, with its own sums of dW [I or 1][J][d][D', a whole number of vectors] and dbias [J·D].
template <typename T, typename S>
class SmallGradients {
 public:
  SmallGradients(const DynamicCall<T>& call, const Steps<T>& given, T* dW, Vec<T>* dbias)
      : p_(call.p),
        call_(call),
        steps_(given),
        block_(p_, call.poses, call.weight, call.child_weight),
        size_(block_.size),
        JD_(block_.JD),
        iterations_(p_.iterations),
        from_(p_.gradient == LAST ? iterations_ - 1 : 0),
        terms_(p_.gradient == LAST ? 1 : 2 * iterations_ - 1),
        parents_step_(JD_ + size_.D()),
        scales_step_(p_.I * p_.J + 2),
        dW_(dW),
        dbias_(dbias),
        parents_((2 * iterations_ - 1) * GROUPS * parents_step_),
        scales_((2 * iterations_ - 1) * GROUPS * scales_step_),
        dV_(GROUPS * JD_),
        room_(2 * JD_),
        dweights_(GROUPS * p_.I),
        dposes_(CHILDREN * p_.d * GROUPS),
        dvote_(size_.D() * GROUPS),
        rows_(GROUPS * padded(p_)) {}

  static int64_t padded(const Problem& p) { return (p.D + Simd<T>::width - 1) / Simd<T>::width * Simd<T>::width; }

  void run(int64_t block) {
    block_.load(block);
    for (int g = 0; g < GROUPS; ++g) replay_parents(g);
    std::fill_n(dweights_.data(), GROUPS * p_.I, Vec<T>{});
    bool make = true;
    for (int64_t t = iterations_ - 1; t > 0 && t >= from_; --t, make = false) {
      if (make || !steps_.accumulates()) std::fill_n(dV_.data(), GROUPS * JD_, Vec<T>{});
      block_.for_children(make, [&](int g, int64_t i, int64_t n) {
        for (int64_t c = i; c < i + n; ++c) logit_gradients(t, g, c);
        block_.add_votes(g, i, n, db(t, g, i), dV_.data() + g * JD_);
      });
      for (int g = 0; t > from_ && g < GROUPS; ++g) {
        block_.load(call_.sums + (t - 1) * p_.B * JD_, JD_, g, room_.data());
        steps_.next_gradient(room_.data(), t - 1, dV_.data() + g * JD_, G(t - 1, g));
      }
    }
    if (from_ == 0)
      block_.for_children(make && call_.dchild, [&](int g, int64_t i, int64_t n) {
        for (int64_t c = i; c < i + n; ++c) even_shares(g, c);
      });
    if (call_.dchild)
      for (int g = 0; g < GROUPS; ++g) block_.store(dweights_.data() + g * p_.I, p_.I, g, call_.dchild);
    for (int64_t t = from_; dbias_ && t < iterations_; ++t)
      for (int g = 0; g < GROUPS; ++g)
        for (int64_t n = 0; n < JD_; ++n) dbias_[n] += G(t, g)[n];
    for (int64_t i = 0; i < p_.I; i += CHILDREN) parameters(i, std::min(p_.I, i + CHILDREN));
  }

 private:
  // G of pass t and c, then V and db of pass t > 0: so the terms of dû lie one after the other.
  Vec<T>* G(int64_t t, int g) { return parents_.data() + (t * GROUPS + g) * parents_step_; }
  Vec<T>* V(int64_t t, int g) { return G(iterations_ + t - 1, g); }
  Vec<T>* shares(int64_t t, int g, int64_t i) { return scales_.data() + (t * GROUPS + g) * scales_step_ + i * p_.J; }
  Vec<T>* db(int64_t t, int g, int64_t i) { return shares(iterations_ + t - 1, g, i); }

  // V of every pass from the sums, and G of the last.
  void replay_parents(int g) {
    Vec<T>*s = room_.data(), *grad = s + JD_;
    for (int64_t t = 0; t < iterations_; ++t) {
      block_.load(call_.sums + t * p_.B * JD_, JD_, g, s);
      if (t + 1 < iterations_) steps_.next(s, t, t > 0 ? V(t, g) : nullptr, V(t + 1, g));
    }
    block_.load(call_.grad, JD_, g, grad);
    steps_.result_gradient(s, grad, G(iterations_ - 1, g));
  }

  // Coupling and gradient of the logits of one child in pass t > 0; what that gives the child's weight.
  void logit_gradients(int64_t t, int g, int64_t i) {
    const int64_t D = size_.D();
    const Vec<T>*votes = block_.votes(g, i), *agree = V(t, g), *grad = G(t, g), w = block_.weight(g, i);
    Vec<T>*share = shares(t, g, i), *x = db(t, g, i);
    for (int64_t j = 0; j < p_.J; ++j) {
      Vec<T> logit = Vec<T>{}, y = Vec<T>{};
      for (int64_t k = j * D; k < (j + 1) * D; ++k) logit += votes[k] * agree[k], y += votes[k] * grad[k];
      share[j] = logit, x[j] = y;
    }
    softmax<T, 1>(share, p_.J, p_.leaky);
    dweights_.data()[g * p_.I + i] += softmax_gradient<T, 1>(share, x, p_.J, 0);
    for (int64_t j = 0; j < p_.J; ++j) share[j] *= w, x[j] *= w;
  }

  // The first pass, where every p_ij is the same and there is no V.
  void even_shares(int g, int64_t i) {
    std::fill_n(shares(0, g, i), p_.J, block_.weight(g, i) * block_.even);
    if (!call_.dchild) return;
    const Vec<T>*votes = block_.votes(g, i), *grad = G(0, g);
    Vec<T> sum = Vec<T>{}, part;
    for (int64_t j = 0; j < p_.J; ++j) dot<T, 1>(size_, votes + j * size_.D(), grad + j * size_.D(), &part), sum += part;
    dweights_.data()[g * p_.I + i] += sum * block_.even;
  }

  // dû of a few children for one parent after the other, each used at once for du and dW.
  void parameters(int64_t from, int64_t to) {
    const int64_t d = size_.d(), D = size_.D(), stride = padded(p_);
    std::fill_n(dposes_.data(), CHILDREN * d * GROUPS, Vec<T>{});
    T* rows = reinterpret_cast<T*>(rows_.data());
    for (int64_t j = 0; j < p_.J; ++j)
      for (int64_t i = from; i < to; ++i) {
        vote_gradient(i, j);
        add_pose_gradient(block_.matrices(i) + j * d * D, dposes_.data() + (i - from) * d * GROUPS);
        unpack<T>(dvote_.data(), rows, stride, 0, LANES<T>, D);
        add_weight_gradient(block_.pose(i), dW_ + ((p_.shared ? 0 : i) * p_.J + j) * d * stride);
      }
    unpack<T>(dposes_.data(), call_.dposes + from * d, p_.I * d, block_.first, block_.images, (to - from) * d);
  }

  // dû_ij [D][GROUPS], the sum of c G of all passes and db V of all but the first: five terms in three passes.
  void vote_gradient(int64_t i, int64_t j) {
    int64_t n = 0;
    if (terms_ >= 5) add_terms<5>(n, i, j), n = 5;
    for (; n < terms_; ++n) add_terms<1>(n, i, j);
  }

  // dû (+)= N of the terms from `from` on.
  template <int N>
  inline __attribute__((always_inline)) void add_terms(int64_t from, int64_t i, int64_t j) {
    const int64_t step = GROUPS * parents_step_, scale_step = GROUPS * scales_step_;
    for (int g = 0; g < GROUPS; ++g) {
      const Vec<T>*x = G(from_ + from, g) + j * size_.D(), *given = shares(from_ + from, g, i) + j;
      Vec<T>* dvote = dvote_.data() + g;
      Vec<T> scale[N];
      for (int n = 0; n < N; ++n) scale[n] = given[n * scale_step];
      for (int64_t k = 0; k < size_.D(); ++k) {
        Vec<T> sum = from ? dvote[k * GROUPS] : Vec<T>{};
        for (int n = 0; n < N; ++n) sum += scale[n] * x[n * step + k];
        dvote[k * GROUPS] = sum;
      }
    }
  }

  // du_a += Σ_k dû_k W_ak.
  void add_pose_gradient(const T* W, Vec<T>* du) {
    const Vec<T>* dvote = dvote_.data();
    for_tiles(size_.d(), [&](int64_t a, auto width) __attribute__((always_inline)) {
      Vec<T> sum[width()][GROUPS];
      for (int n = 0; n < width(); ++n)
        for (int g = 0; g < GROUPS; ++g) sum[n][g] = du[(a + n) * GROUPS + g];
      for (int64_t k = 0; k < size_.D(); ++k)
        for (int n = 0; n < width(); ++n) {
          Vec<T> w = splat<T>(W[(a + n) * size_.D() + k]);
          for (int g = 0; g < GROUPS; ++g) sum[n][g] += dvote[k * GROUPS + g] * w;
        }
      for (int n = 0; n < width(); ++n)
        for (int g = 0; g < GROUPS; ++g) du[(a + n) * GROUPS + g] = sum[n][g];
    });
  }

  // dW_ak += Σ_images u_a dû_k, with k in the lanes: one image's dû after the other.
  void add_weight_gradient(const Vec<T>* pose, T* dW) {
    const int64_t vectors = padded(p_) / Simd<T>::width;
    const T* u = reinterpret_cast<const T*>(pose);
    auto* out = reinterpret_cast<typename Simd<T>::unaligned*>(dW);
    for_tiles(size_.d(), [&](int64_t a, auto width) __attribute__((always_inline)) {
      int64_t k = 0;
      for (; k + 2 <= vectors; k += 2) add_outer<width(), 2>(u + a * LANES<T>, k, vectors, out + a * vectors + k);
      if (k < vectors) add_outer<width(), 1>(u + a * LANES<T>, k, vectors, out + a * vectors + k);
    });
  }

  template <int A, int K>
  inline __attribute__((always_inline)) void add_outer(const T* u, int64_t from, int64_t vectors,
                                                       typename Simd<T>::unaligned* dW) {
    const Vec<T>* rows = rows_.data() + from;
    Vec<T> sum[A][K];
    for (int a = 0; a < A; ++a)
      for (int k = 0; k < K; ++k) sum[a][k] = dW[a * vectors + k];
    for (int64_t image = 0; image < block_.images; ++image)
      for (int a = 0; a < A; ++a) {
        Vec<T> scale = splat<T>(u[a * LANES<T> + image]);
        for (int k = 0; k < K; ++k) sum[a][k] += scale * rows[image * vectors + k];
      }
    for (int a = 0; a < A; ++a)
      for (int k = 0; k < K; ++k) dW[a * vectors + k] = sum[a][k];
  }

  const Problem& p_;
  const DynamicCall<T>& call_;
  const LaneSteps<T> steps_;
  Block<T, S> block_;
  const S size_;
  const int64_t JD_, iterations_, from_, terms_;  // from_: the first pass that has a gradient; terms_: of a vote's gradient
  const int64_t parents_step_, scales_step_;  // not whole pages, which would fall on the same few lines of the cache
  T* dW_;
  Vec<T>* dbias_;
  Scratch<T> parents_, scales_, dV_, room_, dweights_, dposes_, dvote_, rows_;
};

// Every thread has its part of the blocks and its own sums, which are added in order.
template <typename T, typename S>
void small_gradients(const DynamicCall<T>& call) {
  const Problem& p = call.p;
  const Steps<T> steps{p, call.bias, call.alphas};
  const int64_t JD = p.J * p.D, stride = SmallGradients<T, S>::padded(p), matrices = (p.shared ? 1 : p.I) * p.J * p.d;
  const bool in_place = stride == p.D;  // the first part adds up where the result belongs
  Scratch<T> rest((p.threads - in_place) * matrices * stride / Simd<T>::width), dbias(p.threads * JD);
  const auto sums = [&](int64_t part) {
    return in_place && part == 0 ? call.dweight : reinterpret_cast<T*>(rest.data()) + (part - in_place) * matrices * stride;
  };
  if (in_place) std::fill_n(call.dweight, matrices * stride, T(0));
  for_parts<T>(p, [&](int64_t part, int64_t from, int64_t to) {
    SmallGradients<T, S> worker(call, steps, sums(part), call.dbias ? dbias.data() + part * JD : nullptr);
    for (int64_t block = from; block < to; ++block) worker.run(block);
  });
  if (!in_place) std::fill_n(call.dweight, matrices * p.D, T(0));
  for (int64_t part = in_place; part < p.threads; ++part) {
    const T* from = sums(part);
    for (int64_t row = 0; row < matrices; ++row)
      for (int64_t k = 0; k < p.D; ++k) call.dweight[row * p.D + k] += from[row * stride + k];
  }
  for (int64_t n = 0; call.dbias && n < JD; ++n) {
    call.dbias[n] = 0;
    for (int64_t part = 0; part < p.threads; ++part) call.dbias[n] += horizontal_sum<T>(dbias.data()[part * JD + n]);
  }
}

}  // namespace
