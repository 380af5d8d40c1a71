// Convolutions under the sanitizers: the part of sanitize.cpp for csrc/conv. It uses that file's Dice and fail.
//
// Room that no function has written holds NaN, and results and gradients are compared with a plain loop: so it is seen too if a
// function reads what is inside of a spectrum, but is not its own.
#pragma once

#include <new>
#include <numeric>

namespace {

// Begins at a cache line, as spectra must, and ends with its last number.
template <typename T>
struct AtLine {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(LINE))); }
  void deallocate(T* memory, size_t) { ::operator delete(memory, std::align_val_t(LINE)); }
  bool operator==(const AtLine&) const { return true; }
  bool operator!=(const AtLine&) const { return false; }
};

template <typename T>
struct Room : std::vector<T, AtLine<T>> {
  explicit Room(int64_t n) : std::vector<T, AtLine<T>>(n, std::numeric_limits<T>::quiet_NaN()) {}
};

// One convolution and its numbers; every function runs on it.
template <typename T>
class ConvCase {
 public:
  ConvCase(const ConvCall<T>& sizes, bool biased, Mood mood, Dice& dice)
      : sizes_(sizes), dice_(dice), mood_(mood), biased_(biased),
        images_(dice.numbers<T>(sizes.B * sizes.C * sizes.size_h * sizes.size_w, mood)),
        weight_(dice.numbers<T>(sizes.K * sizes.C * sizes.kernel_h * sizes.kernel_w, mood)), bias_(dice.numbers<T>(sizes.K, mood)),
        grad_(dice.numbers<T>(sizes.B * sizes.K * sizes.out_h * sizes.out_w, mood)) {
    if (mood == ONE) {
      const int64_t image = static_cast<int64_t>(images_.size()) / sizes.B, at = dice.up_to(static_cast<int64_t>(images_.size()) - 1);
      images_[at] = dice.not_finite<T>(), bad_ = at / image;
    }
    expect();
  }

  void run() {
    ConvCall<T> c = sizes_;
    Room<T> spectrum(K::conv_weight_room(&c));
    c.weight = weight_.data(), c.weight_spectrum = spectrum.data();
    transform(K::conv_weight, c);
    forward(spectrum);
    image_gradients(spectrum);
    weight_gradients();
    few_channels();
    digest();
  }

 private:
  using K = Kernel<T>;
  using Function = int64_t (*)(const void*);

  void transform(Function function, const ConvCall<T>& c) {
    if (function(&c) != 0) fail("a length of transform", "is not known");
  }

  void forward(Room<T>& spectrum) {
    ConvCall<T> c = sizes_;
    Room<T> of_images(K::conv_image_room(&c)), of_results(K::conv_result_room(&c)), results(grad_.size());
    c.weight_spectrum = spectrum.data(), c.image_spectrum = of_images.data(), c.result_spectrum = of_results.data();
    c.images = images_.data(), c.results = results.data(), c.bias = biased_ ? bias_.data() : nullptr;
    transform(K::conv_forward, c);
    require_results(results, "results");
  }

  void image_gradients(Room<T>& spectrum) {
    ConvCall<T> c = sizes_;
    Room<T> of_images(K::conv_image_room(&c)), of_results(K::conv_result_room(&c));
    std::vector<T> dimages(images_.size(), std::numeric_limits<T>::quiet_NaN());
    c.weight_spectrum = spectrum.data(), c.image_spectrum = of_images.data(), c.result_spectrum = of_results.data();
    c.images = dimages.data(), c.results = grad_.data();
    transform(K::conv_results, c);
    transform(K::conv_image_gradients, c);
    if (mood_ != WILD) require_equal(dimages, dimages_, "gradients of images");
  }

