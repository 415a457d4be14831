// Searching the directory of a segment: the keys of every 128th suffix, small enough to stay in memory, before the suffixes
// themselves, which lie anywhere on the disk.
#pragma once

#include <cstdint>
#include <span>

#include "core/suffixes.h"

namespace suffolk {

// The range of the suffixes that begin with a pattern, as far as the directory shows. The rank of the first is in `first`; the first
// rank behind them is in `last`. Both may also be the rank that ends the range.
struct Narrowed {
  Interval first;
  Interval last;
  bool occurs = false;  // one of the keys begins with the whole pattern
};

// Narrows the search for `pattern` among the ranks of `bucket`, usually to one stride. Without a directory both are the bucket.
// REQUIRES: pattern is not empty. Damaged directories give wrong ranges, never ranges outside the bucket. O(log entries).
Narrowed narrow(const Suffixes& suffixes, std::span<const std::uint32_t> pattern, Interval bucket) noexcept;

// Whether the directory knows the tokens at this depth.
inline bool knows(const Suffixes& suffixes, std::uint32_t depth) noexcept {
  return suffixes.directory_count > 0 && depth < key_tokens(suffixes.tokens.width);
}

// suffixes.token(entry * kDirectoryStride, depth), read from the key. REQUIRES: entry < directory_count, knows(depth).
inline std::uint32_t directory_token(const Suffixes& suffixes, std::uint64_t entry, std::uint32_t depth) noexcept {
  const std::uint32_t bits = suffixes.tokens.width * 8, shift = 128 - (depth + 1) * bits;
  const SuffixKey& key = suffixes.directory[entry];
  const std::uint64_t value = shift >= 64 ? key.high >> (shift - 64) : shift == 0 ? key.low : key.low >> shift | key.high << (64 - shift);
  const std::uint32_t token = static_cast<std::uint32_t>(value) & kEnd >> (32 - bits);
  return token < suffixes.vocab_size ? token : kEnd;
}

// Narrows [lo, hi) to the ranks between two entries. `before` is true for the tokens at `depth` up to some rank and false behind it;
// that rank stays inside. REQUIRES: lo <= hi <= suffixes.count.
template <typename Predicate>
Interval narrow_by_token(const Suffixes& suffixes, std::uint32_t depth, Interval range, Predicate before) noexcept {
  const std::uint64_t first = range.lo / kDirectoryStride + 1;  // entries first..last stand inside the range
  const std::uint64_t last = (range.hi + kDirectoryStride - 1) / kDirectoryStride;
  if (range.size() <= kDirectoryStride || !knows(suffixes, depth) || last > suffixes.directory_count) return range;
  const auto entry_before = [&](std::uint64_t entry) { return before(directory_token(suffixes, entry, depth)); };
  const std::uint64_t entry = partition_point(first, last, entry_before);
  if (entry > first) range.lo = (entry - 1) * kDirectoryStride + 1;
  if (entry < last) range.hi = entry * kDirectoryStride;
  return range;
}

}  // namespace suffolk
