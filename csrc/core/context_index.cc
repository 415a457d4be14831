#include "core/context_index.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/text_search.h"

namespace suffolk {

void ContextIndex::append(std::span<const std::uint32_t> tokens) {
  for (const std::uint32_t token : tokens) {
    if (token >= vocab_size_) { refuse("token id ", token, " is out of range; the vocabulary has ", vocab_size_, " ids"); }
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void ContextIndex::truncate(std::uint64_t size) {
  if (size > tokens_.size()) refuse("cannot keep ", size, " tokens of a context of ", tokens_.size());
  tokens_.resize(size);
}

DraftTree ContextIndex::draft(const QueryBounds& bounds) const {
  check(bounds, std::numeric_limits<std::uint32_t>::max());
  const std::size_t searched = std::max<std::size_t>(tokens_.size(), 1) - 1;  // the ending itself is no occurrence
  return suffolk::draft(tokens_, longest_match(tokens_, searched, tokens_, bounds), vocab_size_, bounds);
}

}  // namespace suffolk
