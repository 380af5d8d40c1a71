// The kernel under the sanitizers, through the functions that Python calls: `make sanitize`. First all odd sizes in turn, then
// random cases: `sanitize_avx2 100000` runs so many, `sanitize_avx2 1 41` only the one with seed 41.
//
// Buffers are exactly as large as the shapes say, so that any access outside is caught. Values are tested in Python; here it is
// tested that numbers of ordinary size give finite results, that NaN or ∞ in an image shows in its result, and in no other's.
// Convolutions, in sanitize_conv.h, are compared with a plain loop too.
#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16
#endif
#define VARIANT(name) torchcaps_##name##_portable  // whatever the flags: it is the only one that entries.cpp knows here
#include "variant.h"

#include "entries.cpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

// Both sanitizers end by a signal, so that the case can be named.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace {

template <typename T>
struct Kernel;
#define FLOAT_FUNCTION(name) static constexpr auto name = torchcaps_##name##_f32;
#define DOUBLE_FUNCTION(name) static constexpr auto name = torchcaps_##name##_f64;
template <>
struct Kernel<float> {
  TORCHCAPS_FUNCTIONS(FLOAT_FUNCTION)
};
template <>
struct Kernel<double> {
  TORCHCAPS_FUNCTIONS(DOUBLE_FUNCTION)
};

// ORDINARY: moderate numbers. ONE: NaN or ∞ in one image. WILD: anything anywhere.
enum Mood { ORDINARY, ONE, WILD };

// The numbers of one case, and all other choices that it makes.
struct Dice {
  std::mt19937_64 bits;
  int64_t up_to(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n + 1)); }  // 0 … n
  int64_t size(int64_t most) { return 1 + up_to(up_to(3) ? std::min<int64_t>(5, most - 1) : most - 1); }  // small ones mostly
  bool coin() { return bits() & 1; }

  // NaN with any payload, ∞, the ends of the range, denormals.
  template <typename T>
  T special() {
    const T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min(), sign = coin() ? T(1) : T(-1);
    switch (up_to(6)) {
      case 0: return not_finite<T>();
      case 1: return sign * INFINITE<T>;
      case 2: return sign * most;
      case 3: return sign * std::sqrt(most);
      case 4: return sign * least / T(1 + up_to(1000));
      case 5: return sign * T(88);
      default: return T(0);
    }
  }

  template <typename T>
  T not_finite() {
    typename Words<T>::Word word = static_cast<typename Words<T>::Word>(bits());
    T number = INFINITE<T>;
    if (coin()) return coin() ? number : -number;
    typename Words<T>::Word all;
    std::memcpy(&all, &number, sizeof number);
    all |= word | 1;  // an exponent of ones and any other bits: NaN
    std::memcpy(&number, &all, sizeof number);
    return number;
  }

  template <typename T>
  std::vector<T> numbers(int64_t n, Mood mood, T scale = T(0.5)) {
    std::vector<T> x(n);
    const int64_t rare = up_to(2) ? 30 : 1;
    for (T& value : x) {
      value = scale * std::sin(T(up_to(1000)));
      if (mood == WILD && up_to(rare) == 0) value = special<T>();
    }
    return x;
  }
};

int64_t current = -1;  // the case that runs
std::string about;     // what else is known of it
void say_which(int) {
  if (!about.empty()) std::fprintf(stderr, "%s\n", about.c_str());
  std::fprintf(stderr, "in random case %lld (-1: sizes in turn)\n", static_cast<long long>(current));
  std::_Exit(1);
}

void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s %s\n", what, why);
  say_which(0);
}

// All numbers are finite, but for those of one image; n numbers each.
template <typename T>
void require_finite(const std::vector<T>& x, const char* name, int64_t but = -1, int64_t n = 1) {
  for (int64_t k = 0; k < static_cast<int64_t>(x.size()); ++k)
    if (k / n != but && !std::isfinite(x[k])) fail(name, but < 0 ? "is not finite" : "is not finite in another image");
}

template <typename T>
void require_visible(const std::vector<T>& x, const char* name, int64_t image, int64_t n) {
  for (int64_t k = image * n; k < (image + 1) * n; ++k)
    if (!std::isfinite(x[k])) return;
  fail(name, "hides what is not finite");
}

struct Options {
  int squash, replace, last, weighted, biased, optimised;
  int64_t iterations;
};

constexpr int KINDS = NONE - SABOUR;  // of squash, less one

