// The linear kernel against sums in fp64, and against itself: the same bits for a row whatever stands around it and however
// many threads run. Without Python, so that sanitizers see every access. Exit code 0: all agree.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/elements.h"
#include "kernels/processor.h"
#include "kernels/skinny_gemm.h"
#include "kernels/workers.h"

namespace {

using namespace suffolk::kernels;

int failures = 0;

void expect(bool condition, const char* what, std::size_t rows = 0, std::size_t inputs = 0, std::size_t outputs = 0) {
  if (condition) return;
  ++failures;
  std::printf("FAILED: %s, %zu rows of %zu inputs, %zu outputs\n", what, rows, inputs, outputs);
}

// fp16 in software, for finite numbers that it can hold: what the processor's own conversion is compared with.
float widen_half(Float16 value) {
  const int exponent = (value.bits >> 10) & 31;
  const float fraction = static_cast<float>(value.bits & 1023) / 1024.0F;
  const float size = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0F + fraction, exponent - 15);
  return (value.bits & 0x8000) != 0 ? -size : size;
}

Float16 narrow_half(float value) {
  const float size = std::abs(value);
  const int exponent = size == 0 ? -14 : std::max(-14, static_cast<int>(std::floor(std::log2(size))));
  const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // carries into the exponent
  return {static_cast<std::uint16_t>((value < 0 ? 0x8000U : 0U) + static_cast<unsigned>(exponent + 14) * 1024U + units)};
}

template <class T>
struct Type;
template <>
struct Type<float> {
  static constexpr Element kElement = Element::kFloat32;
  static constexpr double kRounding = 0x1p-24;
};
template <>
struct Type<BFloat16> {
  static constexpr Element kElement = Element::kBFloat16;
  static constexpr double kRounding = 0x1p-8;
};
template <>
struct Type<Float16> {
  static constexpr Element kElement = Element::kFloat16;
  static constexpr double kRounding = 0x1p-11;
};

double value_of(float value) { return value; }
double value_of(std::int8_t value) { return value; }
double value_of(BFloat16 value) { return widen(value); }
double value_of(Float16 value) { return widen_half(value); }
void set(float& to, float value) { to = value; }
void set(std::int8_t& to, float value) { to = static_cast<std::int8_t>(std::clamp(value * 64, -128.0F, 127.0F)); }
void set(BFloat16& to, float value) { narrow(value, to); }
void set(Float16& to, float value) { to = narrow_half(value); }

// Numbers that were drawn once, from a random place on: to draw them takes longer than to multiply. Their count is prime, so that
// rows differ.
template <class T>
std::vector<T> random_numbers(std::size_t count, std::mt19937& random) {
  static const std::vector<T> drawn = [] {
    std::mt19937 source(3);
    std::normal_distribution<float> normal;
    std::vector<T> numbers(10'007);
    for (T& number : numbers) set(number, normal(source));
    return numbers;
  }();
  std::vector<T> numbers(count);
  std::size_t at = random() % drawn.size();
  for (T& number : numbers) {
    number = drawn[at];
    at = at + 1 == drawn.size() ? 0 : at + 1;
  }
  return numbers;
}

// Rows of one type, weights of the same or bytes with scales.
template <class T, class W = T>
struct Case {
  static constexpr bool kBytes = std::is_same_v<W, std::int8_t>;
  std::size_t rows, inputs, outputs, stride;
  std::vector<T> x;
  std::vector<W> w;
  std::vector<T> bias;
  std::vector<float> scales;
  bool biased;

  Case(std::size_t m, std::size_t k, std::size_t n, bool with_bias, std::mt19937& random)
      : rows(m), inputs(k), outputs(n), stride(k + random() % 3), x(random_numbers<T>(m * stride, random)), w(random_numbers<W>(n * k, random)),
        bias(random_numbers<T>(n, random)), scales(random_numbers<float>(n, random)), biased(with_bias) {}

  double weight(std::size_t n, std::size_t k) const { return value_of(w[n * inputs + k]) * (kBytes ? static_cast<double>(scales[n]) : 1.0); }

  SkinnyGemm product(std::size_t first, std::size_t count, T* out) const {
    return {.element = Type<T>::kElement, .rows = x.data() + first * stride, .row_stride = stride, .weights = w.data(),
            .scales = kBytes ? scales.data() : nullptr, .bias = biased ? bias.data() : nullptr, .out = out, .row_count = count, .inputs = inputs, .outputs = outputs};
  }

  std::vector<T> result(std::size_t first, std::size_t count, unsigned threads) const {
    std::vector<T> out(count * outputs);
    skinny_gemm(product(first, count, out.data()), threads);
    return out;
  }
};

template <class T>
bool same_bits(const T* a, const T* b, std::size_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof(T)) == 0;
}

