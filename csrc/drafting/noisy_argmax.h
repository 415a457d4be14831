// Samples a token of the target: the argmax of logits and seeded Gumbel noise (noise_reweighting.h).
#pragma once

#include <cstdint>
#include <span>

namespace suffolk::drafting {

// The token with the highest logit / temperature + gumbel_noise(seed, position, token). Of equal tokens, the one with the smallest
// id. A NaN counts as the highest logit.
//
// The logarithms of the noise are taken only for tokens that may win: the bits of the hash bound the noise.
// REQUIRES: temperature > 0; at least one logit
std::int64_t noisy_argmax(std::span<const float> logits, double temperature, std::uint64_t seed, std::int64_t position) noexcept;

}  // namespace suffolk::drafting