Problem problem(int64_t B, int64_t I, int64_t J, int64_t d, int64_t D, bool shared, bool leaky, int threads) {
  Problem p{};
  p.B = B, p.I = I, p.J = J, p.d = d, p.D = D, p.shared = shared, p.leaky = leaky, p.threads = threads;
  return p;
}

// Dynamic and optimised routing: every function on one problem.
template <typename T>
void route_case(Problem p, Options o, Mood mood, Dice& dice) {
  using K = Kernel<T>;
  const int64_t JD = p.J * p.D, r = o.iterations, all = p.B * JD;
  auto u = dice.numbers<T>(p.B * p.I * p.d, mood), W = dice.numbers<T>((p.shared ? 1 : p.I) * p.J * p.d * p.D, mood);
  auto child = dice.numbers<T>(p.B * p.I, mood), offset = dice.numbers<T>(JD, mood, T(0.1));
  auto V = dice.numbers<T>(r * all, mood), G = dice.numbers<T>(r * all, mood), entropy = dice.numbers<T>(r, mood);
  for (T& x : entropy) x = mood == WILD ? x : T(1.5) + x;
  int64_t bad = -1;
  if (mood == ONE && !u.empty()) {
    const int64_t at = dice.up_to(static_cast<int64_t>(u.size()) - 1);
    u[at] = dice.not_finite<T>(), bad = at / (p.I * p.d);
  }
  std::vector<T> pose(all), sums(r * all), s(all), c(p.B * p.I * p.J), du(u.size()), dW(W.size()), dw(child.size()), dbias(JD);
  p.kind = o.optimised ? OPTIMIZED : DYNAMIC, p.iterations = r, p.squash = SABOUR + o.squash;
  p.update = o.replace ? REPLACE : ACCUMULATE, p.gradient = o.last ? LAST : ALL, p.first_even = o.replace;
  DynamicCall<T> call{};
  call.p = p, call.poses = u.data(), call.weight = W.data(), call.child_weight = o.weighted ? child.data() : nullptr;
  call.bias = o.biased ? offset.data() : nullptr, call.alphas = o.optimised ? entropy.data() : nullptr;
  call.pose = pose.data(), call.sums = sums.data();
  K::route(&call);
  if (mood != WILD) require_finite(pose, "pose", bad, JD);
  if (bad >= 0) require_visible(pose, "pose", bad, JD);
  call.grad = G.data(), call.dposes = du.data(), call.dweight = dW.data();
  if (K::small(&call)) {
    call.dchild = o.weighted ? dw.data() : nullptr, call.dbias = o.biased ? dbias.data() : nullptr;
    K::small_gradients(&call);
    if (mood != WILD) require_finite(du, "du", bad, p.I * p.d), require_finite(dw, "dw", bad, p.I);
    if (mood == ORDINARY) require_finite(dW, "dW"), require_finite(dbias, "dbias");
  }
  call.sums = s.data();
  K::sum(&call);
  call.coupling = c.data();
  K::sum(&call);
  if (mood != WILD) require_finite(s, "s", bad, JD), require_finite(c, "even coupling");
  call.agree = V.data();
  K::sum(&call);
  if (mood != WILD) require_finite(s, "s", bad, JD), require_finite(c, "coupling", bad, p.I * p.J);
  K::agreement(&call);
  if (mood != WILD) require_finite(s, "dV", bad, JD);
  call.dchild = dw.data();
  K::parameters(&call);
  if (mood != WILD) require_finite(du, "du", bad, p.I * p.d);
  if (mood == ORDINARY) require_finite(dW, "dW");
}

// The links of a row of Q children in windows of K, or of one window over all of them.
struct Row {
  int64_t Q, K, P, stride, padding;
  bool whole;
  std::vector<int32_t> first{0}, parent, slice;

  Row(int64_t children, int64_t kernel, int64_t step, int64_t around, bool one)
      : Q(children), K(one ? 1 : kernel), P(1), stride(step), padding(around), whole(one) {
    if (!whole) P = std::max<int64_t>(0, (Q + 2 * padding - K) / stride + 1);
    for (int64_t q = 0; q < Q; ++q) {
      for (int64_t at = 0; at < P; ++at) {
        const int64_t place = q + padding - at * stride;
        if (whole || (place >= 0 && place < K)) add(at, whole ? 0 : place);
      }
      first.push_back(static_cast<int32_t>(parent.size()));
    }
  }
  void add(int64_t at, int64_t place) {
    parent.push_back(static_cast<int32_t>(at)), slice.push_back(static_cast<int32_t>(place));
  }
};

