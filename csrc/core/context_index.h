// The context of one running request, searched like a datastore (prompt lookup).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/draft.h"

namespace suffolk {

// Tokens that grow at the end and can be cut back. Not thread-safe; owned by one request.
//
// A context is short and changes with every step, so it keeps no sorted suffixes. A draft finds the occurrences of the context's end
// in one pass over the tokens, and sorts only their continuations. The rest is as for any segment.
class ContextIndex {
 public:
  // REQUIRES: 1 <= vocab_size < 2^32 - 1
  explicit ContextIndex(std::uint32_t vocab_size) : vocab_size_(vocab_size) {}

  std::uint64_t size() const noexcept { return tokens_.size(); }

  // Throws kInvalidArgument if an id is not below vocab_size; then nothing is appended.
  void append(std::span<const std::uint32_t> tokens);
  // Keeps the first `size` tokens. Throws kInvalidArgument if there are fewer.
  void truncate(std::uint64_t size);

  // The draft tree of what followed the earlier occurrences of the longest suffix of the context that occurs before its own
  // end. O(size * max_match) for the pass, and O(m log m) for m occurrences. Throws kInvalidArgument for bad bounds.
  DraftTree draft(const QueryBounds& bounds) const;

 private:
  std::uint32_t vocab_size_;
  std::vector<std::uint32_t> tokens_;
};

}  // namespace suffolk
