#include "core/directory.h"

#include <algorithm>

namespace suffolk {
namespace {

// The pattern's first tokens as a key. All bits after them are `filler` (0 or 1).
SuffixKey pattern_key(std::span<const std::uint32_t> pattern, std::uint32_t width, std::uint32_t filler) noexcept {
  const std::uint32_t bits = width * 8;
  SuffixKey key = filler == 0 ? SuffixKey{} : SuffixKey{~std::uint64_t{0}, ~std::uint64_t{0}};
  for (std::uint32_t i = 0, shift = 128; i < pattern.size() && i < key_tokens(width); ++i) {
    shift -= bits;
    // Clear the token's bits in either half, then set them.
    const std::uint64_t mask = kEnd >> (32 - bits), token = pattern[i];
    if (shift >= 64) {
      key.high = (key.high & ~(mask << (shift - 64))) | token << (shift - 64);
    } else {
      key.low = (key.low & ~(mask << shift)) | token << shift;
      if (shift + bits > 64) key.high = (key.high & ~(mask >> (64 - shift))) | token >> (64 - shift);
    }
  }
  return key;
}

}  // namespace

Narrowed narrow(const Suffixes& suffixes, std::span<const std::uint32_t> pattern, Interval bucket) noexcept {
  Narrowed narrowed = {.first = bucket, .last = bucket};
  if (bucket.size() <= kDirectoryStride) return narrowed;
  const std::uint64_t first = bucket.lo / kDirectoryStride + 1;
  const std::uint64_t last = (bucket.hi + kDirectoryStride - 1) / kDirectoryStride;
  if (last > suffixes.directory_count) return narrowed;
  const SuffixKey* const begin = suffixes.directory + first;
  const SuffixKey* const end = suffixes.directory + last;
  // Entries before `low` precede the pattern, and entries from `high` on follow it. Entries in between agree with it as far as the
  // key reaches.
  const SuffixKey* const low = std::lower_bound(begin, end, pattern_key(pattern, suffixes.tokens.width, 0));
  const SuffixKey* const high = std::upper_bound(low, end, pattern_key(pattern, suffixes.tokens.width, 1));
  const auto rank = [&](const SuffixKey* entry) { return (first + static_cast<std::uint64_t>(entry - begin)) * kDirectoryStride; };
  const bool whole = pattern.size() <= key_tokens(suffixes.tokens.width);
  if (low > begin) narrowed.first.lo = rank(low - 1) + 1;
  if (high < end) narrowed.last.hi = rank(high);
  narrowed.occurs = whole && low < high;
  narrowed.first.hi = narrowed.occurs ? rank(low) : narrowed.last.hi;
  narrowed.last.lo = narrowed.occurs ? rank(high - 1) + 1 : narrowed.first.lo;
  return narrowed;
}

}  // namespace suffolk
