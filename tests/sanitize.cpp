// Runs every pass on odd sizes under the sanitizers: `make sanitize`. Buffers are exactly as large as the shapes say, so any
// access outside is caught. Values are tested in Python; here only finiteness is.
#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16
#endif
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "forward.h"
#include "routing_gradients.h"

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
  }
  require_finite(s, "s"), require_finite(pose, "pose"), require_finite(sums, "sums"), require_finite(c, "coupling"), require_finite(du, "du"), require_finite(dW, "dW");
}

int main() {
  int cases = 0;
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
