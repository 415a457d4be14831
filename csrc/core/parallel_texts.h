// Searches the texts of requests that answer one prompt at the same time. Each request takes drafts from the texts of the other
// requests.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/draft.h"

namespace suffolk {

// Texts that grow at their ends and can be truncated. Each text has a number, which the caller chooses. Not thread-safe.
class ParallelTexts {
 public:
  // REQUIRES: 1 <= vocab_size < 2^32 - 1
  explicit ParallelTexts(std::uint32_t vocab_size) : vocab_size_(vocab_size) {}

  // The number of texts that have been appended to and not removed.
  std::uint64_t size() const noexcept { return texts_.size(); }
  // The number of tokens of a text; 0 for an unknown text number.
  std::uint64_t length(std::uint64_t number) const;

  // Adds tokens to the end of a text. A text with a new number is empty before the call. Throws kInvalidArgument if an id is not
  // below vocab_size; then nothing is appended.
  void append(std::uint64_t number, std::span<const std::uint32_t> tokens);
  // Keeps the first `size` tokens of a text. Throws kInvalidArgument if the text is shorter.
  void truncate(std::uint64_t number, std::uint64_t size);
  // Forgets a text, if there is one.
  void remove(std::uint64_t number);

  // Finds the longest suffix of `context` that occurs in a text other than text `number`. Returns the draft tree of the tokens that
  // follow its occurrences in these texts. O(tokens of all texts), and O(m (max_depth + log m)) to sort m occurrences. Throws
  // kInvalidArgument for bad bounds.
  DraftTree draft(std::uint64_t number, std::span<const std::uint32_t> context, const QueryBounds& bounds) const;

 private:
  std::uint32_t vocab_size_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> texts_;
};

}  // namespace suffolk
