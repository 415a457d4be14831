#include "drafting/noisy_argmax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "drafting/noise_reweighting.h"

namespace suffolk::drafting {
namespace {

// Upper bounds of the noise, by the bits of 2^53 - h for a hash h. With r = 2^53 - h, the uniform number is u = 1 - (r - 1/2) / 2^53.
// So the noise -log(-log(u)) <= -log(1 - u) = 53 log 2 - log(r - 1/2), and r - 1/2 >= r / 2 >= 2^(bits - 2).
struct Bounds {
  double of[55];
  Bounds() noexcept {
    for (int bits = 0; bits < 55; ++bits) of[bits] = (55 - bits) * std::log(2.0) + 1e-9;  // 1e-9: a margin for rounding
  }
};

}  // namespace

std::int64_t noisy_argmax(std::span<const float> logits, double temperature, std::uint64_t seed, std::int64_t position) noexcept {
  static const Bounds kBounds;
  const std::uint64_t key = noise_key(seed, position);
  const auto score = [&](std::size_t token) { return logits[token] / temperature + gumbel(noise_bits(key, token)); };
  // The likeliest token often wins, and rules out most others.
  std::size_t winner = 0;
  for (std::size_t token = 1; token < logits.size(); ++token) {
    if (logits[token] > logits[winner]) winner = token;
  }
  double best = score(winner);
  for (std::size_t token = 0; token < logits.size(); ++token) {
    const std::uint64_t bits = noise_bits(key, token);
    const double bound = logits[token] / temperature + kBounds.of[std::bit_width((std::uint64_t{1} << 53) - bits)];
    if (bound < best) continue;
    const double found = score(token);
    if (std::isnan(found)) return static_cast<std::int64_t>(token);
    if (found > best || (found == best && token < winner)) {
      best = found;
      winner = token;
    }
  }
  return static_cast<std::int64_t>(winner);
}

}  // namespace suffolk::drafting
