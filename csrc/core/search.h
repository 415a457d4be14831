// Finds the longest suffix of a context that occurs in a corpus, by bisection over sorted suffixes (exact match of the context's
// end: REST, He et al. 2023, section 3.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/suffixes.h"

namespace suffolk {

inline constexpr std::uint32_t kMaxNodes = 65536;

// The bounds of a query: 1 <= min_match <= max_match, 1 <= max_depth, max_match + max_depth <= order_depth,
// max_nodes <= kMaxNodes. A draft leaves out nodes with fewer than least_count occurrences. order_depth: the number of tokens by
// which suffixes are sorted.
struct QueryBounds {
  std::uint32_t max_match = 16;
  std::uint32_t min_match = 1;
  std::uint32_t max_depth = 10;
  std::uint32_t max_nodes = 64;
  std::uint64_t least_count = 1;

  bool operator==(const QueryBounds&) const = default;
};

// The segments of a search. Deleted documents form sorted segments of their own. The count of a pattern is its count in the
// live segments minus its count in the deletions. This is exact, because each deleted document is in a live segment and in a
// deletion. A view: the array of Suffixes must outlive it.
struct Corpus {
  std::span<const Suffixes> suffixes;  // live segments, then deletions
  std::size_t live = 0;                // number of live segments

  Corpus(std::span<const Suffixes> all, std::size_t live_segments) noexcept : suffixes(all), live(live_segments) {}
  explicit Corpus(std::span<const Suffixes> segments) noexcept : Corpus(segments, segments.size()) {}

  // The count of a pattern. `intervals` has the pattern's interval in each of `suffixes`. Returns 0 if a damaged file makes the
  // difference negative.
  std::uint64_t count(std::span<const Interval> intervals) const noexcept;
};

// The longest suffix of a context that occurs in a corpus.
struct Match {
  std::uint32_t length = 0;         // tokens; 0 if nothing was found
  std::uint64_t count = 0;          // see Corpus
  std::vector<Interval> intervals;  // one for each entry of Corpus::suffixes; empty if length is 0
};

// Throws kInvalidArgument, naming the bound, if `bounds` breaks the rules of QueryBounds.
void check(const QueryBounds& bounds, std::uint32_t order_depth);

// The ranks of all suffixes that begin with `pattern`.
// REQUIRES: pattern is not empty. Complexity: O(|pattern| log n) token reads. Thread-safe.
Interval find(const Suffixes& suffixes, std::span<const std::uint32_t> pattern) noexcept;

// The longest suffix of `context`, of min_match to max_match tokens, whose count is above 0. Bisects over the length: if a suffix
// occurs, all shorter suffixes occur too. Thread-safe.
Match longest_match(const Corpus& corpus, std::span<const std::uint32_t> context, const QueryBounds& bounds);

// A search for the first rank of `range` whose token at `depth` is at least `token`. The search writes the result to range.lo; if
// there is no such rank, range.lo becomes range.hi.
struct TokenSearch {
  const Suffixes* suffixes = nullptr;
  std::uint32_t depth = 0;
  std::uint32_t token = 0;
  Interval range;
};

// Makes several searches at once, so that their reads from memory overlap.
void lower_bounds(std::span<TokenSearch> searches) noexcept;

}  // namespace suffolk