  // Of all blocks of input channels at once, then of some after the other.
  void weight_gradients() {
    ConvCall<T> c = sizes_;
    Room<T> of_images(K::conv_image_room(&c)), of_results(K::conv_result_room(&c));
    c.image_spectrum = of_images.data(), c.result_spectrum = of_results.data();
    c.images = images_.data(), c.results = grad_.data();
    transform(K::conv_images, c);
    transform(K::conv_results, c);
    for (const bool whole : {true, false}) {
      Room<T> dweight(weight_.size());
      c.weight = dweight.data();
      for (c.first_block = 0; c.first_block < sizes_.blocks; c.first_block += c.blocks) {
        const int64_t left = sizes_.blocks - c.first_block;
        c.blocks = whole ? left : 1 + dice_.up_to(left - 1);
        Room<T> spectrum(K::conv_weight_room(&c));
        c.weight_spectrum = spectrum.data();
        transform(K::conv_weight_gradients, c);
      }
      if (mood_ == ORDINARY) require_equal(dweight, dweight_, whole ? "gradients of the weight" : "gradients of the weight, in parts,");
    }
  }

  void few_channels() {
    ConvCall<T> c = sizes_;
    Room<T> results(grad_.size()), dweight(weight_.size()), dbias(bias_.size());
    c.images = images_.data(), c.weight = weight_.data(), c.bias = biased_ ? bias_.data() : nullptr, c.results = results.data();
    K::conv_few_forward(&c);
    require_results(results, "results of few channels");
    c.weight = dweight.data(), c.bias = biased_ ? dbias.data() : nullptr, c.results = grad_.data();
    K::conv_few_weight_gradients(&c);
    if (mood_ == ORDINARY) require_equal(dweight, dweight_, "gradients of the weight of few channels");
    if (mood_ != WILD && biased_) require_equal(dbias, dbias_, "gradients of the bias");
  }

  // Any number of threads finds the same, and one bit makes it another one.
  void digest() {
    ConvCall<T> c = sizes_;
    c.weight = weight_.data();
    const int64_t found = K::conv_digest(&c);
    c.threads = 3 - c.threads;
    if (K::conv_digest(&c) != found) fail("digest", "depends on the number of threads");
    auto* bytes = reinterpret_cast<unsigned char*>(weight_.data());
    bytes[dice_.up_to(static_cast<int64_t>(weight_.size() * sizeof(T)) - 1)] ^= 1 << dice_.up_to(7);
    if (K::conv_digest(&c) == found) fail("digest", "is the same for another weight");
  }

  void require_results(const Room<T>& results, const char* name) const {
    const int64_t n = static_cast<int64_t>(results.size()) / sizes_.B;
    if (mood_ != WILD) require_equal(results, results_, name, bad_, n);
    if (bad_ < 0 || std::isfinite(std::accumulate(&results_[bad_ * n], &results_[bad_ * n] + n, 0.0))) return;
    if (std::isfinite(std::accumulate(&results[bad_ * n], &results[bad_ * n] + n, 0.0))) fail(name, "hide what is not finite");
  }

  // The error of every number is measured by the largest one, since transforms mix them; those of one image, n each, are left out.
  template <typename Numbers>
  static void require_equal(const Numbers& x, const std::vector<double>& expected, const char* name, int64_t but = -1, int64_t n = 1) {
    double largest = 1;
    for (int64_t k = 0; k < static_cast<int64_t>(x.size()); ++k)
      if (k / n != but) largest = std::max(largest, std::abs(expected[k]));
    const double most = largest * (sizeof(T) == 4 ? 1e-3 : 1e-9);
    for (int64_t k = 0; k < static_cast<int64_t>(x.size()); ++k)
      if (k / n != but && !(std::abs(x[k] - expected[k]) <= most)) fail(name, "are wrong");  // NaN too
  }

  static int64_t place(int64_t last, int64_t channels, int64_t rows, int64_t columns, int64_t b, int64_t k, int64_t y, int64_t x) {
    return last ? ((b * rows + y) * columns + x) * channels + k : ((b * channels + k) * rows + y) * columns + x;
  }

