// Convolutions of images with few channels, such as grey or coloured pictures: the matrix product of all windows and the weight, where
// the windows are not copied but read from the image, one number for many output channels at a time.
#pragma once

#include "dft.h"
#include "problem.h"

namespace {

constexpr int FEW_VECTORS = 2;  // of output channels, and some numbers of the image: the sums stay in registers, of which there are 32 or 16
constexpr int FEW_NUMBERS = VECTOR_BYTES == 64 ? 12 : 6;

// An image of a call with the zeros around it, a channel after the other.
template <typename T>
class PaddedImage {
 public:
  explicit PaddedImage(const ConvCall<T>& c) : call_(c), h_(height(c)), w_(width(c)), columns(w_.padded()), rows(h_.padded()), data_(c.C * rows * columns) {}

  const T* load(int64_t image) {
    const Maps<T> images = images_of(call_);
    const int64_t step = images.last ? call_.C : 1, right = w_.seen();
    for (int64_t c = 0; c < call_.C; ++c)
      for (int64_t y = 0; y < h_.seen(); ++y) {
        T* to = data_.data() + (c * rows + y + h_.padding) * columns + w_.padding;
        const T* from = images.at(image, c, y, 0);
        for (int64_t x = 0; x < right; ++x) to[x] = from[x * step];
      }
    return data_.data();
  }
  const T* data() const { return data_.data(); }

 private:
  const ConvCall<T>& call_;
  const Axis h_, w_;

 public:
  const int64_t columns, rows;

