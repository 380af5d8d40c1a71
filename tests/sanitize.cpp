// Runs every pass on odd sizes under the sanitizers: `make sanitize`. Buffers are exactly as large as the shapes say, so any
// access outside is caught. Values are tested in Python; here only finiteness is.
#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16
#endif
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "em_gradients.h"
#include "em_moments.h"
#include "forward.h"
#include "routing_gradients.h"
#include "small_gradients.h"

template <typename T>
std::vector<T> some(int64_t n) {
  std::vector<T> x(n);
  for (int64_t k = 0; k < n; ++k) x[k] = T(0.3) * std::sin(T(k) + 1);
  return x;
}

template <typename T>
void require_finite(const std::vector<T>& x, const char* name) {
  for (T value : x)
    if (!std::isfinite(value)) std::printf("%s is not finite\n", name), std::exit(1);
}

template <typename T, typename S>
void run(Problem p) {
  const int64_t JD = p.J * p.D, r = 4;
  auto u = some<T>(p.B * p.I * p.d), W = some<T>((p.shared ? 1 : p.I) * p.J * p.d * p.D), w = some<T>(p.B * p.I);
  auto V = some<T>(r * p.B * JD), G = some<T>(r * p.B * JD);
  std::vector<T> s(p.B * JD), c(p.B * p.I * p.J), du(u.size()), dW(W.size()), dw(w.size()), pose(p.B * JD), sums(r * p.B * JD);
  auto bias = some<T>(JD), alphas = some<T>(r);
  for (const T* weight : {static_cast<const T*>(nullptr), static_cast<const T*>(w.data())}) {
    sum_pass<T, S>(p, u.data(), W.data(), nullptr, weight, s.data(), nullptr);
    sum_pass<T, S>(p, u.data(), W.data(), nullptr, weight, s.data(), c.data());
    sum_pass<T, S>(p, u.data(), W.data(), V.data(), weight, s.data(), c.data());
    agreement_pass<T, S>(p, u.data(), W.data(), V.data(), G.data(), weight, s.data());
    for (int64_t iterations = 1; iterations <= r; ++iterations)
      parameter_pass<T, S>(p, iterations, iterations % 2, iterations % 2, u.data(), W.data(), V.data(), G.data(), weight,
                           du.data(), dW.data(), dw.data());
    for (int kind : {SABOUR, EXPONENTIAL, HALF, UNIT}) {
      Plan plan{kind + 1, kind, kind % 2};
      route<T, S>(p, plan, u.data(), W.data(), weight, kind % 2 ? bias.data() : nullptr, nullptr, pose.data(), sums.data());
    }
    route<T, S>(p, Plan{r, UNIT, 0}, u.data(), W.data(), weight, nullptr, alphas.data(), pose.data(), sums.data());
    for (int kind = SABOUR; kind <= UNIT + 1; ++kind) {  // the last: optimised routing
      if (!small<T>(p)) continue;
      const bool optimised = kind > UNIT;
      const int64_t iterations = kind % r + 1;
      std::vector<T> alone(iterations * p.B * JD), dbias(JD);
      const Plan plan{iterations, optimised ? UNIT : kind, kind % 2};
      const T *b = kind % 2 ? bias.data() : nullptr, *a = optimised ? alphas.data() : nullptr;
      route<T, S>(p, plan, u.data(), W.data(), weight, b, a, pose.data(), alone.data());
      for (bool last : {false, true}) {
        SmallGradientsCall<T> call{u.data(),  W.data(),  weight,    alone.data(),                  pose.data(),
                                   last,      du.data(), dW.data(), weight ? dw.data() : nullptr, b ? dbias.data() : nullptr};
        small_gradients<T, S>(p, plan, b, a, call);
        require_finite(du, "du"), require_finite(dW, "dW"), require_finite(dw, "dw"), require_finite(dbias, "dbias");
      }
    }
  }
  require_finite(s, "s"), require_finite(pose, "pose"), require_finite(sums, "sums"), require_finite(c, "coupling"), require_finite(du, "du"), require_finite(dW, "dW");
}

