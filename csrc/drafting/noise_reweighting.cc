#include "drafting/noise_reweighting.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace suffolk::drafting {
namespace {

constexpr double kUnit = 0x1p-53;

// Fitted by research/fit_noise.py to answers sampled at temperature 0.7. Temperature 1 gives similar values.
constexpr double kConstant = -0.012, kOdds = 1.057, kNoise = 0.270, kNoiseOdds = -0.058;
constexpr double kLeast = 1e-6;                // probabilities are cut to kLeast..1 - kLeast
constexpr double kWarmest = 1, kSurest = 4.5;  // upper bounds of temperature and log-odds: the largest of the fitted data

// The acceptance probability of a token, given its noise.
double reweighted(double chance, double noise, double temperature) {
  const double known = std::clamp(chance, kLeast, 1 - kLeast), odds = std::log(known / (1 - known));
  const double moved = std::min(temperature, kWarmest) * (noise - kMeanNoise);
  return 1 / (1 + std::exp(-(kConstant + kOdds * odds + moved * (kNoise + kNoiseOdds * std::min(odds, kSurest)))));
}

}  // namespace

double gumbel(std::uint64_t bits) noexcept { return -std::log(-std::log((static_cast<double>(bits) + 0.5) * kUnit)); }

double gumbel_noise(std::uint64_t seed, std::int64_t position, std::int64_t token) noexcept {
  return gumbel(noise_bits(noise_key(seed, position), static_cast<std::uint64_t>(token)));
}

void reweight_scores(const ScoredTree& tree, std::int64_t position, const Sampling& sampling, std::span<float> scores) {
  require_scored(tree);
  const std::size_t size = tree.tokens.size();
  std::vector<std::int32_t> depths(size);
  find_depths(tree.parents, depths);
  std::vector<double> values(size);
  for (std::size_t node = 0; node < size; ++node) {
    const bool first = tree.parents[node] < 0;
    const auto parent = static_cast<std::size_t>(tree.parents[node]);
    const double above = first ? 1.0 : tree.scores[parent], chance = above > 0 ? tree.scores[node] / above : 0.0;
    // Unsigned: any position is allowed, and may wrap.
    const auto at = static_cast<std::int64_t>(static_cast<std::uint64_t>(position) + static_cast<std::uint64_t>(depths[node] - 1));
    const double noise = gumbel_noise(sampling.seed, at, tree.tokens[node]);
    values[node] = reweighted(chance, noise, sampling.temperature) * (first ? 1.0 : values[parent]);
    scores[node] = static_cast<float>(values[node]);
  }
}

}  // namespace suffolk::drafting
