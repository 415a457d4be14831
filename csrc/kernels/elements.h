// The 16-bit floating-point numbers of models, as they lie in memory.
#pragma once

#include <bit>
#include <cstdint>

namespace suffolk::kernels {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};
static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

inline float widen(BFloat16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

// Rounds to the nearest, ties to even. A NaN stays a NaN.
inline void narrow(float value, BFloat16& to) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  to.bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace suffolk::kernels