 private:
  std::vector<T> data_;
};

// Vectors of output channels that are taken together.
template <typename T>
struct Panels {
  const int64_t vectors, count;
  explicit Panels(int64_t channels) : vectors(blocks_of<T>(channels)), count((vectors + FEW_VECTORS - 1) / FEW_VECTORS) {}
  int64_t first(int64_t panel) const { return panel * FEW_VECTORS; }
  int64_t size(int64_t panel) const { return std::min<int64_t>(FEW_VECTORS, vectors - first(panel)); }
};

// Calls f(n) with n known when compiling, for 1 ≤ n ≤ most.
template <int most, typename F>
ALWAYS_INLINE void with_count(int64_t n, F f) {
  if constexpr (most > 1) {
    if (n < most) return with_count<most - 1>(n, f);
  }
  f(std::integral_constant<int, most>{});
}

// sums of `pixels` neighbouring results: out[v·columns + p] = bias_v + Σ_t x[offset_t + p·step] w[t][v]
template <typename T, int pixels, int vectors>
void slide(const T* x, const std::vector<int64_t>& offsets, int64_t step, const Vec<T>* weight, const Vec<T>* bias, Vec<T>* out, int64_t columns) {
  Vec<T> sum[pixels * vectors];
  unroll<pixels * vectors>([&](auto n) { sum[n] = bias[n % vectors]; });
  for (const int64_t offset : offsets) {
    const T* at = x + offset;
    unroll<pixels * vectors>([&](auto n) { sum[n] += at[n / vectors * step] * weight[n % vectors]; });
    weight += vectors;
  }
  unroll<pixels * vectors>([&](auto n) { out[n % vectors * columns + n / vectors] = sum[n]; });
}

// images, weight → results
template <typename T>
void few_forward(const ConvCall<T>& c) {
  const int64_t taps = c.C * c.kernel_h * c.kernel_w;
  const Panels<T> panels(c.K);
  const Maps<T> results = results_of(c);
  const bool large = c.B * c.K * c.out_h * c.out_w * int64_t(sizeof(T)) > LARGE;
  Scratch<T> room(panels.vectors * (taps + 1));  // the weight of a panel after the other, [taps][vectors]; then the bias
  Vec<T>*weight = room.data(), *bias = weight + panels.vectors * taps;
  for (int64_t v = 0; v < panels.vectors; ++v) {
    const Channels<T> block(v, c.K);
    const int64_t panel = v / FEW_VECTORS, size = panels.size(panel);
    Scratch<T> own(taps);
    pack<T, 1>(c.weight + block.first * taps, taps, 0, block.lanes, taps, own.data());
    for (int64_t t = 0; t < taps; ++t) weight[panels.first(panel) * taps + t * size + v % FEW_VECTORS] = own.data()[t];
    bias[v] = c.bias ? load(c.bias + block.first, block.lanes) : Vec<T>{};
  }
#pragma omp parallel num_threads(static_cast<int>(c.threads))
  {
    PaddedImage<T> padded(c);
    Scratch<T> scratch(FEW_VECTORS * c.out_w);
    std::vector<int64_t> offsets;
    for (int64_t t = 0; t < taps; ++t)
      offsets.push_back((t / c.kernel_w / c.kernel_h * padded.rows + t / c.kernel_w % c.kernel_h) * padded.columns + t % c.kernel_w);
#pragma omp for schedule(dynamic)
    for (int64_t unit = 0; unit < c.B * panels.count; ++unit) {
      const int64_t image = unit / panels.count, panel = unit % panels.count, first = panels.first(panel);
      const T* x = padded.load(image);
      with_count<FEW_VECTORS>(panels.size(panel), [&](auto vectors) {
        const int64_t pieces = (c.out_w + FEW_NUMBERS - 1) / FEW_NUMBERS;
        for (int64_t i = 0; i < c.out_h; ++i) {
          for (int64_t n = 0; n < pieces; ++n) {
            const int64_t from = c.out_w * n / pieces, to = c.out_w * (n + 1) / pieces;  // of nearly equal size
            with_count<FEW_NUMBERS>(to - from, [&](auto pixels) {
              slide<T, pixels, vectors>(x + i * c.stride_h * padded.columns + from * c.stride_w, offsets, c.stride_w,
                                        weight + first * taps, bias + first, scratch.data() + from, c.out_w);
            });
          }
          for (int64_t v = 0; v < vectors; ++v)
            results.write(image, Channels<T>(first + v, c.K), i, 0, c.out_w, scratch.data() + v * c.out_w, large);
        }
      });
    }
  }
}

// The numbers of a call that the sums of its windows need.
struct Window {
  int64_t rows, columns, row, step;  // results, and distances of what they see first: down, and to the right
};

// total[t][v] += Σ_ij x[i·row + j·step + t] g[i, j][v], for neighbouring taps t
template <typename T, int taps, int vectors>
void correlate(const T* x, const Window& w, const Vec<T>* grad, Vec<T>* total) {
  Vec<T> sum[taps * vectors];
  unroll<taps * vectors>([&](auto n) { sum[n] = Vec<T>{}; });
  for (int64_t i = 0; i < w.rows; ++i) {
    const T* at = x + i * w.row;
    for (int64_t j = 0; j < w.columns; ++j, at += w.step, grad += vectors)
      unroll<taps * vectors>([&](auto n) { sum[n] += at[n / vectors] * grad[n % vectors]; });
  }
  unroll<taps * vectors>([&](auto n) { total[n] += sum[n]; });
}

template <typename T>
int64_t rows_at_once(const ConvCall<T>& c) {
  return std::clamp<int64_t>((16 << 10) / (c.out_w * FEW_VECTORS * VECTOR_BYTES), 1, c.out_h);
}

// Gradients of results of a panel of output channels and some rows, [rows · columns][vectors]; their sum is added to `bias`.
template <typename T, int vectors>
void read_gradients(const ConvCall<T>& c, int64_t image, int64_t first, int64_t top, int64_t rows, Vec<T>* to, Vec<T>* piece, Vec<T>* bias) {
  const Maps<T> results = results_of(c);
  for (int64_t v = 0; v < vectors; ++v)
    for (int64_t i = 0; i < rows; ++i) {
      results.read(image, Channels<T>(first + v, c.K), top + i, 0, c.out_w, piece);
      Vec<T> sum = Vec<T>{};
      for (int64_t j = 0; j < c.out_w; ++j) {
        to[(i * c.out_w + j) * vectors + v] = piece[j];
        sum += piece[j];
      }
      bias[v] += sum;
    }
}

// One image's part of the gradients of weight and bias, [taps + 1][vectors] of a panel of output channels. So many rows of gradients are
// taken at a time that they stay in the first cache until all taps have seen them.
template <typename T, int vectors>
void add_image(const ConvCall<T>& c, const PaddedImage<T>& padded, int64_t image, int64_t first, Vec<T>* scratch, Vec<T>* total) {
  const int64_t lines = c.C * c.kernel_h, pieces = (c.kernel_w + FEW_NUMBERS - 1) / FEW_NUMBERS, at_once = rows_at_once(c);
  Vec<T>*piece = scratch, *grad = scratch + c.out_w;
  for (int64_t top = 0; top < c.out_h; top += at_once) {
    const Window window{std::min(at_once, c.out_h - top), c.out_w, c.stride_h * padded.columns, c.stride_w};
    read_gradients<T, vectors>(c, image, first, top, window.rows, grad, piece, total + lines * c.kernel_w * vectors);
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t n = 0; n < pieces; ++n) {
        const int64_t from = c.kernel_w * n / pieces, to = c.kernel_w * (n + 1) / pieces;
        const int64_t row = line / c.kernel_h * padded.rows + line % c.kernel_h + top * c.stride_h;
        with_count<FEW_NUMBERS>(to - from, [&](auto count) {
          correlate<T, count, vectors>(padded.data() + row * padded.columns + from, window, grad, total + (line * c.kernel_w + from) * vectors);
        });
      }
  }
}

