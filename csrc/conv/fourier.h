// A convolution by Fourier products: the transforms, forward and back. torchcaps/ops/conv/README.md derives it all.
#pragma once

#include "spectra.h"
#include "tile.h"

namespace {

// How re and im of a frequency stand in its three matrices, and what three products give.
struct ImageForm {
  template <typename V>
  static ALWAYS_INLINE void split(const V& re, const V& im, V& a, V& b, V& c) {
    a = re + im, b = re, c = im;
  }
  template <typename V>  // the gradient of images: D·W
  static ALWAYS_INLINE void join(const V& a, const V& b, const V& c, V& re, V& im) {
    re = a + b, im = a - c;
  }
};
struct WeightForm {
  template <typename V>
  static ALWAYS_INLINE void split(const V& re, const V& im, V& a, V& b, V& c) {
    a = re, b = -im - re, c = re - im;
  }
  template <typename V>  // the gradient of the weight: conj(D)·X
  static ALWAYS_INLINE void join(const V& a, const V& b, const V& c, V& re, V& im) {
    re = a - b - c, im = c - b;
  }
};
struct ResultForm {
  template <typename V>
  static ALWAYS_INLINE void split(const V& re, const V& im, V& a, V& b, V& c) {
    a = re + im, b = im, c = re;
  }
  template <typename V>  // the results: conj(W)·X
  static ALWAYS_INLINE void join(const V& a, const V& b, const V& c, V& re, V& im) {
    re = a - c, im = a + b;
  }
};

// The lanes of a tile's frequencies, matrices being `plane` numbers apart.
template <typename Form, typename T, typename Store>
ALWAYS_INLINE void write_frequencies(const TileSpectrum<T>& tile, T* to, int64_t plane, Store store) {
  tile.read(
      [&](const Vec<T>& x) {
        store(x, to);
        to += plane;
      },
      [&](const Vec<T>& re, const Vec<T>& im) {
        Vec<T> a, b, c;
        Form::split(re, im, a, b, c);
        store(a, to);
        store(b, to + plane);
        store(c, to + 2 * plane);
        to += 3 * plane;
      });
}

template <typename Form, typename T>
void write_spectrum(const TileSpectrum<T>& tile, T* to, int64_t plane, int64_t lanes, bool large) {
  if (large && lanes == Simd<T>::width && are_lines(to))
    return write_frequencies<Form>(tile, to, plane, [](const Vec<T>& v, T* at) { store_past<T>(v, at); });
  write_frequencies<Form>(tile, to, plane, [lanes](const Vec<T>& v, T* at) { store<T>(v, at, lanes); });
}

template <typename Form, typename T>
void read_spectrum(TileSpectrum<T>& tile, const T* from, int64_t plane, int64_t lanes) {
  const T scale = T(1) / T(tile.nh * tile.nw);
  tile.write(
      [&](Vec<T>& x) {
        x = scale * load(from, lanes);
        from += plane;
      },
      [&](Vec<T>& re, Vec<T>& im) {
        Form::join(load(from, lanes), load(from + plane, lanes), load(from + 2 * plane, lanes), re, im);
        re *= 2 * scale, im *= 2 * scale;
        from += 3 * plane;
      });
}

// A part of an axis: rows or columns `from` … `to` − 1 of a picture lie `offset` behind the start of a tile.
struct Part {
  int64_t from, to, offset;
  Part(int64_t origin, int64_t length, int64_t end)
      : from(std::max<int64_t>(0, origin)), to(std::max(from, std::min(origin + length, end))), offset(from - origin) {}
  int64_t count() const { return to - from; }
};

// images → spectrum [·, B·tiles, phases·C]
template <typename T>
void transform_images(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  const Maps<T> images = images_of(c);
  const int64_t pixels = g.h.pixels() * g.w.pixels(), across = g.w.pixels();
#pragma omp parallel num_threads(static_cast<int>(c.threads))
  {
    TileSpectrum<T> spectrum(c.tile_h, c.tile_w);
    Scratch<T> scratch(pixels);
    Vec<T>* tile = scratch.data();
#pragma omp for schedule(dynamic)
    for (int64_t row = 0; row < g.results.rows; ++row) {
      const int64_t image = row / g.tiles, t = row % g.tiles;
      const Part down(g.h.origin(t / g.w.tiles()), g.h.pixels(), g.h.seen());
      const Part right(g.w.origin(t % g.w.tiles()), across, g.w.seen());
      std::fill_n(tile, pixels, Vec<T>{});
      for (int64_t b = 0; b < blocks_of<T>(c.C); ++b) {
        const Channels<T> block(b, c.C);
        for (int64_t y = down.from; y < down.to; ++y)
          images.read(image, block, y, right.from, right.count(), tile + (y - down.from + down.offset) * across + right.offset);
        for (int64_t p = 0; p < g.phases; ++p) {
          spectrum.forward(tile + g.top(p) * across + g.left(p), g.h.stride * across, g.w.stride);
          write_spectrum<ImageForm>(spectrum, g.images.at(0, row) + g.place(block, p), g.images.matrix, block.lanes, g.images.is_large(g.matrices));
        }
      }
    }
  }
}

// spectrum [·, B·tiles, phases·C] → images, where tiles that overlap add up
template <typename T>
void transform_image_gradients(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  const Maps<T> images = images_of(c);
  const int64_t blocks = blocks_of<T>(c.C);
  const int64_t seen_h = g.h.seen(), seen_w = g.w.seen();
#pragma omp parallel num_threads(static_cast<int>(c.threads))
  {
    TileSpectrum<T> spectrum(c.tile_h, c.tile_w);
    Scratch<T> scratch(c.tile_h * c.tile_w), whole(c.size_h * c.size_w);
    Vec<T>*tile = scratch.data(), *picture = whole.data();
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < c.B * blocks; ++unit) {
      const int64_t image = unit / blocks;
      const Channels<T> block(unit % blocks, c.C);
      std::fill_n(picture, c.size_h * c.size_w, Vec<T>{});
      for (int64_t t = 0; t < g.tiles; ++t) {
        const int64_t top = g.h.origin(t / g.w.tiles()), left = g.w.origin(t % g.w.tiles());
        for (int64_t p = 0; p < g.phases; ++p) {
          const T* from = g.images.at(0, image * g.tiles + t) + g.place(block, p);
          read_spectrum<ImageForm>(spectrum, from, g.images.matrix, block.lanes);
          spectrum.backward(tile, c.tile_w, 1);
          for (int64_t i = 0; i < c.tile_h; ++i) {
            const int64_t y = top + g.top(p) + i * g.h.stride;
            if (y < 0 || y >= seen_h) continue;
            for (int64_t j = 0; j < c.tile_w; ++j) {
              const int64_t x = left + g.left(p) + j * g.w.stride;
              if (x >= 0 && x < seen_w) picture[y * c.size_w + x] += tile[i * c.tile_w + j];
            }
          }
        }
      }
      for (int64_t y = 0; y < c.size_h; ++y) images.write(image, block, y, 0, c.size_w, picture + y * c.size_w);
    }
  }
}

