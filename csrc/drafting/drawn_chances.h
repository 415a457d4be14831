// What the noise that the target will draw with says about retrieved tokens.
//
// The target takes the token with the highest log probability plus Gumbel noise, and the noise is a hash of seed, position and token:
// known before the draw. So of two tokens that followed equally often, that with more noise is the likelier one. Were the target's own
// probability p of a token known, noise g would make it exp(-(1 - p) / p * exp(-g)). It is not: an average over texts stands for it, and
// in most texts the target is nearly sure of a token or of another. What is left is fitted.
#pragma once

#include <cstdint>
#include <span>

#include "drafting/tree.h"

namespace suffolk::drafting {

// How a request's target draws.
struct Draws {
  std::uint64_t seed;
  double temperature;  // above 0
};

constexpr double kMeanNoise = 0.5772156649015329;  // of standard Gumbel noise: Euler's constant

// Standard Gumbel noise of a token at a position: that of serving/decoding/keyed_noise.py, to the last rounding of its logarithms.
double gumbel_noise(std::uint64_t seed, std::int64_t position, std::int64_t token) noexcept;

// Writes the scores of `tree` once the noise of its nodes is known, `position` being that of the children of the context's last token.
// Siblings may add up to more than their parent: one of them at most is drawn, but which is not known. O(n), two logarithms a node
// Throws kInvalidArgument if columns are no tree, or scores not as ScoredTree says.
// REQUIRES: scores has an entry a node
void draw_scores(const ScoredTree& tree, std::int64_t position, const Draws& draws, std::span<float> scores);

}  // namespace suffolk::drafting