// images, gradients of results → gradients of weight and bias. Of some images each the sums are kept apart, and added in their order.
template <typename T>
void few_weight_gradients(const ConvCall<T>& c) {
  const int64_t taps = c.C * c.kernel_h * c.kernel_w, some = taps + 1;  // the bias behind the taps
  const Panels<T> panels(c.K);
  const int64_t groups = std::min(c.B, 4 * c.threads);
  Scratch<T> room(groups * panels.vectors * some);
#pragma omp parallel num_threads(static_cast<int>(c.threads))
  {
    PaddedImage<T> padded(c);
    Scratch<T> scratch((FEW_VECTORS * rows_at_once(c) + 1) * c.out_w);
#pragma omp for schedule(dynamic)
    for (int64_t group = 0; group < groups; ++group) {
      Vec<T>* totals = room.data() + group * panels.vectors * some;
      std::fill_n(totals, panels.vectors * some, Vec<T>{});
      for (int64_t image = c.B * group / groups; image < c.B * (group + 1) / groups; ++image) {
        padded.load(image);
        for (int64_t panel = 0; panel < panels.count; ++panel)
          with_count<FEW_VECTORS>(panels.size(panel), [&](auto vectors) {
            add_image<T, vectors>(c, padded, image, panels.first(panel), scratch.data(), totals + panels.first(panel) * some);
          });
      }
    }
  }
  Scratch<T> own(some);
  for (int64_t v = 0; v < panels.vectors; ++v) {
    const Channels<T> block(v, c.K);
    const int64_t panel = v / FEW_VECTORS, size = panels.size(panel);
    std::fill_n(own.data(), some, Vec<T>{});
    for (int64_t group = 0; group < groups; ++group) {
      const Vec<T>* total = room.data() + (group * panels.vectors + panels.first(panel)) * some + v % FEW_VECTORS;
      for (int64_t t = 0; t < some; ++t) own.data()[t] += total[t * size];
    }
    unpack<T, 1>(own.data(), c.weight + block.first * taps, taps, 0, block.lanes, taps);
    if (c.bias) store(own.data()[taps], c.bias + block.first, block.lanes);
  }
}

}  // namespace