  // The convolution as it is defined, and its gradients.
  void expect() {
    const auto& c = sizes_;
    for (int64_t b = 0; b < c.B; ++b)
      for (int64_t k = 0; k < c.K; ++k)
        for (int64_t y = 0; y < c.out_h; ++y)
          for (int64_t x = 0; x < c.out_w; ++x) {
            const int64_t at = place(c.results_last, c.K, c.out_h, c.out_w, b, k, y, x);
            results_[at] = (biased_ ? bias_[k] : 0) + expect_window(b, k, y, x, grad_[at]);
            dbias_[k] += grad_[at];
          }
  }

  // One result but for its bias; what its gradient adds to the others is added.
  double expect_window(int64_t b, int64_t k, int64_t y, int64_t x, double grad) {
    const auto& c = sizes_;
    double sum = 0;
    for (int64_t i = 0; i < c.kernel_h; ++i)
      for (int64_t j = 0; j < c.kernel_w; ++j) {
        const int64_t row = y * c.stride_h - c.padding_h + i, column = x * c.stride_w - c.padding_w + j;
        if (row < 0 || row >= c.size_h || column < 0 || column >= c.size_w) continue;
        for (int64_t channel = 0; channel < c.C; ++channel) {
          const int64_t pixel = place(c.images_last, c.C, c.size_h, c.size_w, b, channel, row, column);
          const int64_t tap = ((k * c.C + channel) * c.kernel_h + i) * c.kernel_w + j;
          const double value = images_[pixel], factor = weight_[tap];
          sum += value * factor;
          dimages_[pixel] += grad * factor;
          dweight_[tap] += grad * value;
        }
      }
    return sum;
  }

  const ConvCall<T> sizes_;
  Dice& dice_;
  const Mood mood_;
  const bool biased_;
  int64_t bad_ = -1;
  std::vector<T> images_, weight_, bias_, grad_;
  std::vector<double> results_ = std::vector<double>(grad_.size()), dimages_ = std::vector<double>(images_.size());
  std::vector<double> dweight_ = std::vector<double>(weight_.size()), dbias_ = std::vector<double>(bias_.size());
};

#define AND_NEXT(length) length,
constexpr int64_t TILES[] = {CONV_LENGTHS(AND_NEXT)};

// A tile that cannot hold a phase of the kernel gives way to the next one that can, an image without a window to one with one.
Axis axis(int64_t size, int64_t kernel, int64_t stride, int64_t padding, const int64_t* tile) {
  size = std::max(size, kernel - 2 * padding);
  Axis a{size, kernel, stride, padding, (size + 2 * padding - kernel) / stride + 1, *tile};
  while (a.taps() > a.tile) a.tile = *++tile;
  return a;
}

Axis random_axis(Dice& dice) {
  const int64_t size = 1 + dice.up_to(23), kernel = dice.size(11), stride = 1 + dice.up_to(2), padding = dice.up_to(3);
  return axis(size, kernel, stride, padding, TILES + dice.up_to(std::size(TILES) - 1));
}

struct Amounts {
  int64_t B, C, K;
  bool images_last, results_last;
};

constexpr int64_t MOST_WORK = 100000;  // products of a case, plain ones or of spectra, so that all take a minute
constexpr int64_t ANY = std::numeric_limits<int64_t>::max();

template <typename T>
void conv_case(Amounts n, const Axis& h, const Axis& w, Mood mood, Dice& dice, int64_t most = MOST_WORK) {
  const int64_t area = h.tile * w.tile * h.phases() * w.phases() * h.tiles() * w.tiles(), plain = h.out * w.out * h.kernel * w.kernel;
  while (n.C * n.K > 1 && n.B * n.C * n.K * std::max(area, plain) > most) (n.C > n.K ? n.C : n.K) /= 2;
  ConvCall<T> c{};
  c.B = n.B, c.C = n.C, c.K = n.K;
  c.size_h = h.size, c.kernel_h = h.kernel, c.stride_h = h.stride, c.padding_h = h.padding, c.out_h = h.out, c.tile_h = h.tile;
  c.size_w = w.size, c.kernel_w = w.kernel, c.stride_w = w.stride, c.padding_w = w.padding, c.out_w = w.out, c.tile_w = w.tile;
  c.images_last = n.images_last, c.results_last = n.results_last, c.threads = 1 + dice.up_to(1);
  const int64_t lanes = Kernel<T>::conv_lanes(&c);
  c.blocks = (c.C + lanes - 1) / lanes;
  about = sizeof(T) == 4 ? "a convolution of float:" : "a convolution of double:";
#define ADD_NUMBER(name) about += " " #name " " + std::to_string(c.name);
  CONV_NUMBERS(ADD_NUMBER)
  ConvCase<T>(c, dice.coin(), mood, dice).run();
  about.clear();
}