// One iteration of EM routing, forward and backward.
template <typename T>
void em_case(Grid g, const Row& row, bool scored, bool masked, bool moved, Mood mood, Dice& dice) {
  const int64_t H = g.rows * g.cols, sums = g.B * g.P * g.J, pose = g.rows * g.inner;
  auto poses = dice.numbers<T>(g.B * g.Q * g.T * pose, mood), W = dice.numbers<T>(g.K * g.T * g.J * g.inner * g.cols, mood);
  auto a = dice.numbers<T>(g.B * g.Q * g.T, mood), shift = dice.numbers<T>(g.Q * H, mood), log_p = dice.numbers<T>(sums, mood);
  auto mean = dice.numbers<T>(sums * H, mood), precision = dice.numbers<T>(sums * H, mood, T(3));
  for (T& x : a) x = mood == WILD ? x : x < 0 ? T(0) : x;  // half of the children are absent
  for (T& x : precision) x = mood == WILD ? x : std::abs(x);
  std::vector<uint8_t> present(g.B * g.P);
  for (uint8_t& x : present) x = dice.up_to(2) != 0;
  int64_t bad = -1;
  bool seen = false;
  if (mood == ONE && !poses.empty()) {
    const int64_t at = dice.up_to(static_cast<int64_t>(poses.size()) - 1), child = at / pose, q = child / g.T % g.Q;
    bad = child / (g.Q * g.T);
    poses[at] = dice.not_finite<T>();
    for (int32_t link = row.first[q]; link < row.first[q + 1]; ++link)
      seen = seen || !masked || present[bad * g.P + row.parent[link]];
  }
  std::vector<T> amount(sums), mu(sums * H), variance(sums * H), log_mass(sums);
  EmCall<T> call{};
  call.g = g, call.poses = poses.data(), call.weight = W.data(), call.activation = a.data();
  call.shift = moved ? shift.data() : nullptr, call.present = masked ? present.data() : nullptr;
  if (scored) call.log_p = log_p.data(), call.mean = mean.data(), call.precision = precision.data();
  call.amount = amount.data(), call.new_mean = mu.data(), call.variance = variance.data(), call.log_mass = log_mass.data();
  Kernel<T>::em_moments(&call);
  if (mood != WILD) require_finite(mu, "mean", bad, g.P * g.J * H), require_finite(variance, "variance", bad, g.P * g.J * H);
  if (mood != WILD) require_finite(amount, "amount", bad, g.P * g.J);
  if (seen) require_visible(mu, "mean", bad, g.P * g.J * H);
  auto by_amount = dice.numbers<T>(sums, mood), by_mean = dice.numbers<T>(sums * H, mood), by_variance = by_mean;
  std::vector<T> dposes(poses.size()), dW(W.size()), da(a.size()), dlog_p(sums), dmean(sums * H), dprecision(sums * H);
  call.grad_amount = by_amount.data(), call.grad_mean = by_mean.data(), call.grad_variance = by_variance.data();
  call.dposes = dposes.data(), call.dweight = dW.data(), call.dactivation = da.data();
  call.dlog_p = dlog_p.data(), call.dmean = dmean.data(), call.dprecision = dprecision.data();
  Kernel<T>::em_gradients(&call);
  if (mood != WILD) require_finite(dposes, "dposes", bad, g.Q * g.T * pose), require_finite(da, "da", bad, g.Q * g.T);
  if (mood == ORDINARY) require_finite(dW, "dW"), require_finite(dmean, "dmean"), require_finite(dprecision, "dprecision");
}

template <typename T>
void em_grid(int64_t B, const Row& row, int64_t types, int64_t J, int64_t side, int everywhere, int threads, bool scored,
             bool masked, bool moved, Mood mood, Dice& dice) {
  const int64_t rows = side ? side : dice.size(4), inner = side ? side : dice.size(4), cols = side ? side : dice.size(5);
  Grid g{B,     row.Q, row.P, row.K,      types,   J,                rows,
         inner, cols,  everywhere, threads, row.first.data(), row.parent.data(), row.slice.data()};
  em_case<T>(g, row, scored, masked, moved, mood, dice);
}

}  // namespace

#include "sanitize_conv.h"

