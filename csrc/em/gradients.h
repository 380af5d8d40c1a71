// One iteration of EM routing backward. Votes and shares R are computed again; with D = V − μ of the new mean, z = V − μ of the old,
// m the mass, and gradients g of mass, mean and variance:
//
//   Σ_j of  R g_m + (R/m) Σ_h (g_μ D + g_σ² (D² − σ²))                gradient of the child's activation a
//   e = a times that term, ds = e − R Σ_parents e                     gradient of the score
//   dV = a (R/m) (g_μ + 2 g_σ² D) − ds z / σ_old²                     gradient of the vote, and from it of pose and weight
//   Σ ds,  Σ ds z / σ_old²,  −½ Σ ds z²                               gradients of the old ln p, mean and precision
#pragma once

#include "tiles.h"

namespace {

// What the gradients of one image rest on, in tiles.
template <typename T>
struct GradientTiles {
  Scratch<T> mean, by_mean, by_variance, constant, amount, log_mass;

  GradientTiles(const Grid& g, int64_t size)
      : mean(g.P * tiles_of<T>(g) * size),
        by_mean(g.P * tiles_of<T>(g) * size),
        by_variance(g.P * tiles_of<T>(g) * size),
        constant(g.P * tiles_of<T>(g)),
        amount(g.P * tiles_of<T>(g)),
        log_mass(g.P * tiles_of<T>(g)) {}

  void load(const Grid& g, int64_t size, int64_t image, const EmCall<T>& call) {
    const int64_t tiles = tiles_of<T>(g);
    std::vector<T> sums(g.J);
    for (int64_t at = 0; at < g.P; ++at) {
      const int64_t from = (image * g.P + at) * g.J;
      for (int64_t j = 0; j < g.J; ++j) {
        sums[j] = 0;
        for (int64_t h = 0; h < size; ++h)
          sums[j] -= call.grad_variance[(from + j) * size + h] * call.variance[(from + j) * size + h];
      }
      to_tiles<T>(g, sums.data(), 1, T(0), constant.data() + at * tiles);
      to_tiles<T>(g, call.grad_amount + from, 1, T(0), amount.data() + at * tiles);
      to_tiles<T>(g, call.log_mass + from, 1, T(0), log_mass.data() + at * tiles);
      to_tiles<T>(g, call.new_mean + from * size, size, T(0), mean.data() + at * tiles * size);
      to_tiles<T>(g, call.grad_mean + from * size, size, T(0), by_mean.data() + at * tiles * size);
      to_tiles<T>(g, call.grad_variance + from * size, size, T(0), by_variance.data() + at * tiles * size);
    }
  }

  template <typename S>
  Vec<T> inner(const S& s, const Vec<T>* V, int64_t at) {
    const int64_t first = at * s.size();
    Vec<T> sum = constant.data()[at];
    for (int64_t h = 0; h < s.size(); ++h) {
      Vec<T> d = V[h] - mean.data()[first + h];
      sum += d * (by_mean.data()[first + h] + by_variance.data()[first + h] * d);
    }
    return sum;
  }
};

// Gradients of the old parents: Σ ds, Σ ds z, Σ ds z² of one image.
template <typename T>
struct ScoreSums {
  Scratch<T> none, once, twice;

  ScoreSums(const Grid& g, int64_t size)
      : none(g.P * tiles_of<T>(g)), once(g.P * tiles_of<T>(g) * size), twice(g.P * tiles_of<T>(g) * size) {}

