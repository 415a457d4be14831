// Generic vectors, which the compiler maps to SSE2 or NEON: every processor of the architecture has them.
#define SUFFOLK_TARGET
#include "kernels/attention_tiles.h"
#include "kernels/tiles.h"

namespace suffolk::kernels {
namespace {

struct Portable : Scalars {
  static constexpr const char* kName = "portable";
  using Four = float __attribute__((vector_size(16)));
  struct Vector {
    Four low, high;
  };
  static constexpr std::size_t kLanes = 8;
  static constexpr std::array<std::size_t, 6> kTileOutputs = {4, 4, 3, 3, 2, 2};
  static constexpr std::size_t kScoreRows = 2;

  static Vector read(const float* from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
  }
  static void write(float* to, const Vector& from) { std::memcpy(to, &from, sizeof from); }
  static Vector spread(float value) { return {Four{} + value, Four{} + value}; }
  static Vector add_product(const Vector& a, const Vector& b, const Vector& sum) { return {a.low * b.low + sum.low, a.high * b.high + sum.high}; }
  static Vector load(const float* from) { return read(from); }
  template <class T>  // BFloat16, std::int8_t
  static Vector load(const T* from) {
    float wide[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) wide[i] = widen(from[i]);
    return read(wide);
  }
  using Scalars::widen;
  static float widen(std::int8_t value) { return value; }
  static void prefetch(const std::byte* at) { __builtin_prefetch(at); }

  static constexpr std::size_t kTotals = 1;
  static void total(const float* sums, float* totals) {
    const Vector eight = read(sums);
    const Four four = eight.low + eight.high;
    *totals = (four[0] + four[2]) + (four[1] + four[3]);
  }
};

}  // namespace

const Backend* portable_backend(Element element, bool bytes) noexcept { return backend_of<Portable>(element, bytes); }

const AttentionBackend* portable_attention(Element element) noexcept { return attention_of<Portable>(element); }

}  // namespace suffolk::kernels
