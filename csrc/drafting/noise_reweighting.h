// Reweights retrieved tokens by the sampling noise of the target (the model that verifies drafts). The noise is known before the
// target samples.
//
// The target samples the token with the highest sum of log probability and Gumbel noise. The noise is a hash of seed, position and
// token. So of two tokens that followed equally often, the one with more noise is likelier. A token of probability p with noise g
// is sampled with probability exp(-(1 - p) / p * exp(-g)). But a score is only the mean of p over many texts. In one text, p is
// mostly near 0 or 1. So the formula here has fitted weights.
#pragma once

#include <cstdint>
#include <span>

#include "drafting/mix.h"
#include "drafting/tree.h"

namespace suffolk::drafting {

// The sampling settings of a request.
struct Sampling {
  std::uint64_t seed;
  double temperature;  // above 0
};

constexpr double kMeanNoise = 0.5772156649015329;  // mean of standard Gumbel noise: Euler's constant

// The noise of a token at a position is gumbel(noise_bits(noise_key(seed, position), token)). The bits are below 2^53.
constexpr std::uint64_t noise_key(std::uint64_t seed, std::int64_t position) noexcept {
  return mix(mix(seed ^ kGolden) + (static_cast<std::uint64_t>(position) + 1) * kGolden);
}
constexpr std::uint64_t noise_bits(std::uint64_t key, std::uint64_t token) noexcept { return mix((token + 1) * kGolden + key) >> 11; }
double gumbel(std::uint64_t bits) noexcept;

// Standard Gumbel noise of a token at a position. It equals the target's noise except for the rounding of logarithms.
double gumbel_noise(std::uint64_t seed, std::int64_t position, std::int64_t token) noexcept;

// Writes the scores of `tree`, given the noise of its nodes. `position` is that of the nodes of depth 1: the first one after the
// context. The scores of siblings may add up to more than their parent's. O(n). Throws kInvalidArgument if the columns do not form
// a tree, or the scores break the rules of ScoredTree. REQUIRES: scores has an entry for each node
void reweight_scores(const ScoredTree& tree, std::int64_t position, const Sampling& sampling, std::span<float> scores);

}  // namespace suffolk::drafting