// EM routing on a row of Q positions with windows of three, or one window over all of them.
template <typename T, int side>
void run_em(int64_t B, int64_t Q, int64_t types, int64_t J, int everywhere, int threads, bool whole) {
  using S = Pose<side, side, side>;
  std::vector<int32_t> first{0}, parent, slice;
  const int64_t P = whole ? 1 : std::max<int64_t>(Q - 2, 0), K = whole ? 1 : 3;
  for (int64_t q = 0; q < Q; ++q) {
    for (int64_t k = 0; k < K; ++k)
      if (whole || (q - k >= 0 && q - k < P)) parent.push_back(whole ? 0 : q - k), slice.push_back(whole ? 0 : k);
    first.push_back(parent.size());
  }
  const int64_t rows = side ? side : 3, inner = side ? side : 2, cols = side ? side : 5;
  Grid g{B, Q, P, K, types, J, rows, inner, cols, everywhere, threads, first.data(), parent.data(), slice.data()};
  const int64_t H = rows * cols, sums = B * P * J;
  auto poses = some<T>(B * Q * types * rows * inner), W = some<T>(K * types * J * inner * cols), a = some<T>(B * Q * types);
  auto shift = some<T>(Q * H), log_p = some<T>(sums), mean = some<T>(sums * H), precision = some<T>(sums * H);
  for (T& x : a) x = x < 0 ? T(0) : x;
  for (T& x : precision) x = std::abs(x);
  std::vector<uint8_t> present(B * P);
  for (size_t n = 0; n < present.size(); ++n) present[n] = n % 3 != 0;
  std::vector<T> amount(sums), mu(sums * H), variance(sums * H), log_mass(sums);
  std::vector<T> dposes(poses.size()), dW(W.size()), da(a.size()), dlog_p(sums), dmean(sums * H), dprecision(sums * H);
  for (bool scored : {false, true})
    for (bool masked : {false, true}) {
      const T *lp = scored ? log_p.data() : nullptr, *m = scored ? mean.data() : nullptr, *v = scored ? precision.data() : nullptr;
      const uint8_t* there = masked ? present.data() : nullptr;
      MomentsCall<T> call{poses.data(), W.data(), a.data(), masked ? shift.data() : nullptr, lp, m, v, there, amount.data(),
                          mu.data(), variance.data(), log_mass.data()};
      em_moments<T, S>(g, call);
      GradientsCall<T> back{poses.data(), W.data(), a.data(), masked ? shift.data() : nullptr, lp, m, v, there, mu.data(),
                            variance.data(), log_mass.data(), log_p.data(), mean.data(), precision.data(), dposes.data(),
                            dW.data(), da.data(), dlog_p.data(), dmean.data(), dprecision.data()};
      em_gradients<T, S>(g, back);
    }
  require_finite(mu, "mean"), require_finite(variance, "variance"), require_finite(amount, "amount");
  require_finite(dposes, "dposes"), require_finite(dW, "dW"), require_finite(da, "da"), require_finite(dmean, "dmean");
}

int em_cases() {
  int cases = 0;
  for (int64_t B : {0, 1, 3})
    for (int64_t Q : {3, 6})
      for (int64_t types : {1, 5})
        for (int64_t J : {1, 7, 17})
          for (int everywhere : {0, 1})
            for (bool whole : {false, true}) {
              const int threads = 1 + cases % 3;
              run_em<float, 0>(B, Q, types, J, everywhere, threads, whole);
              run_em<double, 4>(B, Q, types, J, everywhere, threads, whole), ++cases;
            }
  return cases;
}

int main() {
  int cases = em_cases();
  for (int64_t B : {0, 1, 3, 8, 17, 130})
    for (int64_t I : {0, 1, 7, 33})
      for (int shared : {0, 1})
        for (int threads : {1, 2, 3}) {
          for (int64_t size : {1, 5, 9}) {
            Problem p{B, I, 3, size, 9, shared, (threads == 2), threads};
            run<float, Shape<0, 0>>(p), run<double, Shape<0, 0>>(p), ++cases;
          }
          Problem p{B, I, 10, 8, 16, shared, 0, threads};
          run<float, Shape<8, 16>>(p), run<double, Shape<8, 16>>(p), ++cases;
        }
  std::printf("%d cases passed, %d failed\n", cases, 0);
}