struct Sum {
  double value, bound;  // how far a result may be away
};

template <class T, class W>
std::vector<Sum> exact_sums(const Case<T, W>& given) {
  std::vector<Sum> sums;
  std::vector<double> row(given.inputs), weights;  // widened once, because software's fp16 is slow
  for (std::size_t n = 0; n < given.outputs; ++n) {
    for (std::size_t k = 0; k < given.inputs; ++k) weights.push_back(given.weight(n, k));
  }
  for (std::size_t m = 0; m < given.rows; ++m) {
    for (std::size_t k = 0; k < given.inputs; ++k) row[k] = value_of(given.x[m * given.stride + k]);
    for (std::size_t n = 0; n < given.outputs; ++n) {
      double sum = given.biased ? value_of(given.bias[n]) : 0, size = std::abs(sum);
      for (std::size_t k = 0; k < given.inputs; ++k) {
        const double product = row[k] * weights[n * given.inputs + k];
        sum += product;
        size += std::abs(product);
      }
      // Each product goes through a rounding of its own, at most inputs / 8 + 1 in its partial sum, 3 in the tree, 1 with the scale
      // and 1 with the bias.
      const double bound = size * 0x1p-24 * (static_cast<double>(given.inputs) / 8 + 8) + std::abs(sum) * Type<T>::kRounding + 0x1p-24;
      sums.push_back({sum, bound * 1.001});
    }
  }
  return sums;
}

template <class T, class W>
void check_sums(const Case<T, W>& given, const std::vector<Sum>& sums, const std::vector<T>& found) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    expect(std::abs(value_of(found[i]) - sums[i].value) <= sums[i].bound, "a sum is off", given.rows, given.inputs, given.outputs);
  }
}

template <class T, class W = T>
void check_case(std::size_t m, std::size_t k, std::size_t n, std::mt19937& random) {
  const Case<T, W> given(m, k, n, random() % 2 == 0, random);
  const std::vector<T> whole = given.result(0, m, 1);
  const std::vector<Sum> sums = exact_sums(given);
  check_sums(given, sums, whole);
  for (const unsigned threads : {2U, 3U, 8U}) {
    expect(same_bits(given.result(0, m, threads).data(), whole.data(), whole.size()), "threads change the bits", m, k, n);
  }
  for (int i = 0; i < 4 && m > 0; ++i) {  // any rows of them alone
    const std::size_t first = random() % m, count = 1 + random() % (m - first);
    expect(same_bits(given.result(first, count, 2).data(), whole.data() + first * n, count * n), "other rows change the bits", m, k, n);
  }
  std::vector<T> out(whole.size());  // those that are not chosen are right as well
  constexpr Element kElement = Type<T>::kElement;
  constexpr bool kBytes = Case<T, W>::kBytes;
  for (const Backend* backend : {avx512_pairs_backend(kElement, kBytes, k), avx512_backend(kElement, kBytes), avx2_backend(kElement, kBytes), portable_backend(kElement, kBytes)}) {
    if (backend == nullptr || m > backend->most_rows(k)) continue;
    std::vector<float> packed(backend->packed_size(m, k));
    backend->pack(given.product(0, m, out.data()), packed.data());
    backend->multiply(given.product(0, m, out.data()), packed.data(), 0, n);
    check_sums(given, sums, out);
  }
}

template <class T>
void check_type() {
  if (!supports(Type<T>::kElement)) return;
  std::mt19937 random(7);
  for (const std::size_t m : {0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 31, 64, 65, 130}) {
    for (const std::size_t k : {1, 7, 8, 9, 64, 100}) {
      for (const std::size_t n : {1, 2, 12, 13, 50}) {
        check_case<T>(m, k, n, random);
        check_case<T, std::int8_t>(m, k, n, random);
      }
    }
  }
  check_case<T>(3, 0, 5, random);
  check_case<T>(3, 5, 0, random);
  for (const std::size_t m : {1, 2, 5, 9, 64}) {  // several blocks, pieces and threads
    check_case<T>(m, 1003, 150, random);
    check_case<T, std::int8_t>(m, 1003, 150, random);
  }
  for (const std::size_t m : {1, 15, 16, 17, 33, 64, 70}) {  // whole tiles, one or several, and panels of one tile and of two
    for (const std::size_t k : {32, 320, 1024}) {
      for (const std::size_t n : {16, 32, 48, 208}) check_case<T>(m, k, n, random);
      check_case<T, std::int8_t>(m, k, 48, random);
    }
  }
}

