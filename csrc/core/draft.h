// Builds draft trees. A match is the longest suffix of a context that occurs in the corpus. A draft tree is the trie of the tokens
// that follow all occurrences of the match, with exact counts (REST, He et al. 2023, section 3.2; REST counts only some
// occurrences).
#pragma once

#include <cstdint>
#include <vector>

#include "core/search.h"
#include "core/suffixes.h"

namespace suffolk {

// Nodes in falling order of count. Nodes with equal counts are in order of depth, then in the token order of their paths. Parents
// precede their children. All arrays have one length.
struct DraftTree {
  std::vector<std::uint32_t> tokens;
  std::vector<std::int32_t> parents;  // index of the parent node, -1 for a child of the context's last token
  std::vector<std::uint64_t> counts;  // occurrences that continue with the node's path
  std::uint32_t match_length = 0;
  std::uint64_t match_count = 0;
  std::vector<float> scores;  // falling; if empty, a node's score is count / match_count
};

// The tree of the tokens that follow the occurrences of `match`, cut to the `max_nodes` nodes with the highest counts. Nodes with
// fewer than least_count occurrences are left out. Paths have up to max_depth tokens and never pass a document's end. The result is
// exact for any number of occurrences, and does not depend on how the corpus is divided into segments.
//
// A node has an interval of sorted suffixes in each segment of the corpus. The nodes with the most occurrences are expanded
// first, several at once, so that their reads from memory overlap. To find a node's frequent children, the interval is sampled in
// steps shorter than the interval of a frequent child. Rarer children are not searched for once max_nodes more frequent nodes are
// known. So the cost depends on the returned nodes: each takes about (its count / the smallest returned count) token reads. The
// cost is O(occurrences) only if nearly all continuations differ, or nearly all occurrences are deleted.
//
// REQUIRES: `match` is from longest_match on the same corpus. Thread-safe.
DraftTree draft(const Corpus& corpus, const Match& match, const QueryBounds& bounds);

}  // namespace suffolk
