// Longest-suffix search over sorted suffixes (REST, He et al. 2023, section 3.2: exact match of the context's end).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/suffixes.h"

namespace suffolk {

inline constexpr std::uint32_t kMaxNodes = 65536;

// Bounds that every query gives: 1 <= min_match <= max_match, 1 <= max_depth, max_match + max_depth <= order_depth,
// max_nodes <= kMaxNodes.
struct QueryBounds {
  std::uint32_t max_match = 16;
  std::uint32_t min_match = 1;
  std::uint32_t max_depth = 10;
  std::uint32_t max_nodes = 64;
};

// The segments of a search. The tokens of deleted documents are sorted segments themselves. A count is the occurrences in the live
// segments less those in the deletions: exact, because each deleted document stands in both. A view; the array must outlive it.
struct Corpus {
  std::span<const Suffixes> suffixes;  // live segments, then deletions
  std::size_t live = 0;                // how many of them count; the others are subtracted

  Corpus(std::span<const Suffixes> all, std::size_t live_segments) noexcept : suffixes(all), live(live_segments) {}
  explicit Corpus(std::span<const Suffixes> segments) noexcept : Corpus(segments, segments.size()) {}

  // The count of a pattern with these intervals, one for each of `suffixes`. 0 if damaged files subtract too much.
  std::uint64_t count(std::span<const Interval> intervals) const noexcept;
};

// The longest suffix of a context that occurs, in all segments together.
struct Match {
  std::uint32_t length = 0;         // tokens; 0 if nothing was found
  std::uint64_t count = 0;          // occurrences over all live segments less the deletions
  std::vector<Interval> intervals;  // one for each of the corpus' suffixes, possibly empty; no vector entries if length is 0
};

// Throws kInvalidArgument, naming the bound, if `bounds` breaks the rules of QueryBounds.
void check(const QueryBounds& bounds, std::uint32_t order_depth);

// Ranks of all suffixes that begin with `pattern`; empty if none does.
// REQUIRES: pattern is not empty. Complexity: O(|pattern| log n) token reads. Thread-safe.
Interval find(const Suffixes& suffixes, std::span<const std::uint32_t> pattern) noexcept;

// The longest suffix of `context`, of min_match to max_match tokens, that occurs in the live segments more often than in the
// deletions. Bisects over the length, because a suffix of a pattern that occurs occurs too. Thread-safe.
Match longest_match(const Corpus& corpus, std::span<const std::uint32_t> context, const QueryBounds& bounds);

// First rank in [lo, hi) whose token at `depth` is at least `token`; hi if none is.
std::uint64_t lower_bound(const Suffixes& suffixes, std::uint32_t depth, std::uint64_t lo, std::uint64_t hi, std::uint32_t token) noexcept;

// A lower_bound to be found: `lo` becomes the answer.
struct TokenSearch {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
  std::uint32_t token = 0;
};

// Several of them at once, so that their reads from memory overlap; the answers stand in `lo`.
void lower_bounds(const Suffixes& suffixes, std::uint32_t depth, std::span<TokenSearch> searches) noexcept;

// First rank behind `from` and before `hi` whose token at `depth` is not `token`; hi if all are.
// REQUIRES: from < hi, token(from, depth) == token. O(log (hi - from)).
std::uint64_t run_end(const Suffixes& suffixes, std::uint32_t depth, std::uint64_t from, std::uint64_t hi, std::uint32_t token) noexcept;

}  // namespace suffolk