template <class T>
void check_special(std::size_t inputs, std::size_t outputs) {
  if (!supports(Type<T>::kElement)) return;
  std::mt19937 random(11);
  Case<T> given(5, inputs, outputs, false, random);
  const std::vector<T> plain = given.result(0, 5, 1);
  const std::uint32_t infinite = std::is_same_v<T, Float16> ? 0x7c00 : std::is_same_v<T, BFloat16> ? 0x7f80 : 0x7f800000;
  std::memcpy(&given.x[2 * given.stride + inputs - 1], &infinite, sizeof(T));
  const std::uint32_t nan = infinite + (infinite >> 4 & ~infinite) + 1;
  std::memcpy(&given.x[4 * given.stride], &nan, sizeof(T));
  const std::vector<T> found = given.result(0, 5, 1);
  expect(same_bits(found.data(), plain.data(), 2 * outputs), "a NaN in one row reached another");
  for (std::size_t n = 0; n < outputs; ++n) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &found[2 * outputs + n], sizeof(T));
    const std::uint32_t sign = std::uint32_t{1} << (8 * sizeof(T) - 1);
    expect((bits & ~sign) == infinite, "an infinity is lost");
    bits = 0;
    std::memcpy(&bits, &found[4 * outputs + n], sizeof(T));
    expect((bits & ~sign) > infinite, "a NaN is lost");
  }
}

void check_rounding() {
  const auto rounded = [](float value) {
    BFloat16 to{};
    narrow(value, to);
    return widen(to);
  };
  expect(rounded(1.0F + 0x1p-8F) == 1.0F && rounded(1.0F + 3 * 0x1p-8F) == 1.0F + 0x1p-6F, "ties must round to even");
  expect(std::isinf(rounded(std::numeric_limits<float>::max())), "what bf16 cannot hold is infinite");
  expect(std::isnan(rounded(std::numeric_limits<float>::signaling_NaN())), "a NaN stays one");
}

void check_callers() {
  std::mt19937 random(13);
  const Case<float> given(9, 300, 200, true, random);
  const std::vector<float> whole = given.result(0, 9, 1);
  std::vector<std::thread> callers;
  std::vector<char> same(4);
  for (std::size_t i = 0; i < same.size(); ++i) {
    callers.emplace_back([&, i] {
      same[i] = 1;
      for (int round = 0; round < 20; ++round) {
        if (!same_bits(given.result(0, 9, 3).data(), whole.data(), whole.size())) same[i] = 0;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  expect(std::count(same.begin(), same.end(), 1) == 4, "callers disturb each other");
}

// The threads of the parent do not exist in a child: it once would have waited for them for ever.
void check_fork() {
  std::mt19937 random(17);
  const Case<float> given(9, 300, 200, true, random);
  const std::vector<float> whole = given.result(0, 9, 4);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(same_bits(given.result(0, 9, 4).data(), whole.data(), whole.size()) ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child must compute the same");
}

// A compiler's library that knows no processor once left only the slowest kernels.
void check_processor() {
#if defined(__x86_64__)
  std::ifstream facts("/proc/cpuinfo");
  std::string flags;
  while (std::getline(facts, flags) && !flags.starts_with("flags")) continue;
  const auto shown = [&flags](const char* name) { return (flags + " ").find(" " + std::string(name) + " ") != std::string::npos; };
  const bool avx2 = shown("avx2") && shown("fma") && shown("f16c"), avx512 = avx2 && shown("avx512f");
  const bool avx512_bf16 = avx512 && shown("avx512bw") && shown("avx512_bf16");
  expect(processor().avx2 == avx2, "Linux must show AVX2, FMA and F16C too");
  expect(processor().avx512 == avx512, "Linux must show AVX-512 too");
  expect(processor().avx512_bf16 == avx512_bf16, "Linux must show AVX-512 for bf16 too");
  expect(processor().amx == (avx512_bf16 && shown("amx_tile") && shown("amx_bf16")), "Linux must show AMX too");
#else
  expect(!processor().avx2 && !processor().avx512 && !processor().avx512_bf16 && !processor().amx, "only x86-64 has these");
#endif
}

void check_share() {
  std::vector<std::atomic<int>> calls(1000);
  share(calls.size(), 5, [&calls](std::size_t i) { ++calls[i]; });
  expect(std::all_of(calls.begin(), calls.end(), [](const auto& count) { return count == 1; }), "each piece is done once");
  share(0, 5, [](std::size_t) { expect(false, "there is no piece"); });
}

}  // namespace

int main() {
  check_processor();
  check_rounding();
  check_type<float>();
  check_type<BFloat16>();
  check_type<Float16>();
  check_special<float>(21, 14);
  check_special<BFloat16>(21, 14);
  check_special<BFloat16>(64, 32);
  check_special<Float16>(21, 14);
  check_share();
  check_callers();
  check_fork();
  if (failures == 0) std::puts("skinny_gemm_test: all agree");
  return failures == 0 ? 0 : 1;
}
