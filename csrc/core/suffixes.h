// The index structure: tokens and their sorted suffix positions. Every search and draft works on `Suffixes`: a view of a mapped
// segment, of a segment in memory, or of the context of one request.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace suffolk {

// The value of `Suffixes::token` after the end of a document. It is greater than any token id, so suffixes that end sort last.
inline constexpr std::uint32_t kEnd = 0xFFFFFFFF;

// An array of tokens of 2, 3 or 4 little-endian bytes. A view: the bytes must outlive it.
struct Tokens {
  const std::byte* data = nullptr;
  std::uint64_t size = 0;   // in tokens, separators included
  std::uint32_t width = 2;  // bytes per token

  // REQUIRES: i < size
  std::uint32_t operator[](std::uint64_t i) const noexcept {
    const std::byte* at = data + i * width;
    if (width == 2) {
      std::uint16_t value;
      std::memcpy(&value, at, 2);
      return value;
    }
    if (width == 4) {
      std::uint32_t value;
      std::memcpy(&value, at, 4);
      return value;
    }
    return static_cast<std::uint32_t>(at[0]) | static_cast<std::uint32_t>(at[1]) << 8 | static_cast<std::uint32_t>(at[2]) << 16;
  }
};

// The first tokens of a suffix as one 128-bit number: 8, 5 or 4 tokens of 2, 3 or 4 bytes. The first token is in the highest
// bits, unused low bits are zero, and every token after the document's end has all bits set. So keys have the same order as the
// first tokens of the suffixes.
struct SuffixKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const SuffixKey&) const = default;
};
static_assert(sizeof(SuffixKey) == 16);  // the bytes of the directory on disk: high, then low

// The number of tokens in a key, for tokens of `width` bytes.
constexpr std::uint32_t key_tokens(std::uint32_t width) noexcept { return 16 / width; }

// Finds separators in four 2-byte tokens: the lowest set bit of the result is the top bit of the first separator. 0 if there is
// none.
constexpr std::uint64_t first_separator(std::uint64_t four) noexcept { return (~four - 0x0001000100010001) & four & 0x8000800080008000; }

// Four 2-byte tokens as half a key. The first token is in the highest bits, and all bits are set from the first separator on.
inline std::uint64_t four_tokens(const std::byte* at) noexcept {
  constexpr std::uint64_t kOdd = 0x0000FFFF0000FFFF;
  std::uint64_t four;
  std::memcpy(&four, at, sizeof(four));
  if (const std::uint64_t separator = first_separator(four); separator != 0) four |= ~std::uint64_t{0} << (std::countr_zero(separator) - 15);
  four = std::rotl(four, 32);
  return (four >> 16 & kOdd) | (four & kOdd) << 16;
}

// The key of the suffix at `position`, with tokens of `width` bytes. A document ends at an id of vocab_size or more, and at the end
// of the tokens.
inline SuffixKey suffix_key(const Tokens& tokens, std::uint64_t position, std::uint32_t vocab_size, std::uint32_t width) noexcept {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  if (tokens.width == 2 && width == 2 && position + 8 <= tokens.size) {  // the most common case
    const std::byte* at = tokens.data + position * 2;
    const std::uint64_t high = four_tokens(at);
    return {high, (high & 0xFFFF) == 0xFFFF ? kAll : four_tokens(at + 8)};
  }
  const std::uint32_t bits = width * 8, separator = kEnd >> (32 - bits);
  SuffixKey key;
  bool ended = false;
  for (std::uint32_t i = 0; i < key_tokens(width); ++i) {
    const std::uint32_t token = ended || position + i >= tokens.size ? kEnd : tokens[position + i];
    ended = token >= vocab_size;
    key.high = key.high << bits | key.low >> (64 - bits);
    key.low = key.low << bits | (ended ? separator : token);
  }
  if (const std::uint32_t left = 128 - key_tokens(width) * bits; left > 0) {
    key.high = key.high << left | key.low >> (64 - left);
    key.low <<= left;
  }
  return key;
}

// The directory has the keys of the suffixes with ranks 0, 128, 256, ... A rank is an index in the sorted suffixes.
inline constexpr std::uint64_t kDirectoryStride = 128;
constexpr std::uint64_t directory_entries(std::uint64_t suffixes) noexcept { return (suffixes + kDirectoryStride - 1) / kDirectoryStride; }

// A view of sorted suffixes; the arrays must outlive it. Reading is thread-safe. The arrays may come from a damaged file. So
// every value is checked against its bounds before it is used, and searches end even if the order is wrong.
struct Suffixes {
  Tokens tokens;
  const std::uint32_t* positions = nullptr;    // [0..count-1], the start of each suffix, in suffix order
  std::uint64_t count = 0;                     // suffixes
  const std::uint32_t* first_ranks = nullptr;  // [0..vocab_size], for each token, the rank of the first suffix that begins with it; may be null
  std::uint32_t vocab_size = 0;
  // The key of every kDirectoryStride-th rank, so that a search reads few pages. Null, and directory_count is 0, for the context
  // of one request. Only the first order_depth tokens of the keys are in the order of ranks.
  const SuffixKey* directory = nullptr;
  std::uint64_t directory_count = 0;

  // The token at `depth` of the suffix with this rank, or kEnd after the end of the suffix's document.
  // REQUIRES: rank < count, and no kEnd at a smaller depth of the same suffix.
  std::uint32_t token(std::uint64_t rank, std::uint32_t depth) const noexcept {
    const std::uint64_t at = std::uint64_t{positions[rank]} + depth;
    if (at >= tokens.size) return kEnd;
    const std::uint32_t id = tokens[at];
    return id < vocab_size ? id : kEnd;
  }

  // Prefetches the memory that `token` reads. Inlined, because GCC drops calls of a function that only prefetches.
  // REQUIRES: rank < count.
  [[gnu::always_inline]] void prefetch(std::uint64_t rank, std::uint32_t depth) const noexcept {
    const std::uint64_t at = std::uint64_t{positions[rank]} + depth;
    if (at < tokens.size) __builtin_prefetch(tokens.data + at * tokens.width);
  }
};

// Ranks lo..hi-1 of one `Suffixes`: all suffixes with one prefix.
struct Interval {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
  std::uint64_t size() const noexcept { return hi - lo; }
};

// The first number in [lo, hi) for which `before` is false, found by bisection; hi if there is none.
template <typename Predicate>
std::uint64_t partition_point(std::uint64_t lo, std::uint64_t hi, Predicate before) {
  while (lo < hi) {
    const std::uint64_t middle = lo + (hi - lo) / 2;
    if (before(middle)) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  return lo;
}

}  // namespace suffolk
