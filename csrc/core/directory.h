// Narrows a search by the directory of a segment: the key (first tokens, see suffixes.h) of every 128th suffix in sorted order. The
// directory is small enough to stay in memory. The suffixes themselves may be anywhere on the disk.
#pragma once

#include <cstdint>
#include <span>

#include "core/suffixes.h"

namespace suffolk {

// Bounds of the interval of suffixes that begin with a pattern. The interval's first rank is in first.lo..first.hi, and its end is
// in last.lo..last.hi. A rank is an index in the sorted suffixes.
struct Narrowed {
  Interval first;
  Interval last;
  bool occurs = false;  // a key of the directory begins with the whole pattern
};

// Narrows the search for `pattern` among the ranks of `bucket`, which include all of its occurrences, usually to 128 ranks.
// Without a directory, both bounds are the whole bucket. A damaged directory may give wrong bounds, but always inside the bucket.
// O(log entries). REQUIRES: pattern is not empty.
Narrowed narrow(const Suffixes& suffixes, std::span<const std::uint32_t> pattern, Interval bucket) noexcept;

// Whether the keys of the directory are long enough to hold the tokens at this depth.
inline bool knows(const Suffixes& suffixes, std::uint32_t depth) noexcept {
  return suffixes.directory_count > 0 && depth < key_tokens(suffixes.tokens.width);
}

// The same as suffixes.token(entry * kDirectoryStride, depth), but read from the key. REQUIRES: entry < directory_count,
// knows(suffixes, depth).
inline std::uint32_t directory_token(const Suffixes& suffixes, std::uint64_t entry, std::uint32_t depth) noexcept {
  const std::uint32_t bits = suffixes.tokens.width * 8, shift = 128 - (depth + 1) * bits;
  const SuffixKey& key = suffixes.directory[entry];
  const std::uint64_t value = shift >= 64 ? key.high >> (shift - 64) : shift == 0 ? key.low : key.low >> shift | key.high << (64 - shift);
  const std::uint32_t token = static_cast<std::uint32_t>(value) & kEnd >> (32 - bits);
  return token < suffixes.vocab_size ? token : kEnd;
}

// Narrows a search by partition_point over `range`, where `before` looks at the token at `depth`. Returns the ranks between two
// neighbouring directory entries. REQUIRES: range.lo <= range.hi <= suffixes.count.
template <typename Predicate>
Interval narrow_by_token(const Suffixes& suffixes, std::uint32_t depth, Interval range, Predicate before) noexcept {
  const std::uint64_t first = range.lo / kDirectoryStride + 1;  // entries first..last-1 are inside the range
  const std::uint64_t last = (range.hi + kDirectoryStride - 1) / kDirectoryStride;
  if (range.size() <= kDirectoryStride || !knows(suffixes, depth) || last > suffixes.directory_count) return range;
  const auto entry_before = [&](std::uint64_t entry) { return before(directory_token(suffixes, entry, depth)); };
  const std::uint64_t entry = partition_point(first, last, entry_before);
  if (entry > first) range.lo = (entry - 1) * kDirectoryStride + 1;
  if (entry < last) range.hi = entry * kDirectoryStride;
  return range;
}

}  // namespace suffolk
