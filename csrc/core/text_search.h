// Finds the longest suffix of a context in a text whose suffixes are not sorted, and drafts from it. The text is the context of one
// request, or the documents of one group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/draft.h"
#include "core/search.h"

namespace suffolk {

// The occurrences of the longest suffix of a context in a text.
struct TextMatch {
  std::uint32_t length = 0;         // tokens; 0 if nothing was found
  std::vector<std::uint32_t> ends;  // the position after each occurrence, rising
  std::uint64_t compared = 0;       // number of comparisons of a token of the text with a token of the context
};

// Finds the longest suffix of `context`, within `bounds`, that occurs in the first `searched` tokens of `text`. Documents in `text`
// end with kEnd, and an occurrence never contains kEnd. O(searched + max_match). REQUIRES: searched <= text.size() < 2^32; no token
// of the context is kEnd.
TextMatch longest_match(std::span<const std::uint32_t> text, std::size_t searched, std::span<const std::uint32_t> context, const QueryBounds& bounds);

// The draft tree of the tokens that follow the occurrences of `match` in `text`. Sorts m occurrences in O(m (max_depth + log m))
// reads (multikey_sort.h). REQUIRES: `match` was found in the same text.
DraftTree draft(std::span<const std::uint32_t> text, const TextMatch& match, std::uint32_t vocab_size, const QueryBounds& bounds);

}  // namespace suffolk
