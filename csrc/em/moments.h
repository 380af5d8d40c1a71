// One iteration of EM routing forward: the E-step of every child, then mass, mean and variance of its votes for every parent.
#pragma once

#include "tiles.h"

namespace {

template <typename T>
inline bool any_above(const Vec<T>& x, const Vec<T>& limit) {
  auto found = x > limit;
  uint64_t bits[VECTOR_BYTES / 8], all = 0;
  std::memcpy(bits, &found, sizeof bits);
  for (uint64_t part : bits) all |= part;
  return all != 0;
}

// Sums over the children of one image, by Welford's updates (1962): no cancellation however far the mean is from zero. Weights
// are relative to e^top, so that a parent that gets next to nothing is as exact as any other.
template <typename T>
struct Moments {
  // Where the total begins: nothing beside a weight, and no division by zero for a parent that gets nothing from anyone.
  static constexpr T NOBODY = std::numeric_limits<T>::min();
  Scratch<T> top, total, mean, spread;
  std::vector<uint8_t> seen;

  Moments(const Grid& g, int64_t size)
      : top(g.P * tiles_of<T>(g)),
        total(g.P * tiles_of<T>(g)),
        mean(g.P * tiles_of<T>(g) * size),
        spread(g.P * tiles_of<T>(g) * size),
        seen(g.P) {}

  void clear(const Grid& g, int64_t size) {
    const int64_t n = g.P * tiles_of<T>(g);
    std::fill_n(total.data(), n, splat<T>(NOBODY));
    std::fill_n(mean.data(), n * size, Vec<T>{});
    std::fill_n(spread.data(), n * size, Vec<T>{});
    std::fill(seen.begin(), seen.end(), 0);
  }

  // Logarithms of weights → weights; raises the top of a tile where one would be too large for it.
  void weigh(int64_t tile, int64_t size, bool first, int count, Vec<T>* x) {
    const T room = 60;
    Vec<T>& most = top.data()[tile];
    Vec<T> highest = x[0];
    for (int c = 1; c < count; ++c) highest = larger<T>(highest, x[c]);
    if (first) {
      most = highest > -INFINITE<T> ? highest : splat<T>(std::numeric_limits<T>::lowest());  // no weight yet: 0, not e^(∞−∞)
    } else if (any_above<T>(highest, most + room)) {
      Vec<T> raised = larger<T>(most, highest), factor = exponential(most - raised);
      most = raised;
      total.data()[tile] = larger<T>(splat<T>(NOBODY), total.data()[tile] * factor);
      for (int64_t h = 0; h < size; ++h) spread.data()[tile * size + h] *= factor;
    }
    for (int c = 0; c < count; ++c) x[c] = exponential(x[c] - most);
  }
};

// Adds a few children's votes for one tile; x are the logarithms of their weights.
template <typename T, typename S, int count>
inline void add_votes(const S& s, Moments<T>& sums, int64_t tile, bool first, const Vec<T>* const* V, Vec<T>* x) {
  sums.weigh(tile, s.size(), first, count, x);
  Vec<T> part[count], rest[count], total = sums.total.data()[tile];
  for (int c = 0; c < count; ++c) {
    total += x[c];
    part[c] = x[c] / total;
    rest[c] = x[c] - x[c] * part[c];
  }
  sums.total.data()[tile] = total;
  Vec<T>*__restrict mean = sums.mean.data() + tile * s.size(), *__restrict spread = sums.spread.data() + tile * s.size();
  for (int64_t h = 0; h < s.size(); ++h) {
    Vec<T> m = mean[h], v = spread[h];
    for (int c = 0; c < count; ++c) {
      Vec<T> d = V[c][h] - m;
      m += part[c] * d;
      v += rest[c] * d * d;
    }
    mean[h] = m;
    spread[h] = v;
  }
}

template <typename T, typename S>
void add_any(const S& s, Moments<T>& sums, int64_t tile, bool first, int count, const Vec<T>* const* V, Vec<T>* x) {
  switch (count) {
    case 1: return add_votes<T, S, 1>(s, sums, tile, first, V, x);
    case 2: return add_votes<T, S, 2>(s, sums, tile, first, V, x);
    case 3: return add_votes<T, S, 3>(s, sums, tile, first, V, x);
    default: return add_votes<T, S, AT_ONCE>(s, sums, tile, first, V, x);
  }
}

// One thread's work space and one image's way through it. No weight is larger than `largest`.
template <typename T, typename S>
class MomentsOfImage {
 public:
  MomentsOfImage(const Grid& g, const EmCall<T>& call, const Vec<T>* weights, T largest)
      : g_(g),
        s_{g},
        call_(call),
        weights_(weights),
        largest_(largest),
        tiles_(tiles_of<T>(g)),
        most_(most_links(g) * tiles_),
        parents_(g, call.log_p ? s_.size() : 0),
        sums_(g, s_.size()),
        votes_(AT_ONCE * most_ * s_.size()),
        shares_(AT_ONCE * most_) {}

  void run(int64_t image) {
    if (call_.log_p) parents_.load(g_, s_.size(), image, call_.log_p, call_.mean, call_.precision);
    sums_.clear(g_, s_.size());
    // Types outside, positions inside: the weights of a few types stay in the cache while they go over the image.
    for (int64_t first = 0; first < g_.T; first += AT_ONCE)
      for (int64_t q = 0; q < g_.Q; ++q) {
        reached_.find(g_, q, call_.present ? call_.present + image * g_.P : nullptr);
        int count = 0;
        T log_a[AT_ONCE];
        for (int64_t t = first; reached_.count() && t < std::min(first + AT_ONCE, g_.T); ++t) {
          const T a = call_.activation[(image * g_.Q + q) * g_.T + t];
          if (a == 0 && votes_finite(image, q, t)) continue;
          child_votes(image, q, t, count);
          log_a[count++] = std::log(a);
        }
        if (count) add(count, log_a);
      }
    for (int64_t at = 0; at < g_.P; ++at) write(image, at);
  }

