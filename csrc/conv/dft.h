// Discrete Fourier transforms of a few real numbers, each of which is a vector of channels.
//
//   forward    X[u] = Σ_n x[n] e^(−2πi·un/N),  u = 0 … N/2
//   backward   x[n] = X[0] + (−1)^n X[N/2] + Σ_u re X[u] cos(2π·un/N) − im X[u] sin(2π·un/N),  0 < u < N/2
//
// so that backward(forward) needs twice the X[u] between 0 and N/2, and a factor 1/N. The imaginary parts that are zero, of X[0] and
// of X[N/2], are neither written nor read.
//
// An even N is halved: even u see the sums x[n] + x[n + N/2], odd ones the differences. What is left are numbers at n and N − n whose
// cosines are equal but for a sign, and so are their sines: they are added and subtracted first. All factors are known when compiling.
#pragma once

#include <utility>

#include "../common/simd.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define FLATTEN __attribute__((flatten))  // all that a function calls is inlined: only so do its arrays become registers

namespace {

// The series of sine or cosine for |x| ≤ π/4.
constexpr double series(double x, bool cosine) {
  double term = cosine ? 1 : x, sum = term;
  for (int k = cosine ? 1 : 2; k < 24; k += 2) {
    term *= -x * x / (k * (k + 1));
    sum += term;
  }
  return sum;
}

// sin(2π·n/N), brought to the first eighth of the circle.
constexpr double sine(int n, int N) {
  constexpr double pi = 3.14159265358979323846;
  n = (n % N + N) % N;
  if (2 * n > N) return -sine(N - n, N);
  if (4 * n > N) return sine(N - 2 * n, 2 * N);
  return 8 * n <= N ? series(2 * pi * n / N, false) : series(pi * (N - 4 * n) / (2 * N), true);
}
constexpr double cosine(int n, int N) { return sine(4 * n + N, 4 * N); }

// Calls f(0) … f(n − 1), each with its number known when compiling.
template <typename F, int... at>
ALWAYS_INLINE void each(F f, std::integer_sequence<int, at...>) {
  (f(std::integral_constant<int, at>{}), ...);
}
template <int n, typename F>
ALWAYS_INLINE void unroll(F f) {
  each(f, std::make_integer_sequence<int, n>{});
}

// sum + x·cos(2π·n/N), sum ± x·sin(2π·n/N).
template <typename T, int n, int N>
ALWAYS_INLINE void add_cosine(Vec<T>& sum, const Vec<T>& x) {
  constexpr double factor = cosine(n, N);
  if constexpr (factor == 1) {
    sum += x;
  } else if constexpr (factor == -1) {
    sum -= x;
  } else if constexpr (factor != 0) {
    sum += T(factor) * x;
  }
}
template <typename T, int n, int N>
ALWAYS_INLINE void add_sine(Vec<T>& sum, const Vec<T>& x) {
  add_cosine<T, 4 * n - N, 4 * N>(sum, x);
}
template <typename T, int n, int N>
ALWAYS_INLINE void subtract_sine(Vec<T>& sum, const Vec<T>& x) {
  add_cosine<T, 4 * n + N, 4 * N>(sum, x);
}

template <typename T, int N>
struct Dft {
  using V = Vec<T>;
  static constexpr bool even = N % 2 == 0;
  static constexpr int half = even ? N / 2 : N;     // of which the numbers at n and half − n belong together
  static constexpr int pairs = (half - 1) / 2;      // n = 1 … pairs
  static constexpr int middle = half / 2;           // alone, if half is even

  // x[n] − x[half − n] and so on are kept in place: x[n] gets the sum, x[half − n] the difference.
  static ALWAYS_INLINE void fold(V* x) {
    unroll<pairs>([&](auto at) {
      constexpr int n = at + 1;
      const V sum = x[n] + x[half - n];
      x[half - n] = x[n] - x[half - n];
      x[n] = sum;
    });
  }

