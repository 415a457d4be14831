// The one index structure: tokens and their sorted suffix positions. A mapped segment and the context of one request both
// present themselves as a `Suffixes`, and every search and every draft works on it.
#pragma once

#include <cstdint>
#include <cstring>

namespace suffolk {

// What `Suffixes::token` answers behind the end of a document; greater than any token id, so that a suffix that ends sorts
// behind all that go on.
inline constexpr std::uint32_t kEnd = 0xFFFFFFFF;

// Tokens of 2, 3 or 4 little-endian bytes. A view: the bytes must outlive it.
struct Tokens {
  const std::byte* data = nullptr;
  std::uint64_t size = 0;   // in tokens, separators included
  std::uint32_t width = 2;  // bytes a token

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

// A view of sorted suffixes; the arrays must outlive it. Reading is thread-safe. The arrays may come from a damaged file:
// every value is bounded before it is used, and searches end whatever the order.
struct Suffixes {
  Tokens tokens;
  const std::uint32_t* positions = nullptr;    // [0..count-1], the start of each suffix, in suffix order
  std::uint64_t count = 0;                     // suffixes
  const std::uint32_t* first_ranks = nullptr;  // [0..vocab_size], rank of the first suffix that begins with each token
  std::uint32_t vocab_size = 0;

  // The token `depth` places behind the start of the suffix of this rank; kEnd behind the end of its document.
  // REQUIRES: rank < count, and no kEnd at a smaller depth of the same suffix.
  std::uint32_t token(std::uint64_t rank, std::uint32_t depth) const noexcept {
    const std::uint64_t at = std::uint64_t{positions[rank]} + depth;
    if (at >= tokens.size) return kEnd;
    const std::uint32_t id = tokens[at];
    return id < vocab_size ? id : kEnd;
  }
};

// Ranks lo..hi-1 of one `Suffixes`: all suffixes with one prefix.
struct Interval {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;
  std::uint64_t size() const noexcept { return hi - lo; }
};

}  // namespace suffolk
