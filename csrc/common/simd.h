// Vectors of one instruction set, by the compilers' own extension; VECTOR_BYTES says how wide. And how images lie in them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

template <typename T>
struct Simd {
  static constexpr int width = VECTOR_BYTES / sizeof(T);
  typedef T type __attribute__((vector_size(VECTOR_BYTES), aligned(VECTOR_BYTES), may_alias));
  typedef T unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(alignof(T)), may_alias));
};
template <typename T>
using Vec = typename Simd<T>::type;

constexpr int GROUPS = 2;  // vectors per block: one broadcast weight serves two multiplications
template <typename T>
constexpr int LANES = Simd<T>::width * GROUPS;

template <typename T>
inline Vec<T> splat(T x) {
  return x - Vec<T>{};
}

// b where either is NaN: a largest number found with it need not be NaN where one of them is.
template <typename T>
inline Vec<T> larger(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}

// The lanes as unsigned integers, whose sums and shifts are defined whatever the bits are: those of a NaN too.
template <typename T>
struct Words {
  typedef std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t> Word;
  typedef Word type __attribute__((vector_size(VECTOR_BYTES), may_alias));
};

// p·2^n, for n kept in the lowest bits of `shifted`. A product, not a sum of bits, so that NaN stays NaN; 0 where x < least.
template <typename T, int mantissa, int bias>
inline Vec<T> scaled(Vec<T> p, Vec<T> shifted, Vec<T> x, T least) {
  typedef typename Words<T>::type Bits;
  Bits power = (reinterpret_cast<Bits&>(shifted) << mantissa) + (typename Words<T>::Word(bias) << mantissa);
  return x < splat<T>(least) ? Vec<T>{} : p * reinterpret_cast<Vec<T>&>(power);
}

// e^x for x ≤ 0: 2^(n + r) with a whole n, a polynomial in r, and a power of two made of its bits. NaN for NaN, 0 for −∞ and
// where the result would be below the least normal number. The coefficients for float are those of the least relative error on
// |r| ≤ ½, 7.5e-8.
inline Vec<float> exponential(Vec<float> x) {
  const float log2e = 1.44269504088896341f;
  const Vec<float> shift = splat<float>(12582912.0f);  // 1.5·2²³: adding it rounds to an integer, kept in the lowest bits
  Vec<float> shifted = x * log2e + shift;
  Vec<float> r = x * log2e - (shifted - shift);
  Vec<float> p = splat<float>(0.0013276472f);
  for (float c : {0.00967554133f, 0.0555071327f, 0.240221197f, 0.693146967f, 1.00000007f}) p = p * r + c;
  return scaled<float, 23, 127>(p, shifted, x, -87.33f);
}

inline Vec<double> exponential(Vec<double> x) {
  const Vec<double> shift = splat<double>(6755399441055744.0);  // 1.5·2⁵²
  Vec<double> shifted = x * 1.4426950408889634074 + shift, n = shifted - shift;
  Vec<double> r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  Vec<double> p = splat<double>(1.0 / 6227020800.0);
  for (double c : {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                   1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0})
    p = p * r + c;
  return scaled<double, 52, 1023>(p, shifted, x, -708.39);
}

template <typename T>
inline T horizontal_sum(const Vec<T>& v) {
  typedef T Half __attribute__((vector_size(VECTOR_BYTES / 2), may_alias));
  Half low, high;
  std::memcpy(&low, &v, sizeof low);
  std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
  low += high;
  T total = 0;
  for (int lane = 0; lane < Simd<T>::width / 2; ++lane) total += low[lane];
  return total;
}

// Transposes a square of vectors: in log2(width) rounds, pairs of rows exchange blocks of half the size.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAVE_TRANSPOSE 1
template <typename T, int step, int... e>
inline void exchange(Vec<T>& a, Vec<T>& b, std::integer_sequence<int, e...>) {
  constexpr int w = Simd<T>::width;
  Vec<T> low = __builtin_shufflevector(a, b, ((e & step) ? w + e - step : e)...);
  Vec<T> high = __builtin_shufflevector(a, b, ((e & step) ? w + e : e + step)...);
  a = low;
  b = high;
}

template <typename T, int step>
inline void transpose(Vec<T>* rows) {
  constexpr int w = Simd<T>::width;
  for (int i = 0; i < w; ++i)
    if (!(i & step)) exchange<T, step>(rows[i], rows[i + step], std::make_integer_sequence<int, w>());
  if constexpr (step > 1) transpose<T, step / 2>(rows);
}
#endif
#endif

// A vector-aligned scratch array that frees itself.
template <typename T>
class Scratch {
 public:
  explicit Scratch(int64_t vectors) : storage_(vectors * Simd<T>::width + Simd<T>::width) {
    auto address = reinterpret_cast<uintptr_t>(storage_.data());
    uintptr_t aligned = (address + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES;
    data_ = reinterpret_cast<Vec<T>*>(aligned);
  }
  Vec<T>* data() { return data_; }

 private:
  std::vector<T> storage_;
  Vec<T>* data_;
};

// x[image][row][n] of one block of images, G vectors wide → out[n][lane]; images past the end become zeros.
template <typename T, int G = GROUPS>
void pack(const T* x, int64_t image_stride, int64_t first, int64_t count, int64_t n, Vec<T>* out) {
  T* lanes = reinterpret_cast<T*>(out);
  constexpr int L = Simd<T>::width * G;
  int64_t k0 = 0;
#ifdef HAVE_TRANSPOSE
  constexpr int w = Simd<T>::width;
  if (count == L) {
    const int64_t whole = n / w * w;
    for (int g = 0; g < G; ++g)
      for (k0 = 0; k0 < whole; k0 += w) {
        Vec<T> rows[w];
        for (int lane = 0; lane < w; ++lane)
          rows[lane] = *reinterpret_cast<const typename Simd<T>::unaligned*>(x + (first + g * w + lane) * image_stride + k0);
        transpose<T, w / 2>(rows);
        for (int k = 0; k < w; ++k) out[(k0 + k) * G + g] = rows[k];
      }
  }
#endif
  if (count < L) std::fill_n(lanes, n * L, T(0));
  for (int lane = 0; lane < count; ++lane) {
    const T* source = x + (first + lane) * image_stride;
    for (int64_t k = k0; k < n; ++k) lanes[k * L + lane] = source[k];
  }
}

template <typename T, int G = GROUPS>
void unpack(const Vec<T>* in, T* x, int64_t image_stride, int64_t first, int64_t count, int64_t n) {
  const T* lanes = reinterpret_cast<const T*>(in);
  constexpr int L = Simd<T>::width * G;
  int64_t k0 = 0;
#ifdef HAVE_TRANSPOSE
  constexpr int w = Simd<T>::width;
  if (count == L)
    for (; k0 + w <= n; k0 += w)
      for (int g = 0; g < G; ++g) {
        Vec<T> rows[w];
        for (int k = 0; k < w; ++k) rows[k] = in[(k0 + k) * G + g];
        transpose<T, w / 2>(rows);
        for (int lane = 0; lane < w; ++lane)
          *reinterpret_cast<typename Simd<T>::unaligned*>(x + (first + g * w + lane) * image_stride + k0) = rows[lane];
      }
#endif
  for (int lane = 0; lane < count; ++lane) {
    T* target = x + (first + lane) * image_stride;
    for (int64_t k = k0; k < n; ++k) target[k] = lanes[k * L + lane];
  }
}

}  // namespace