  void clear(const Grid& g, int64_t size) {
    const int64_t n = g.P * tiles_of<T>(g);
    std::fill_n(none.data(), n, Vec<T>{});
    std::fill_n(once.data(), n * size, Vec<T>{});
    std::fill_n(twice.data(), n * size, Vec<T>{});
  }
};

// dM += dV Wᵀ (still in lanes) and dW += Mᵀ dV.
template <typename T, typename S>
inline void matrix_gradients(const S& s, const T* __restrict M, const Vec<T>* __restrict W, const Vec<T>* __restrict dV,
                             Vec<T>* __restrict dM, Vec<T>* __restrict dW) {
  for (int64_t r = 0; r < s.rows(); ++r)
    for (int64_t m = 0; m < s.inner(); ++m) {
      Vec<T> sum = dM[r * s.inner() + m];
      for (int64_t c = 0; c < s.cols(); ++c) sum += dV[r * s.cols() + c] * W[m * s.cols() + c];
      dM[r * s.inner() + m] = sum;
    }
  for (int64_t m = 0; m < s.inner(); ++m)
    for (int64_t c = 0; c < s.cols(); ++c) {
      Vec<T> sum = dW[m * s.cols() + c];
      for (int64_t r = 0; r < s.rows(); ++r) sum += dV[r * s.cols() + c] * M[r * s.inner() + m];
      dW[m * s.cols() + c] = sum;
    }
}

// One thread's work space, its sums of dW (tiles), and one image's way through it.
template <typename T, typename S>
class GradientsOfImage {
 public:
  GradientsOfImage(const Grid& g, const EmCall<T>& call, const Vec<T>* weights, Vec<T>* dweights)
      : g_(g),
        s_{g},
        call_(call),
        weights_(weights),
        dweights_(dweights),
        tiles_(tiles_of<T>(g)),
        most_(most_links(g) * tiles_),
        parents_(g, call.log_p ? s_.size() : 0),
        given_(g, s_.size()),
        sums_(g, call.log_p ? s_.size() : 0),
        votes_(AT_ONCE * most_ * s_.size()),
        shares_(AT_ONCE * most_),
        ds_(AT_ONCE * most_),
        relative_(AT_ONCE * most_),
        dpose_(AT_ONCE * g.rows * g.inner) {
    std::fill_n(dweights, g.K * g.T * tiles_ * g.inner * g.cols, Vec<T>{});
  }

  void run(int64_t image) {
    const int64_t pose = g_.rows * g_.inner;
    if (call_.log_p) {
      parents_.load(g_, s_.size(), image, call_.log_p, call_.mean, call_.precision);
      sums_.clear(g_, s_.size());
    }
    given_.load(g_, s_.size(), image, call_);
    for (int64_t first = 0; first < g_.T; first += AT_ONCE)  // as in the forward pass
      for (int64_t q = 0; q < g_.Q; ++q) {
        reached_.find(g_, q, call_.present ? call_.present + image * g_.P : nullptr);
        int count = 0;
        int64_t types[AT_ONCE];
        for (int64_t t = first; t < std::min(first + AT_ONCE, g_.T); ++t) {
          const int64_t child = (image * g_.Q + q) * g_.T + t;
          std::fill_n(call_.dposes + child * pose, pose, T(0));
          call_.dactivation[child] = 0;
          if (!reached_.count()) continue;
          child_votes(child, q, t, count);
          const T a = call_.activation[child];
          const bool finite = inner_finite(count);
          call_.dactivation[child] = child_scores(a, count);
          if (a != 0 || !finite) types[count++] = t;  // zero times a finite number is zero
        }
        if (count) add(image, q, count, types);
      }
    if (call_.log_p)
      for (int64_t at = 0; at < g_.P; ++at) write(image, at);
  }

 private:
  void child_votes(int64_t child, int64_t q, int64_t t, int place) {
    const int64_t size = s_.size(), weight = g_.inner * g_.cols, links = reached_.count();
    const T *M = call_.poses + child * g_.rows * g_.inner, *shift = call_.shift ? call_.shift + q * size : nullptr;
    Vec<T>*V = votes_.data() + place * most_ * size, *x = shares_.data() + place * most_;
    for (int64_t n = 0; n < links * tiles_; ++n, V += size) {
      const int64_t link = n / tiles_, k = n % tiles_, at = reached_.parent[link] * tiles_ + k;
      vote<T, S>(s_, M, weights_ + ((reached_.slice[link] * g_.T + t) * tiles_ + k) * weight, shift, V);
      ds_.data()[place * most_ + n] = given_.inner(s_, V, at);
      if (call_.log_p)
        x[n] = score<T, S>(s_, V, parents_.log_p.data()[at], parents_.mean.data() + at * size,
                           parents_.precision.data() + at * size);
    }
    log_shares<T>(g_, links, call_.log_p != nullptr, x);
  }

