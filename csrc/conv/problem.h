// A call of the convolution, and what follows from its sizes.
//
// Letters: B images, C input channels, K output channels; an axis is height or width.
#pragma once

#include <algorithm>
#if VECTOR_BYTES == 64 && defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "../common/call.h"
#include "../common/simd.h"

// Sizes, first of the height and then of the width: image, kernel, stride, padding, result, length of a tile's transform. Which blocks
// of input channels the spectrum of the weight holds. Whether channels are the last dimension of the images and of the results.
#define CONV_NUMBERS(NUMBER)                                                                      \
  NUMBER(B) NUMBER(C) NUMBER(K) NUMBER(size_h) NUMBER(kernel_h) NUMBER(stride_h) NUMBER(padding_h) NUMBER(out_h) NUMBER(tile_h) \
  NUMBER(size_w) NUMBER(kernel_w) NUMBER(stride_w) NUMBER(padding_w) NUMBER(out_w) NUMBER(tile_w) \
  NUMBER(first_block) NUMBER(blocks) NUMBER(images_last) NUMBER(results_last) NUMBER(threads)

// Images [B, C, H, W] or [B, H, W, C], weight [K, C, kh, kw], bias [K], results [B, K, H', W'] or [B, H', W', K], and room
// for their spectra: see spectra.h.
#define CONV_TENSORS(TENSOR)                                    \
  TENSOR(images) TENSOR(weight) TENSOR(bias) TENSOR(results) \
  TENSOR(image_spectrum) TENSOR(weight_spectrum) TENSOR(result_spectrum)

#define CONV_FIELDS CONV_NUMBERS(FIELD_NAME) CONV_TENSORS(FIELD_NAME)

namespace {

constexpr int64_t LARGE = 16 << 20;  // bytes that no cache keeps until they are read again

template <typename T>
struct ConvCall {
  CONV_NUMBERS(NUMBER_MEMBER)
  CONV_TENSORS(TENSOR_MEMBER)
};

// One of the two dimensions. Stride s parts image and kernel into s phases; a phase of the kernel has `taps` numbers, and of the
// `tile` numbers of a circular correlation `step` are results.
struct Axis {
  int64_t size, kernel, stride, padding, out, tile;

  int64_t phases() const { return std::min(stride, kernel); }
  int64_t taps() const { return (kernel + stride - 1) / stride; }
  int64_t taps(int64_t phase) const { return (kernel - phase + stride - 1) / stride; }
  int64_t step() const { return tile - taps() + 1; }
  int64_t tiles() const { return (out + step() - 1) / step(); }
  int64_t pixels() const { return stride * tile; }                            // that a tile covers
  int64_t origin(int64_t t) const { return t * step() * stride - padding; }   // its first one, which may lie before the image
  int64_t seen() const { return std::min(size, (out - 1) * stride + kernel - padding); }  // pixels that any window sees
  int64_t padded() const { return (out - 1) * stride + kernel; }              // that windows see, zeros around the image included
};

template <typename T>
Axis height(const ConvCall<T>& c) {
  return {c.size_h, c.kernel_h, c.stride_h, c.padding_h, c.out_h, c.tile_h};
}
template <typename T>
Axis width(const ConvCall<T>& c) {
  return {c.size_w, c.kernel_w, c.stride_w, c.padding_w, c.out_w, c.tile_w};
}

// Channels of a block, which are the lanes of a vector; the last block may have fewer.
template <typename T>
struct Channels {
  int64_t first, lanes;
  Channels(int64_t index, int64_t channels) : first(index * Simd<T>::width), lanes(std::min<int64_t>(Simd<T>::width, channels - first)) {}
};

template <typename T>
int64_t blocks_of(int64_t channels) {
  return (channels + Simd<T>::width - 1) / Simd<T>::width;
}

template <typename T>
inline Vec<T> load(const T* from, int64_t lanes) {
  if (lanes == Simd<T>::width) return *reinterpret_cast<const typename Simd<T>::unaligned*>(from);
  Vec<T> v = Vec<T>{};
  for (int64_t n = 0; n < lanes; ++n) v[n] = from[n];
  return v;
}

template <typename T>
inline void store(const Vec<T>& v, T* to, int64_t lanes) {
  if (lanes == Simd<T>::width) {
    *reinterpret_cast<typename Simd<T>::unaligned*>(to) = v;
    return;
  }
  for (int64_t n = 0; n < lanes; ++n) to[n] = v[n];
}

// Past the caches, for what is too much for them: memory then need not be read before it is written. Whole cache lines only.
template <typename T>
inline void store_past(const Vec<T>& v, T* to) {
#if VECTOR_BYTES == 64 && defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<const __m512i&>(v));
#else
  *reinterpret_cast<Vec<T>*>(to) = v;
#endif
}

template <typename T>
inline bool are_lines(const T* to, int64_t step = 0) {
  return reinterpret_cast<uintptr_t>(to) % VECTOR_BYTES == 0 && step * sizeof(T) % VECTOR_BYTES == 0;
}

// Images or results in one of the two orders. A piece of a row of a block of channels is read into vectors, and written from them.
template <typename T>
struct Maps {
  T* data;
  int64_t channels, rows, columns, last;

  T* at(int64_t image, int64_t channel, int64_t row, int64_t column) const {
    return last ? data + ((image * rows + row) * columns + column) * channels + channel
                : data + ((image * channels + channel) * rows + row) * columns + column;
  }
  void read(int64_t image, const Channels<T>& block, int64_t row, int64_t column, int64_t n, Vec<T>* to) const {
    const T* from = at(image, block.first, row, column);
    if (!last) return pack<T, 1>(from, rows * columns, 0, block.lanes, n, to);
    for (int64_t k = 0; k < n; ++k) to[k] = load(from + k * channels, block.lanes);
  }
  void write(int64_t image, const Channels<T>& block, int64_t row, int64_t column, int64_t n, const Vec<T>* from, bool past = false) const {
    T* to = at(image, block.first, row, column);
    if (!last) return unpack<T, 1>(from, to, rows * columns, 0, block.lanes, n);
    if (past && block.lanes == Simd<T>::width && are_lines(to, channels)) {
      for (int64_t k = 0; k < n; ++k) store_past<T>(from[k], to + k * channels);
      return;
    }
    for (int64_t k = 0; k < n; ++k) store(from[k], to + k * channels, block.lanes);
  }
};

template <typename T>
Maps<T> images_of(const ConvCall<T>& c) {
  return {c.images, c.C, c.size_h, c.size_w, c.images_last};
}
template <typename T>
Maps<T> results_of(const ConvCall<T>& c) {
  return {c.results, c.K, c.out_h, c.out_w, c.results_last};
}

}  // namespace
