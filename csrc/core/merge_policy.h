// Decides which adjacent segments in memory are merged next.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace suffolk {

struct SegmentLoad {
  std::uint64_t tokens = 0;
  std::uint64_t removed = 0;  // tokens of removed documents
  bool busy = false;          // part of a running merge
};

// A range of adjacent segments.
struct MergeRun {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::uint64_t tokens = 0;
};

inline constexpr std::uint64_t kMaxMergedTokens = 0x7FFFFFFF;

// The segments to merge next, or none if no merge is needed. Only segments after the last busy one are chosen.
//
// Sizes fall geometrically from the oldest to the newest segment. If a segment is at most `ratio` times as large as all newer
// segments together, it is merged with them. So a token is merged O(log tokens) times, and there are at most log(tokens / newest)
// / log(1 + ratio) segments. The ratio is 1. If this gives more than `wanted` segments, the ratio is larger, up to kMaxRatio. If
// more than a quarter of a segment is removed, the segment is rewritten alone. If there are still more than `limit` segments,
// because other merges run, the smallest pair of neighbours is merged.
inline std::optional<MergeRun> choose_run(std::span<const SegmentLoad> segments, std::size_t wanted, std::size_t limit) {
  constexpr double kMaxRatio = 8;
  std::size_t first = segments.size();
  while (first > 0 && !segments[first - 1].busy) --first;
  if (first == segments.size()) return std::nullopt;
  std::uint64_t all = 0, newer = 0;
  for (const SegmentLoad& each : segments) all += each.tokens;
  const double span = static_cast<double>(all) / static_cast<double>(std::max<std::uint64_t>(1, segments.back().tokens));
  const double ratio = std::clamp(std::pow(span, 1.0 / static_cast<double>(wanted)) - 1, 1.0, kMaxRatio);
  MergeRun run, pair;
  for (std::size_t i = segments.size(); i-- > first;) {
    const std::uint64_t with = newer + segments[i].tokens;
    if (newer > 0 && with <= kMaxMergedTokens && static_cast<double>(segments[i].tokens) <= ratio * static_cast<double>(newer))
      run = {i, segments.size(), with};
    const std::uint64_t two = i + 1 < segments.size() ? segments[i].tokens + segments[i + 1].tokens : kMaxMergedTokens + 1;
    if (two <= kMaxMergedTokens && (pair.end == 0 || two < pair.tokens)) pair = {i, i + 2, two};
    newer = with;
  }
  if (run.end > 0) return run;
  for (std::size_t i = first; i < segments.size(); ++i) {
    if (segments[i].removed * 4 > segments[i].tokens) return MergeRun{i, i + 1, segments[i].tokens};
  }
  if (segments.size() > limit && pair.end > 0) return pair;
  return std::nullopt;
}

}  // namespace suffolk
