// Vectors of the compiler's own, which it maps to what every processor of the architecture has: SSE2 or NEON.
#define SUFFOLK_TARGET
#include "kernels/elements.h"
#include "kernels/tiles.h"

namespace suffolk::kernels {
namespace {

struct Portable {
  using Four = float __attribute__((vector_size(16)));
  struct Vector {
    Four low, high;
  };
  static constexpr std::size_t kLanes = 8;
  static constexpr std::array<std::size_t, 6> kTileOutputs = {4, 4, 3, 3, 2, 2};

  static Vector read(const float* from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
  }
  static void write(float* to, const Vector& from) { std::memcpy(to, &from, sizeof from); }
  static Vector add_product(const Vector& a, const Vector& b, const Vector& sum) { return {a.low * b.low + sum.low, a.high * b.high + sum.high}; }
  static Vector load_bytes(const std::int8_t* from) {
    float wide[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) wide[i] = from[i];
    return read(wide);
  }
  static void prefetch(const std::byte* at) { __builtin_prefetch(at); }

  static constexpr std::size_t kTotals = 1;
  static void total(const float* sums, float* totals) {
    const Vector eight = read(sums);
    const Four four = eight.low + eight.high;
    *totals = (four[0] + four[2]) + (four[1] + four[3]);
  }
};

struct PortableFloat32 : Portable {
  using Value = float;
  static Vector load(const Value* from) { return read(from); }
  static float widen(Value value) { return value; }
  static void narrow(float value, Value& to) { to = value; }
};

struct PortableBFloat16 : Portable {
  using Value = BFloat16;
  static Vector load(const Value* from) {
    float wide[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) wide[i] = kernels::widen(from[i]);
    return read(wide);
  }
  static float widen(Value value) { return kernels::widen(value); }
  static void narrow(float value, Value& to) { kernels::narrow(value, to); }
};

}  // namespace

const Backend* portable_backend(Element element, bool bytes) noexcept {
  switch (element) {
    case Element::kFloat32: return backend_of<PortableFloat32>(bytes);
    case Element::kBFloat16: return backend_of<PortableBFloat16>(bytes);
    case Element::kFloat16: return nullptr;
  }
  return nullptr;
}

}  // namespace suffolk::kernels
