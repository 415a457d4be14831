// What the target said of the tokens that may follow, remembered by the ends of texts, and drafts from it.
//
// In every pass the target tells, for each token of its answer, how likely all tokens were; one was drawn and the rest thrown away. Token
// Recycling (Luo et al. 2024, arXiv 2408.08696, section 3) keeps the likeliest ones by the token they follow, and drafts trees from them.
// Here they are kept by the last 1 to kOrder tokens, and the longest end that is known counts: what the target said behind it before is
// near what it says now. Where it samples with known noise (see noise_reweighting.h), the noise chooses among them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "drafting/noise_reweighting.h"

namespace suffolk::drafting {

// Nodes in the order of falling scores, parents first; a score is the estimated chance that the whole path is accepted.
struct RecycledTree {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
};

// Remembers what the target said last behind each end of a text. An end has room in four places: it takes that of the one of them that was
// used longest ago. Not thread-safe.
class Recycler {
 public:
  static constexpr std::size_t kWidth = 8;  // likeliest tokens that are kept behind an end
  static constexpr std::size_t kOrder = 4;  // tokens of the longest end

  // `ends`: how many are remembered, rounded up to a power of two, 80 bytes each, allocated now. Throws kInvalidArgument unless within
  // 64..2^24, kResourceExhausted if there is no memory.
  explicit Recycler(std::size_t ends);

  // Remembers what `tokens`' last entries were drawn from: row j, the kWidth likeliest `candidates` (ids, likeliest first) with their
  // `log_probabilities`, stands behind all of `tokens` but the last rows - j. O(rows)
  // Throws kInvalidArgument, and learns nothing, if both have no whole number of rows, or not the same, more rows than `tokens` has entries
  // behind its first, or a candidate below 0; a log probability that is NaN or above 0 counts as the least there is.
  void learn(std::span<const std::int32_t> tokens, std::span<const std::int32_t> candidates, std::span<const float> log_probabilities);

  // The best `max_nodes` continuations of `tokens`, which need to be no more than its last kOrder, down to `max_depth`. `position`: of the token
  // that follows; `sampling`: the target's settings, none for greedy decoding. O(n log n) for n nodes
  // Throws kInvalidArgument if max_nodes is 2^31 or more.
  RecycledTree draft(std::span<const std::int32_t> tokens, std::int64_t position, std::size_t max_depth, std::size_t max_nodes,
                     const std::optional<Sampling>& sampling);

  // Ends that are remembered.
  std::size_t size() const noexcept;

 private:
  struct Law {
    std::array<std::int32_t, kWidth> tokens;
    std::array<float, kWidth> log_probabilities;
  };
  struct Entry {
    std::uint64_t key = 0;   // of an end; 0 where empty
    std::uint64_t used = 0;  // when it was last, by clock_
    Law law{};
  };
  // What the target said behind the longest end that is known, if any, and how many tokens that has.
  struct Behind {
    const Law* law;
    std::size_t order;
  };
  using Chances = std::array<double, kWidth>;
  class Ends;

  std::span<Entry> bucket(std::uint64_t key);
  void remember(std::uint64_t key, const Law& law);
  Behind find(const Ends& ends);
  static Chances weigh(const Behind& behind, std::int64_t position, const std::optional<Sampling>& sampling);

  std::vector<Entry> entries_;  // buckets of a few, where an end replaces the one used longest ago
  std::uint64_t clock_ = 0;
  std::size_t size_ = 0;
};

}  // namespace suffolk::drafting