  // Frequency u of `half` folded numbers; for odd u of an even N the differences take the cosines, the sums the sines.
  template <int u>
  static ALWAYS_INLINE void frequency(const V* x, V* re, V* im) {
    V real = x[0], imaginary = V{};
    unroll<pairs>([&](auto at) {
      constexpr int n = at + 1;
      add_cosine<T, u * n, N>(real, even ? x[half - n] : x[n]);
      subtract_sine<T, u * n, N>(imaginary, even ? x[n] : x[half - n]);
    });
    if constexpr (half % 2 == 0) subtract_sine<T, u * middle, N>(imaginary, x[middle]);
    re[u] = real;
    if constexpr (u > 0 && 2 * u < N) im[u] = imaginary;
  }

  // x is overwritten.
  static ALWAYS_INLINE void forward(V* x, V* re, V* im) {
    if constexpr (even) {
      V sums[half], differences[half], even_re[half / 2 + 1], even_im[half / 2 + 1];
      unroll<half>([&](auto n) {
        sums[n] = x[n] + x[n + half];
        differences[n] = x[n] - x[n + half];
      });
      Dft<T, half>::forward(sums, even_re, even_im);
      unroll<half / 2 + 1>([&](auto k) {
        re[2 * k] = even_re[k];
        if constexpr (k > 0 && 2 * k < half) im[2 * k] = even_im[k];
      });
      fold(differences);
      unroll<(half + 1) / 2>([&](auto k) { frequency<2 * k + 1>(differences, re, im); });
    } else {
      fold(x);
      unroll<half / 2 + 1>([&](auto k) { frequency<k>(x, re, im); });
    }
  }

  // What the frequencies first, first + step, … give together, at n and at half − n.
  template <int first, int step, int count>
  static ALWAYS_INLINE void gather(const V* re, const V* im, V* x) {
    V zero = re[first];
    unroll<count - 1>([&](auto k) { zero += re[first + (k + 1) * step]; });
    x[0] = zero;
    unroll<pairs>([&](auto at) {
      constexpr int n = at + 1;
      V a = V{}, b = V{};
      unroll<count>([&](auto k) {
        constexpr int u = first + k * step;
        add_cosine<T, u * n, N>(a, re[u]);
        if constexpr (u > 0 && 2 * u < N) add_sine<T, u * n, N>(b, im[u]);
      });
      x[n] = a - b;
      x[half - n] = even ? -a - b : a + b;
    });
    if constexpr (half % 2 == 0) {
      V alone = V{};
      unroll<count>([&](auto k) {
        constexpr int u = first + k * step;
        if constexpr (2 * u < N) subtract_sine<T, u * middle, N>(alone, im[u]);
      });
      x[middle] = alone;
    }
  }

  static ALWAYS_INLINE void backward(const V* re, const V* im, V* x) {
    if constexpr (even) {
      V sums[half], differences[half], even_re[half / 2 + 1], even_im[half / 2 + 1];
      unroll<half / 2 + 1>([&](auto k) {
        even_re[k] = re[2 * k];
        if constexpr (k > 0 && 2 * k < half) even_im[k] = im[2 * k];
      });
      Dft<T, half>::backward(even_re, even_im, sums);
      gather<1, 2, (half + 1) / 2>(re, im, differences);
      unroll<half>([&](auto n) {
        x[n] = sums[n] + differences[n];
        x[n + half] = sums[n] - differences[n];
      });
    } else {
      gather<0, 1, half / 2 + 1>(re, im, x);
    }
  }
};

template <typename T>
struct Dft<T, 1> {
  static ALWAYS_INLINE void forward(Vec<T>* x, Vec<T>* re, Vec<T>*) { re[0] = x[0]; }
  static ALWAYS_INLINE void backward(const Vec<T>* re, const Vec<T>*, Vec<T>* x) { x[0] = re[0]; }
};

}  // namespace