  bool inner_finite(int place) {
    Vec<T> sum = Vec<T>{};
    for (int64_t n = 0; n < reached_.count() * tiles_; ++n) sum += ds_.data()[place * most_ + n];
    return std::isfinite(horizontal_sum<T>(sum));
  }

  // What to count an activation in: 1, or so near to one that is extreme that R/m per unit is within range.
  static T unit_of(T a) {
    const T most = sizeof(T) == 4 ? T(1e18) : T(1e150);
    return a > most ? most : a < 1 / most && a != 0 ? 1 / most : T(1);
  }

  // From ln R and the inner sums (in ds_) to ds and a R/m; returns the gradient of the activation. Of an absent child ds and
  // a R/m are zero, also where its score overflowed.
  T child_scores(T a, int place) {
    const T most = sizeof(T) == 4 ? T(80) : T(700);  // an absent child may have any share: keep ∞ out
    const T unit = unit_of(a), log_unit = std::log(unit);
    a /= unit;
    const int64_t links = reached_.count();
    Vec<T>*R = shares_.data() + place * most_, *ds = ds_.data() + place * most_, *relative = relative_.data() + place * most_;
    Vec<T> everywhere = Vec<T>{};
    for (int64_t link = 0; link < links; ++link) {
      Vec<T> here = Vec<T>{};
      for (int64_t n = link * tiles_; n < (link + 1) * tiles_; ++n) {
        const int64_t at = reached_.parent[link] * tiles_ + n % tiles_;
        Vec<T> x = R[n] - given_.log_mass.data()[at] + log_unit;
        x = exponential(x > most ? splat<T>(most) : x);  // NaN stays
        R[n] = exponential(R[n]);
        ds[n] = R[n] * given_.amount.data()[at] * unit + x * ds[n];
        here += ds[n];
        relative[n] = a == 0 ? Vec<T>{} : x * a;
      }
      everywhere += here;
      if (!g_.everywhere) through_softmax(R + link * tiles_, ds + link * tiles_, tiles_, a, horizontal_sum<T>(here));
    }
    const T sum = horizontal_sum<T>(everywhere);
    if (g_.everywhere) through_softmax(R, ds, links * tiles_, a, sum);
    return sum / unit;
  }

  static void through_softmax(const Vec<T>* R, Vec<T>* ds, int64_t n, T a, T sum) {
    for (int64_t k = 0; k < n; ++k) ds[k] = a == 0 ? Vec<T>{} : (ds[k] - R[k] * sum) * a;
  }

  void add(int64_t image, int64_t q, int count, const int64_t* types) {
    const int64_t size = s_.size(), pose = g_.rows * g_.inner, weight = g_.inner * g_.cols;
    const T* M[AT_ONCE];
    std::fill_n(dpose_.data(), AT_ONCE * pose, Vec<T>{});
    for (int c = 0; c < count; ++c) M[c] = call_.poses + ((image * g_.Q + q) * g_.T + types[c]) * pose;
    for (int64_t n = 0; n < reached_.count() * tiles_; ++n) {
      const int64_t link = n / tiles_, k = n % tiles_, at = reached_.parent[link] * tiles_ + k;
      vote_gradients(at, n, count);
      for (int c = 0; c < count; ++c) {
        const int64_t w = ((reached_.slice[link] * g_.T + types[c]) * tiles_ + k) * weight;
        matrix_gradients<T, S>(s_, M[c], weights_ + w, votes_.data() + (c * most_ + n) * size, dpose_.data() + c * pose,
                               dweights_ + w);
      }
    }
    for (int c = 0; c < count; ++c)
      for (int64_t n = 0; n < pose; ++n)
        call_.dposes[((image * g_.Q + q) * g_.T + types[c]) * pose + n] = horizontal_sum<T>(dpose_.data()[c * pose + n]);
  }

