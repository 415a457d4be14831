#include "core/search.h"

#include <algorithm>
#include <utility>

#include "core/directory.h"

namespace suffolk {
namespace {

// partition_point in O(log(answer - lo)), because most runs are much shorter than their range.
template <typename Predicate>
std::uint64_t gallop(std::uint64_t lo, std::uint64_t hi, Predicate before) noexcept {
  for (std::uint64_t step = 1; step < hi - lo; step *= 2) {
    if (!before(lo + step - 1)) {
      hi = lo + step - 1;
      break;
    }
    lo += step;
  }
  return partition_point(lo, hi, before);
}

// Compares the suffix of this rank with the pattern. Their first `depth` tokens agree. Returns < 0, 0 (the suffix begins with the
// pattern) or > 0.
int compare(const Suffixes& suffixes, std::uint64_t rank, std::span<const std::uint32_t> pattern, std::uint32_t depth) noexcept {
  for (; depth < pattern.size(); ++depth) {
    const std::uint32_t token = suffixes.token(rank, depth);
    if (token != pattern[depth]) return token < pattern[depth] ? -1 : 1;
  }
  return 0;
}

// Ranks that hold all suffixes with one prefix. All of these ranks agree in `depth` tokens of it.
struct Bucket {
  Interval ranks;
  std::uint32_t depth = 1;
};

// The ranks of the suffixes that begin with `token`, cut to the existing ranks; without first_ranks, all ranks.
Bucket first_bucket(const Suffixes& suffixes, std::uint32_t token) noexcept {
  if (token >= suffixes.vocab_size) return {};
  if (suffixes.first_ranks == nullptr) return {{0, suffixes.count}, 0};
  const std::uint64_t hi = std::min<std::uint64_t>(suffixes.first_ranks[token + 1], suffixes.count);
  const std::uint64_t lo = std::min<std::uint64_t>(suffixes.first_ranks[token], hi);
  return {{lo, hi}, 1};
}

bool occurs(const Suffixes& suffixes, std::span<const std::uint32_t> pattern) noexcept {
  const Bucket bucket = first_bucket(suffixes, pattern[0]);
  if (pattern.size() == bucket.depth) return bucket.ranks.size() > 0;
  const Narrowed narrowed = narrow(suffixes, pattern, bucket.ranks);
  if (narrowed.occurs) return true;
  auto [lo, hi] = narrowed.first;
  while (lo < hi) {
    const std::uint64_t middle = lo + (hi - lo) / 2;
    const int order = compare(suffixes, middle, pattern, bucket.depth);
    if (order == 0) return true;
    if (order < 0) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  return false;
}

// The largest length within bounds at which the context's suffix occurs in any of `segments`; 0 if there is none.
std::size_t longest_occurring(std::span<const Suffixes> segments, std::span<const std::uint32_t> context, const QueryBounds& bounds) noexcept {
  std::size_t best = 0;
  const std::size_t longest = std::min<std::size_t>(bounds.max_match, context.size());
  for (const Suffixes& segment : segments) {
    // A segment matters only if it holds a longer match than the segments before it.
    std::size_t low = std::max<std::size_t>(best + 1, bounds.min_match), high = longest;
    while (low <= high) {
      const std::size_t length = low + (high - low) / 2;
      if (occurs(segment, context.last(length))) {
        best = length;
        low = length + 1;
      } else {
        high = length - 1;
      }
    }
  }
  return best;
}

Match match_of(const Corpus& corpus, std::span<const std::uint32_t> pattern) {
  Match match;
  match.length = static_cast<std::uint32_t>(pattern.size());
  match.intervals.reserve(corpus.suffixes.size());
  for (const Suffixes& suffixes : corpus.suffixes) match.intervals.push_back(find(suffixes, pattern));
  match.count = corpus.count(match.intervals);
  return match;
}

}  // namespace

void check(const QueryBounds& bounds, std::uint32_t order_depth) {
  if (bounds.min_match < 1) refuse("min_match is 0; it must be at least 1");
  if (bounds.max_match < bounds.min_match) {
    refuse("max_match is ", bounds.max_match, ", below min_match ", bounds.min_match, "; raise max_match or lower min_match");
  }
  if (bounds.max_depth < 1) refuse("max_depth is 0; it must be at least 1");
  if (bounds.max_nodes > kMaxNodes) refuse("max_nodes is ", bounds.max_nodes, "; the limit is ", kMaxNodes);
  if (std::uint64_t{bounds.max_match} + bounds.max_depth > order_depth) {
    refuse("max_match + max_depth is ", std::uint64_t{bounds.max_match} + bounds.max_depth, ", above the order depth ", order_depth,
           " of the datastore; lower one of them, or build with a larger --order-depth");
  }
}

Interval find(const Suffixes& suffixes, std::span<const std::uint32_t> pattern) noexcept {
  const auto [bucket, depth] = first_bucket(suffixes, pattern[0]);
  if (pattern.size() == depth) return bucket;
  const Narrowed narrowed = narrow(suffixes, pattern, bucket);
  const auto order = [&](std::uint64_t rank) { return compare(suffixes, rank, pattern, depth); };
  const std::uint64_t lo = partition_point(narrowed.first.lo, narrowed.first.hi, [&](std::uint64_t rank) { return order(rank) < 0; });
  const std::uint64_t from = std::max(lo, narrowed.last.lo);
  const std::uint64_t hi = gallop(from, std::max(from, narrowed.last.hi), [&](std::uint64_t rank) { return order(rank) == 0; });
  return {lo, hi};
}

std::uint64_t Corpus::count(std::span<const Interval> intervals) const noexcept {
  std::uint64_t found = 0, deleted = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) (i < live ? found : deleted) += intervals[i].size();
  return found - std::min(found, deleted);
}

Match longest_match(const Corpus& corpus, std::span<const std::uint32_t> context, const QueryBounds& bounds) {
  const std::size_t longest = longest_occurring(corpus.suffixes.first(corpus.live), context, bounds);
  if (longest == 0) return {};
  Match best = match_of(corpus, context.last(longest));
  if (best.count > 0 || corpus.live == corpus.suffixes.size()) return best.count > 0 ? best : Match{};  // 0: a damaged order
  // All occurrences of the longest match are deleted: bisect again, by exact counts.
  for (std::size_t low = bounds.min_match, high = longest - 1; low <= high;) {
    const std::size_t length = low + (high - low) / 2;
    Match match = match_of(corpus, context.last(length));
    if (match.count > 0) {
      best = std::move(match);
      low = length + 1;
    } else {
      high = length - 1;
    }
  }
  return best.count > 0 ? best : Match{};
}

void lower_bounds(std::span<TokenSearch> searches) noexcept {
  for (auto& [suffixes, depth, token, range] : searches) {
    range = narrow_by_token(*suffixes, depth, range, [&](std::uint32_t other) { return other < token; });
  }
  constexpr std::uint64_t kWays = 4;  // each round cuts a search into this many parts
  const auto part = [](const Interval& range) { return std::max<std::uint64_t>(range.size() / kWays, 1); };
  for (bool open = true; open;) {
    open = false;
    for (const auto& [suffixes, depth, token, range] : searches) {
      const std::uint64_t step = part(range);
      for (std::uint64_t rank = range.lo + step - 1; rank < range.hi; rank += step) suffixes->prefetch(rank, depth);
    }
    for (auto& [suffixes, depth, token, range] : searches) {
      const std::uint64_t step = part(range);
      std::uint64_t rank = range.lo + step - 1;  // the last rank of each part, up to the first whose token is not lower
      while (rank < range.hi && suffixes->token(rank, depth) < token) rank += step;
      range.lo = std::min(rank - step + 1, range.hi);
      range.hi = std::min(rank, range.hi);
      open |= range.lo < range.hi;
    }
  }
}

}  // namespace suffolk