template <typename T>
void random_conv(Mood mood, Dice& dice) {
  const Axis h = random_axis(dice), w = random_axis(dice);
  const int64_t B = 1 + dice.up_to(2), C = dice.size(35), K = dice.size(35);
  const bool images_last = dice.coin(), results_last = dice.coin();
  conv_case<T>({B, C, K, images_last, results_last}, h, w, mood, dice);
}

// With the batches and orders of a number.
void conv_both(int64_t number, int64_t C, int64_t K, const Axis& h, const Axis& w, Dice& dice, int64_t most = MOST_WORK) {
  const Amounts n{1 + number % 3, C, K, number / 2 % 2 == 1, number / 4 % 2 == 1};
  conv_case<float>(n, h, w, ORDINARY, dice, most), conv_case<double>(n, h, w, ORDINARY, dice, most);
}

// Every kernel, stride and tile, for the height and for the width; then every pair of odd numbers of channels.
int64_t conv_sizes_in_turn(Dice& dice) {
  const int64_t channels[] = {1, 3, 5, 15, 16, 17, 33};
  int64_t cases = 0;
  for (int64_t kernel = 1; kernel <= 11; ++kernel)
    for (int64_t stride = 1; stride <= 3; ++stride)
      for (const int64_t& tile : TILES) {
        const Axis one = axis(1 + dice.up_to(23), kernel, stride, dice.up_to(3), &tile), other = random_axis(dice);
        if (one.tile != tile) continue;
        for (const bool turned : {false, true}) {
          conv_both(cases, channels[cases % 7], channels[cases / 7 % 7], turned ? other : one, turned ? one : other, dice);
          ++cases;
        }
      }
  for (const int64_t C : channels)
    for (const int64_t K : channels) {
      const Axis h = axis(1 + dice.up_to(4), 2, 1, 1, TILES + 2), w = axis(1 + dice.up_to(4), 3, 2, 1, TILES + 2);
      conv_both(cases++, C, K, h, w, dice, ANY);
    }
  return cases;
}

// Each of the three spectra, and the results of few channels, too large for the caches: they are written past them.
int64_t large_convs(Dice& dice) {
  const Axis tile = axis(4, 2, 1, 0, std::end(TILES) - 1), picture = axis(256, 1, 1, 0, TILES);
  conv_case<float>({81, 90, 1, false, false}, tile, tile, ORDINARY, dice, ANY);
  conv_case<float>({81, 1, 90, false, false}, tile, tile, ORDINARY, dice, ANY);
  conv_case<float>({1, 81, 90, true, true}, tile, tile, ORDINARY, dice, ANY);
  conv_case<float>({1, 1, 80, true, true}, picture, picture, ORDINARY, dice, ANY);
  return 4;
}

// Lengths of transform that there are not are refused before anything is read.
template <typename T>
int64_t unknown_lengths() {
  using K = Kernel<T>;
  for (const auto function : {K::conv_forward, K::conv_images, K::conv_weight, K::conv_results, K::conv_image_gradients,
                              K::conv_weight_gradients})
    for (const int64_t length : {-4, 0, 3, 22}) {
      ConvCall<T> down{}, across{};
      down.tile_h = across.tile_w = length, down.tile_w = across.tile_h = 4;
      if (function(&down) != -1 || function(&across) != -1) fail("an unknown length of transform", "is not refused");
    }
  return 1;
}

int64_t convs_in_turn(Dice& dice) {
  return unknown_lengths<float>() + unknown_lengths<double>() + conv_sizes_in_turn(dice) + large_convs(dice);
}

}  // namespace