  // Votes of a few children for one tile → their gradients, in place; and the sums for the old parents.
  void vote_gradients(int64_t at, int64_t n, int count) {
    const int64_t size = s_.size();
    const Vec<T>*__restrict mean = given_.mean.data() + at * size, *__restrict by_mean = given_.by_mean.data() + at * size,
                *__restrict by_variance = given_.by_variance.data() + at * size,
                *__restrict old = parents_.mean.data() + at * size,
                *__restrict precision = parents_.precision.data() + at * size;
    Vec<T>*__restrict once = sums_.once.data() + at * size, *__restrict twice = sums_.twice.data() + at * size;
    for (int c = 0; c < count; ++c) {
      const Vec<T> relative = relative_.data()[c * most_ + n], ds = ds_.data()[c * most_ + n];
      Vec<T>* __restrict V = votes_.data() + (c * most_ + n) * size;
      if (!call_.log_p) {
        for (int64_t h = 0; h < size; ++h) V[h] = relative * (by_mean[h] + by_variance[h] * T(2) * (V[h] - mean[h]));
        continue;
      }
      sums_.none.data()[at] += ds;
      for (int64_t h = 0; h < size; ++h) {
        const Vec<T> z = V[h] - old[h], dz = ds * z;
        once[h] += dz;
        twice[h] += dz * z;
        V[h] = relative * (by_mean[h] + by_variance[h] * T(2) * (V[h] - mean[h])) - dz * precision[h];
      }
    }
  }

  void write(int64_t image, int64_t at) {
    const int64_t to = (image * g_.P + at) * g_.J, size = s_.size(), first = at * tiles_ * size;
    for (int64_t h = first; h < first + tiles_ * size; ++h) {
      sums_.once.data()[h] *= parents_.precision.data()[h];
      sums_.twice.data()[h] *= T(-0.5);
    }
    from_tiles<T>(g_, sums_.none.data() + at * tiles_, 1, call_.dlog_p + to);
    from_tiles<T>(g_, sums_.once.data() + first, size, call_.dmean + to * size);
    from_tiles<T>(g_, sums_.twice.data() + first, size, call_.dprecision + to * size);
  }

  const Grid& g_;
  const S s_;
  const EmCall<T>& call_;
  const Vec<T>* weights_;
  Vec<T>* dweights_;
  const int64_t tiles_, most_;
  Parents<T> parents_;
  GradientTiles<T> given_;
  ScoreSums<T> sums_;
  Scratch<T> votes_, shares_, ds_, relative_, dpose_;
  Reached reached_;
};

// Every thread has its share of the images and its own sums, which are added in a fixed order: results do not vary from run to run.
template <typename T, typename S>
void em_gradients(const EmCall<T>& call) {
  const Grid& g = call.g;
  const int64_t tile = tiles_of<T>(g) * g.inner * g.cols, slices = g.K * g.T;
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(g.threads, g.B));
  Scratch<T> weights(slices * tile), total(slices * tile * parts);
  weights_to_tiles<T>(g, call.weight, weights.data());
#pragma omp parallel for num_threads(g.threads) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part) {
    GradientsOfImage<T, S> worker(g, call, weights.data(), total.data() + part * slices * tile);
    for (int64_t image = g.B * part / parts; image < g.B * (part + 1) / parts; ++image) worker.run(image);
  }
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t n = 0; n < slices * tile; ++n) total.data()[n] += total.data()[part * slices * tile + n];
  const int64_t weight = g.inner * g.cols;
  for (int64_t s = 0; s < slices; ++s) from_tiles<T>(g, total.data() + s * tile, weight, call.dweight + s * g.J * weight);
}

}  // namespace