namespace {

// Every odd size in turn, with ordinary numbers.
int64_t sizes_in_turn() {
  Dice dice{std::mt19937_64(0)};
  int64_t cases = 0;
  for (int64_t B : {0, 1, 3})
    for (int64_t Q : {3, 6})
      for (int64_t types : {1, 5})
        for (int64_t J : {1, 7, 17})
          for (int kind = 0; kind < 8; ++kind, ++cases) {
            const Row row(Q, 3, 1, 0, kind & 1);
            em_grid<float>(B, row, types, J, 0, kind & 1, 1 + cases % 3, kind & 2, kind & 4, kind & 4, ORDINARY, dice);
            em_grid<double>(B, row, types, J, 4, kind & 2, 1 + cases % 3, kind & 4, kind & 1, kind & 1, ORDINARY, dice);
          }
  for (int64_t B : {0, 1, 3, 8, 17, 33})
    for (int64_t I : {0, 1, 7, 33})
      for (int shared : {0, 1})
        for (int threads : {1, 3})
          for (int64_t size : {1, 5, 9, 8}) {
            const int64_t J = size == 8 ? 10 : 3, D = size == 8 ? 16 : 9;
            const Problem p = problem(B, I, J, size, D, shared, I % 4 == 3, threads);
            for (int kind = (I + size + threads / 2) % 2; kind <= KINDS + 1; kind += 2, ++cases) {  // the last: optimised routing
              const bool optimised = kind > KINDS;
              const Options o{optimised ? UNIT - SABOUR : kind, kind % 3 == 1, kind % 3 == 2, shared, threads > 1, optimised, kind % 4 + 1};
              route_case<float>(p, o, ORDINARY, dice), route_case<double>(p, o, ORDINARY, dice);
            }
          }
  return cases + convs_in_turn(dice);
}

constexpr int64_t LARGEST = 200000;  // products of a random case, so that 100,000 take minutes

template <typename T>
void random_case(Dice& dice) {
  const Mood mood = static_cast<Mood>(dice.up_to(2));
  if (dice.up_to(2) == 0) return random_conv<T>(mood, dice);
  const int threads = static_cast<int>(1 + dice.up_to(2));
  if (dice.up_to(2) == 0) {
    const Row row(dice.size(9), dice.size(3), dice.size(3), dice.up_to(1), dice.up_to(3) == 0);
    const int64_t B = dice.up_to(4), types = dice.size(9), J = dice.size(19), side = dice.up_to(2) ? 0 : 4;
    const bool everywhere = dice.coin(), scored = dice.coin(), masked = dice.coin(), moved = dice.coin();
    return em_grid<T>(B, row, types, J, side, everywhere, threads, scored, masked, moved, mood, dice);
  }
  const int64_t B = dice.up_to(dice.up_to(9) ? 20 : 80), I = dice.up_to(dice.up_to(9) ? 12 : 60), J = dice.size(18);
  const int64_t d = dice.size(17), D = dice.size(20);
  const bool shared = dice.coin(), leaky = dice.coin();
  Problem p = problem(B, I, J, d, D, shared, leaky, threads);
  if (dice.up_to(4) == 0) p.d = dice.coin() ? 8 : 16, p.D = 16;
  const int kind = static_cast<int>(dice.up_to(KINDS));
  Options o{kind, dice.coin(), dice.coin(), dice.coin(), dice.coin(), dice.up_to(3) == 0, dice.size(5)};
  if (o.optimised) o.biased = o.replace = o.last = 0, p.leaky = 0;
  while (p.B * p.I * p.J * p.d * p.D * o.iterations > LARGEST) p.I /= 2;
  route_case<T>(p, o, mood, dice);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t random = argc > 1 ? std::atoll(argv[1]) : 1000, first = argc > 2 ? std::atoll(argv[2]) : 0;
  std::signal(SIGABRT, say_which);
  const int64_t turned = argc > 2 ? 0 : sizes_in_turn();
  for (int64_t n = 0; n < random; ++n) {
    current = first + n;
    Dice dice{std::mt19937_64(static_cast<uint64_t>(current) + 1)};
    dice.coin() ? random_case<float>(dice) : random_case<double>(dice);
  }
  std::printf("%lld cases passed: %lld sizes in turn, %lld random; vectors of %d bytes\n", static_cast<long long>(turned + random),
              static_cast<long long>(turned), static_cast<long long>(random), VECTOR_BYTES);
}
