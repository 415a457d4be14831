// Prompt lookup: searches the context of one request as if it were a datastore.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/draft.h"

namespace suffolk {

// A context that grows at its end and can be truncated. Not thread-safe; owned by one request.
//
// A context is short and changes in every step, so its suffixes are not kept sorted. A draft finds the earlier occurrences of the
// context's suffix in one pass, sorts their continuations, and expands them as in a segment.
class ContextIndex {
 public:
  // REQUIRES: 1 <= vocab_size < 2^32 - 1
  explicit ContextIndex(std::uint32_t vocab_size) : vocab_size_(vocab_size) {}

  std::uint64_t size() const noexcept { return tokens_.size(); }

  // Throws kInvalidArgument if an id is not below vocab_size; then nothing is appended.
  void append(std::span<const std::uint32_t> tokens);
  // Keeps the first `size` tokens. Throws kInvalidArgument if the context is shorter.
  void truncate(std::uint64_t size);

  // Finds the longest suffix of the context that also occurs earlier in it. Returns the draft tree of the tokens that follow these
  // occurrences. O(size), and O(m (max_depth + log m)) to sort m occurrences. Throws kInvalidArgument for bad bounds.
  DraftTree draft(const QueryBounds& bounds) const;

 private:
  std::uint32_t vocab_size_;
  std::vector<std::uint32_t> tokens_;
};

}  // namespace suffolk