// weight [K, C, kh, kw] → spectrum [·, phases·C, K]
template <typename T>
void transform_weight(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  const int64_t taps = c.kernel_h * c.kernel_w;
#pragma omp parallel num_threads(static_cast<int>(c.threads))
  {
    TileSpectrum<T> spectrum(c.tile_h, c.tile_w);
    Scratch<T> scratch(taps), phase(c.tile_h * c.tile_w);
    Vec<T>*kernel = scratch.data(), *tile = phase.data();
#pragma omp for schedule(dynamic)
    for (int64_t channel = g.first; channel < g.end; ++channel) {
      const Channels<T> of(channel / Simd<T>::width, c.C);
      for (int64_t b = 0; b < blocks_of<T>(c.K); ++b) {
        const Channels<T> block(b, c.K);
        pack<T, 1>(c.weight + (block.first * c.C + channel) * taps, c.C * taps, 0, block.lanes, taps, kernel);
        for (int64_t p = 0; p < g.phases; ++p) {
          const int64_t top = g.top(p), left = g.left(p);
          std::fill_n(tile, c.tile_h * c.tile_w, Vec<T>{});
          for (int64_t i = 0; i < g.h.taps(top); ++i)
            for (int64_t j = 0; j < g.w.taps(left); ++j)
              tile[i * c.tile_w + j] = kernel[(top + i * c.stride_h) * c.kernel_w + left + j * c.stride_w];
          spectrum.forward(tile, c.tile_w, 1);
          const int64_t row = g.place(of, p, g.first) + channel - of.first;
          write_spectrum<WeightForm>(spectrum, g.weight.at(0, row) + block.first, g.weight.matrix, block.lanes, g.weight.is_large(g.matrices));
        }
      }
    }
  }
}

// The numbers of a tile that belong to a phase of the kernel.
template <typename T>
void read_taps(const ConvCall<T>& c, const Geometry<T>& g, int64_t phase, const Vec<T>* tile, Vec<T>* kernel) {
  const int64_t top = g.top(phase), left = g.left(phase);
  for (int64_t i = 0; i < g.h.taps(top); ++i)
    for (int64_t j = 0; j < g.w.taps(left); ++j)
      kernel[(top + i * c.stride_h) * c.kernel_w + left + j * c.stride_w] = tile[i * c.tile_w + j];
}

