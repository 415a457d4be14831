// Reweights retrieved tokens by the sampling noise of the target, which is known before it samples.
//
// The target takes the token with the highest log probability plus Gumbel noise. The noise is a hash of seed, position and token.
// So of two tokens that followed equally often, the one with more noise is the likelier. If the target gave a token probability p,
// noise g would make that exp(-(1 - p) / p * exp(-g)). Only the mean of p over texts is known, and in most texts p is near 0 or 1.
// The weights below are therefore fitted.
#pragma once

#include <cstdint>
#include <span>

#include "drafting/tree.h"

namespace suffolk::drafting {

// The sampling settings of a request.
struct Sampling {
  std::uint64_t seed;
  double temperature;  // above 0
};

constexpr double kMeanNoise = 0.5772156649015329;  // of standard Gumbel noise: Euler's constant

// Standard Gumbel noise of a token at a position; equals the target's noise but for the rounding of its logarithms.
double gumbel_noise(std::uint64_t seed, std::int64_t position, std::int64_t token) noexcept;

// Writes the scores of `tree`, given the noise of its nodes. `position` is that of the children of the context's last token.
// The scores of siblings may add up to more than their parent's: which of them is sampled is not known.
// O(n), two logarithms a node. Throws kInvalidArgument if the columns are no tree, or the scores break the rules of ScoredTree.
// REQUIRES: scores has an entry a node
void reweight_scores(const ScoredTree& tree, std::int64_t position, const Sampling& sampling, std::span<float> scores);

}  // namespace suffolk::drafting
