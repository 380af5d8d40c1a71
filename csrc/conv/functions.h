// The functions of the library for convolutions.
#pragma once

#include "few_channels.h"
#include "fourier.h"
#include "products.h"

namespace {

// Returns −1 for a length of transform that the library does not have.
#define CONV_FUNCTION(name, function)                                \
  template <typename T>                                              \
  int64_t run_##name(const void* call) {                             \
    const auto& c = *static_cast<const ConvCall<T>*>(call);          \
    if (!is_length(c.tile_h) || !is_length(c.tile_w)) return -1;     \
    function<T>(c);                                                  \
    return 0;                                                        \
  }

#define FEW_FUNCTION(name, function)                                 \
  template <typename T>                                              \
  int64_t run_##name(const void* call) {                             \
    function<T>(*static_cast<const ConvCall<T>*>(call));             \
    return 0;                                                        \
  }

// images, and the spectrum of the weight → results; the spectrum of images is left behind
template <typename T>
void convolve(const ConvCall<T>& c) {
  transform_images(c);
  multiply_forward(c);
  transform_results_back(c);
}

// gradients of results, and the spectrum of the weight → gradients of images
template <typename T>
void convolve_image_gradients(const ConvCall<T>& c) {
  multiply_image_gradients(c);
  transform_image_gradients(c);
}

// the spectra of images and of gradients of results → gradients of the weight
template <typename T>
void convolve_weight_gradients(const ConvCall<T>& c) {
  multiply_weight_gradients(c);
  transform_weight_gradients(c);
}

CONV_FUNCTION(conv_forward, convolve)
CONV_FUNCTION(conv_images, transform_images)
CONV_FUNCTION(conv_weight, transform_weight)
CONV_FUNCTION(conv_results, transform_results)
CONV_FUNCTION(conv_image_gradients, convolve_image_gradients)
CONV_FUNCTION(conv_weight_gradients, convolve_weight_gradients)
FEW_FUNCTION(conv_few_forward, few_forward)
FEW_FUNCTION(conv_few_weight_gradients, few_weight_gradients)

// Numbers in the three spectra.
#define CONV_ROOM(name, stack)                                       \
  template <typename T>                                              \
  int64_t run_##name(const void* call) {                             \
    const Geometry<T> g(*static_cast<const ConvCall<T>*>(call));     \
    return g.matrices * g.stack.matrix;                              \
  }
CONV_ROOM(conv_image_room, images)
CONV_ROOM(conv_weight_room, weight)
CONV_ROOM(conv_result_room, results)

// A number that is another one for other weights: of every 64-bit word, its place included.
template <typename T>
int64_t run_conv_digest(const void* call) {
  const auto& c = *static_cast<const ConvCall<T>*>(call);
  const int64_t bytes = c.K * c.C * c.kernel_h * c.kernel_w * int64_t(sizeof(T)), words = bytes / 8, chunk = 1 << 13;
  const int64_t chunks = (words + chunk - 1) / chunk;
  const char* from = reinterpret_cast<const char*>(c.weight);
  const auto mix = [](uint64_t h, uint64_t word) {
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
  };
  std::vector<uint64_t> found(chunks);
#pragma omp parallel for num_threads(static_cast<int>(c.threads))
  for (int64_t n = 0; n < chunks; ++n) {
    uint64_t lanes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int64_t k = n * chunk; k < std::min(words, (n + 1) * chunk); ++k) {
      uint64_t word;
      std::memcpy(&word, from + 8 * k, 8);
      lanes[k % 8] = mix(lanes[k % 8], word);
    }
    for (const uint64_t lane : lanes) found[n] = mix(found[n], lane);
  }
  uint64_t digest = 0, rest = 0;
  std::memcpy(&rest, from + 8 * words, bytes % 8);
  for (const uint64_t one : found) digest = mix(digest, one);
  return static_cast<int64_t>(mix(digest, rest));
}

// Channels in a block: by them the gradients of the weight are taken in parts.
template <typename T>
int64_t run_conv_lanes(const void*) {
  return Simd<T>::width;
}

}  // namespace