// spectrum [·, phases·channels, K] of some blocks of channels → weight [K, C, kh, kw]
template <typename T>
void transform_weight_gradients(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  const int64_t taps = c.kernel_h * c.kernel_w;
#pragma omp parallel num_threads(static_cast<int>(c.threads))
  {
    TileSpectrum<T> spectrum(c.tile_h, c.tile_w);
    Scratch<T> scratch(taps), phase(c.tile_h * c.tile_w);
    Vec<T>*kernel = scratch.data(), *tile = phase.data();
#pragma omp for schedule(dynamic)
    for (int64_t channel = g.first; channel < g.end; ++channel) {
      const Channels<T> of(channel / Simd<T>::width, c.C);
      for (int64_t b = 0; b < blocks_of<T>(c.K); ++b) {
        const Channels<T> block(b, c.K);
        for (int64_t p = 0; p < g.phases; ++p) {
          const int64_t row = g.place(of, p, g.first) + channel - of.first;
          read_spectrum<WeightForm>(spectrum, g.weight.at(0, row) + block.first, g.weight.matrix, block.lanes);
          spectrum.backward(tile, c.tile_w, 1);
          read_taps(c, g, p, tile, kernel);
        }
        unpack<T, 1>(kernel, c.weight + (block.first * c.C + channel) * taps, c.C * taps, 0, block.lanes, taps);
      }
    }
  }
}

// The results that a tile has: rows and columns of them.
template <typename T>
struct TileOfResults {
  const Part down, right;
  TileOfResults(const ConvCall<T>& c, const Geometry<T>& g, int64_t row)
      : down(row % g.tiles / g.w.tiles() * g.h.step(), g.h.step(), c.out_h), right(row % g.tiles % g.w.tiles() * g.w.step(), g.w.step(), c.out_w) {}
};

template <typename T>
void read_tile(const ConvCall<T>& c, const Geometry<T>& g, const Maps<T>& results, int64_t row, const Channels<T>& block, Vec<T>* tile) {
  const TileOfResults<T> part(c, g, row);
  std::fill_n(tile, c.tile_h * c.tile_w, Vec<T>{});
  for (int64_t i = 0; i < part.down.count(); ++i)
    results.read(row / g.tiles, block, part.down.from + i, part.right.from, part.right.count(), tile + i * c.tile_w);
}

// results (their gradients) → spectrum [·, B·tiles, K]
template <typename T>
void transform_results(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  const Maps<T> results = results_of(c);
#pragma omp parallel num_threads(static_cast<int>(c.threads))
  {
    TileSpectrum<T> spectrum(c.tile_h, c.tile_w);
    Scratch<T> scratch(c.tile_h * c.tile_w);
#pragma omp for schedule(dynamic)
    for (int64_t row = 0; row < g.results.rows; ++row)
      for (int64_t b = 0; b < blocks_of<T>(c.K); ++b) {
        const Channels<T> block(b, c.K);
        read_tile(c, g, results, row, block, scratch.data());
        spectrum.forward(scratch.data(), c.tile_w, 1);
        write_spectrum<ResultForm>(spectrum, g.results.at(0, row) + block.first, g.results.matrix, block.lanes, g.results.is_large(g.matrices));
      }
  }
}

// spectrum [·, B·tiles, K] → results, with the bias
template <typename T>
void transform_results_back(const ConvCall<T>& c) {
  const Geometry<T> g(c);
  const Maps<T> results = results_of(c);
#pragma omp parallel num_threads(static_cast<int>(c.threads))
  {
    TileSpectrum<T> spectrum(c.tile_h, c.tile_w);
    Scratch<T> scratch(c.tile_h * c.tile_w);
    Vec<T>* tile = scratch.data();
#pragma omp for schedule(dynamic)
    for (int64_t row = 0; row < g.results.rows; ++row) {
      const TileOfResults<T> part(c, g, row);
      for (int64_t b = 0; b < blocks_of<T>(c.K); ++b) {
        const Channels<T> block(b, c.K);
        read_spectrum<ResultForm>(spectrum, g.results.at(0, row) + block.first, g.results.matrix, block.lanes);
        spectrum.backward(tile, c.tile_w, 1);
        const Vec<T> bias = c.bias ? load(c.bias + block.first, block.lanes) : Vec<T>{};
        for (int64_t i = 0; i < part.down.count(); ++i) {
          for (int64_t j = 0; j < part.right.count(); ++j) tile[i * c.tile_w + j] += bias;
          results.write(row / g.tiles, block, part.down.from + i, part.right.from, part.right.count(), tile + i * c.tile_w);
        }
      }
    }
  }
}

}  // namespace
