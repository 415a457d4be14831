// The order of suffixes of different segments: by their first order_depth tokens, then by segment, then by position.
#pragma once

#include <cstdint>
#include <span>

#include "core/suffixes.h"

namespace suffolk {

// A suffix of one of several segments with its key, cut to the order depth.
struct SuffixEntry {
  SuffixKey key;
  std::uint32_t position;
  std::uint32_t segment;
};

// Compares suffixes by their keys, and reads further tokens only if the keys are equal. A view: the segments must outlive it.
// Thread-safe. REQUIRES: all segments have one vocabulary and token width, and positions are below the token count.
class SuffixOrder {
 public:
  SuffixOrder(std::span<const Suffixes> segments, std::uint32_t order_depth) noexcept
      : segments_(segments), width_(segments.front().tokens.width), order_depth_(order_depth) {}

  SuffixEntry entry(std::uint32_t segment, std::uint32_t position) const noexcept { return {key_at(segment, position, 0), position, segment}; }

  bool precedes(const SuffixEntry& a, const SuffixEntry& b) const noexcept {
    if (a.key != b.key) return a.key < b.key;
    SuffixKey last = a.key;
    for (std::uint32_t depth = key_tokens(width_); depth < order_depth_ && !ends(last); depth += key_tokens(width_)) {
      const SuffixKey x = key_at(a.segment, a.position, depth), y = key_at(b.segment, b.position, depth);
      if (x != y) return x < y;
      last = x;
    }
    return a.segment != b.segment ? a.segment < b.segment : a.position < b.position;
  }

 private:
  // The key of the tokens from position + depth on. Bits of tokens beyond order_depth are 0.
  SuffixKey key_at(std::uint32_t segment, std::uint32_t position, std::uint32_t depth) const noexcept {
    const Suffixes& suffixes = segments_[segment];
    SuffixKey key = suffix_key(suffixes.tokens, std::uint64_t{position} + depth, suffixes.vocab_size, width_);
    const std::uint32_t bits = (order_depth_ - depth) * width_ * 8;
    if (bits < 64) {
      key = {key.high & ~(~std::uint64_t{0} >> bits), 0};
    } else if (bits < 128) {
      key.low &= ~(~std::uint64_t{0} >> (bits - 64));
    }
    return key;
  }

  // Whether the document ends within the key.
  bool ends(const SuffixKey& key) const noexcept {
    const std::uint64_t separator = kEnd >> (32 - width_ * 8), last = key.low >> (128 - key_tokens(width_) * width_ * 8);
    return (last & separator) == separator;
  }

  std::span<const Suffixes> segments_;
  std::uint32_t width_;
  std::uint32_t order_depth_;
};

}  // namespace suffolk
