// A table of likely next tokens: drafts from the distributions of earlier passes.
//
// In every pass the target (the model that verifies drafts) computes the distribution of the token after each position. It samples
// one token and discards the rest. Token Recycling (Luo et al. 2024, arXiv 2408.08696, section 3) stores the most likely tokens
// after each token, and drafts trees from them. Here a key is the last 1 to kOrder tokens of the text, called an "end". A draft
// uses the longest stored end. With seeded sampling, the sampling noise is known in advance, and reweights the candidates
// (noise_reweighting.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "drafting/noise_reweighting.h"

namespace suffolk::drafting {

// Nodes by falling score, parents first. A score is the estimated probability that the node's whole path is accepted.
struct NextTokenTree {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
};

// A table from ends to the target's latest distribution after them. Four-way associative: a new end replaces the least recently
// used end of its bucket. Not thread-safe.
class NextTokenTable {
 public:
  static constexpr std::size_t kWidth = 8;  // candidates stored for an end
  static constexpr std::size_t kOrder = 4;  // tokens of the longest end

  // Allocates the table. `ends`: the capacity, 64..2^24, rounded up to a power of two; an end takes 80 bytes. Throws
  // kInvalidArgument for another number, and kResourceExhausted if there is not enough memory.
  explicit NextTokenTable(std::size_t ends);

  // Stores the distributions from which the last `rows` entries of `tokens` were sampled. Row j belongs to
  // tokens[size - rows + j]. It has the kWidth most likely `candidates` (ids, the most likely first) with their
  // `log_probabilities`. A log probability that is NaN or above 0 counts as the smallest. O(rows). Throws kInvalidArgument and
  // stores nothing if the two arrays do not have the same whole number of rows. The same happens if the rows are as many as the
  // tokens or more, or if a candidate is negative.
  void learn(std::span<const std::int32_t> tokens, std::span<const std::int32_t> candidates, std::span<const float> log_probabilities);

  // The `max_nodes` most likely continuations of `tokens`, up to `max_depth`; only the last kOrder tokens are read. `position`: the
  // position of the next token. `sampling`: the target's settings; none for greedy decoding. O(n log n) for n nodes.
  // Throws kInvalidArgument if max_nodes is 2^31 or more.
  NextTokenTree draft(std::span<const std::int32_t> tokens, std::int64_t position, std::size_t max_depth, std::size_t max_nodes,
                      const std::optional<Sampling>& sampling);

  // Number of stored ends.
  std::size_t size() const noexcept;

 private:
  struct Distribution {
    std::array<std::int32_t, kWidth> tokens;
    std::array<float, kWidth> log_probabilities;
  };
  struct Entry {
    std::uint64_t key = 0;   // key of an end; 0 in an empty entry
    std::uint64_t used = 0;  // value of clock_ at the last use
    Distribution distribution{};
  };
  // The distribution after the longest stored end, and the length of this end. Null if no end is stored.
  struct Known {
    const Distribution* distribution;
    std::size_t order;
  };
  using Chances = std::array<double, kWidth>;
  class Ends;

  std::span<Entry> bucket(std::uint64_t key);
  void remember(std::uint64_t key, const Distribution& distribution);
  Known find(const Ends& ends);
  static Chances weigh(const Known& known, std::int64_t position, const std::optional<Sampling>& sampling);

  std::vector<Entry> entries_;  // buckets of kWays neighbours
  std::uint64_t clock_ = 0;
  std::size_t size_ = 0;
};

}  // namespace suffolk::drafting