 private:
  const T* pose(int64_t image, int64_t q, int64_t t) const {
    return call_.poses + ((image * g_.Q + q) * g_.T + t) * g_.rows * g_.inner;
  }
  const T* shift(int64_t q) const { return call_.shift ? call_.shift + q * s_.size() : nullptr; }

  // Whether an absent child's votes are surely finite. Then zero times each is zero, and it is passed over; else they must show.
  bool votes_finite(int64_t image, int64_t q, int64_t t) const {
    T length = 0, most = 0;
    for (int64_t n = 0; n < g_.rows * g_.inner; ++n) length += std::abs(pose(image, q, t)[n]);
    for (int64_t h = 0; call_.shift && h < s_.size(); ++h) most += std::abs(shift(q)[h]);
    return length * largest_ + most < std::numeric_limits<T>::max();
  }

  void child_votes(int64_t image, int64_t q, int64_t t, int place) {
    const int64_t size = s_.size(), weight = g_.inner * g_.cols, links = reached_.count();
    Vec<T>*V = votes_.data() + place * most_ * size, *x = shares_.data() + place * most_;
    for (int64_t link = 0; link < links; ++link)
      for (int64_t k = 0; k < tiles_; ++k, V += size) {
        vote<T, S>(s_, pose(image, q, t), weights_ + ((reached_.slice[link] * g_.T + t) * tiles_ + k) * weight, shift(q), V);
        if (!call_.log_p) continue;
        const int64_t at = reached_.parent[link] * tiles_ + k;
        x[link * tiles_ + k] = score<T, S>(s_, V, parents_.log_p.data()[at], parents_.mean.data() + at * size,
                                           parents_.precision.data() + at * size);
      }
    log_shares<T>(g_, links, call_.log_p != nullptr, x);
  }

  void add(int count, const T* log_a) {
    for (int64_t link = 0; link < reached_.count(); ++link) {
      const int64_t at = reached_.parent[link];
      for (int64_t k = 0; k < tiles_; ++k) {
        const Vec<T>* V[AT_ONCE];
        Vec<T> x[AT_ONCE];
        for (int c = 0; c < count; ++c) {
          V[c] = votes_.data() + (c * most_ + link * tiles_ + k) * s_.size();
          // The share of an absent child counts as nothing, also where its score overflowed.
          x[c] = log_a[c] == -INFINITE<T> ? splat<T>(log_a[c]) : shares_.data()[c * most_ + link * tiles_ + k] + log_a[c];
        }
        add_any<T, S>(s_, sums_, at * tiles_ + k, !sums_.seen[at], count, V, x);
      }
      sums_.seen[at] = 1;
    }
  }

  void write(int64_t image, int64_t at) {
    const int64_t to = (image * g_.P + at) * g_.J, size = s_.size();
    for (int64_t k = at * tiles_; k < (at + 1) * tiles_; ++k)
      for (int64_t h = k * size; h < (k + 1) * size; ++h) {
        sums_.spread.data()[h] /= sums_.total.data()[k];
        sums_.mean.data()[h] += sums_.mean.data()[h] * T(0);  // ∞ becomes NaN, as it does wherever a vote comes after it
      }
    from_tiles<T>(g_, sums_.mean.data() + at * tiles_ * size, size, call_.new_mean + to * size);
    from_tiles<T>(g_, sums_.spread.data() + at * tiles_ * size, size, call_.variance + to * size);
    from_tiles<T>(g_, sums_.total.data() + at * tiles_, 1, call_.amount + to);
    from_tiles<T>(g_, sums_.top.data() + at * tiles_, 1, call_.log_mass + to);
    for (int64_t j = to; j < to + g_.J; ++j) {
      const bool nobody = call_.amount[j] <= Moments<T>::NOBODY;
      call_.log_mass[j] = nobody ? T(NEVER) : call_.log_mass[j] + std::log(call_.amount[j]);  // no child, no shares
      call_.amount[j] = nobody ? T(0) : std::exp(call_.log_mass[j]);
    }
  }

  const Grid& g_;
  const S s_;
  const EmCall<T>& call_;
  const Vec<T>* weights_;
  const T largest_;
  const int64_t tiles_, most_;
  Parents<T> parents_;
  Moments<T> sums_;
  Scratch<T> votes_, shares_;
  Reached reached_;
};

// No number is larger than this sum of all: ∞ or NaN if one of them is.
template <typename T>
T sum_of_sizes(const Vec<T>* x, int64_t n) {
  Vec<T> sum = Vec<T>{};
  for (int64_t k = 0; k < n; ++k) sum += x[k] < T(0) ? -x[k] : x[k];
  return horizontal_sum<T>(sum);
}

template <typename T, typename S>
void em_moments(const EmCall<T>& call) {
  const Grid& g = call.g;
  const int64_t vectors = g.K * g.T * tiles_of<T>(g) * g.inner * g.cols;
  Scratch<T> weights(vectors);
  weights_to_tiles<T>(g, call.weight, weights.data());
  const T largest = sum_of_sizes<T>(weights.data(), vectors);
#pragma omp parallel num_threads(g.threads)
  {
    MomentsOfImage<T, S> worker(g, call, weights.data(), largest);
#pragma omp for schedule(static)
    for (int64_t image = 0; image < g.B; ++image) worker.run(image);
  }
}

}  // namespace
