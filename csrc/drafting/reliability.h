// A reliability diagram that is updated online: predicted probabilities against observed frequencies.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace suffolk::drafting {

// Sums of predictions and outcomes in ten bins of equal width over 0..1. Each call of `add` first multiplies all sums by `decay`.
// Not thread-safe.
class Reliability {
 public:
  static constexpr std::size_t kBins = 10;
  // Rows: the sum of predictions, the sum of outcomes, and the number of predictions, by bin.
  using Sums = std::array<std::array<double, kBins>, 3>;

  explicit Reliability(double decay) : decay_(decay) {}

  // Adds predictions in 0..1. `taken`: 1 for each prediction that came true, else 0. REQUIRES: both have one length
  template <typename Number>
  void add(std::span<const Number> predicted, std::span<const std::uint8_t> taken) {
    for (auto& row : sums) {
      for (double& sum : row) sum *= decay_;
    }
    for (std::size_t at = 0; at < predicted.size(); ++at) {
      const auto bin = std::min(static_cast<std::size_t>(predicted[at] * Number{kBins}), kBins - 1);
      sums[0][bin] += predicted[at];
      sums[1][bin] += taken[at];
      sums[2][bin] += 1;
    }
  }

  Sums sums{};

 private:
  double decay_;
};

}  // namespace suffolk::drafting
