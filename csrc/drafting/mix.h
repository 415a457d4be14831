// The hash function of the seeded noise (noise_reweighting.h) and of the keys of next_token_table.h.
#pragma once

#include <cstdint>

namespace suffolk::drafting {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014, section 5; constants of Stafford's variant 13).
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
  value = (value ^ value >> 27) * 0x94D049BB133111EB;
  return value ^ value >> 31;
}

}  // namespace suffolk::drafting
