// Builds draft trees: the trie of the continuations of all occurrences of a match, by exact counts (REST, He et al. 2023,
// section 3.2; REST counts only some occurrences).
#pragma once

#include <cstdint>
#include <vector>

#include "core/search.h"
#include "core/suffixes.h"

namespace suffolk {

// Nodes in falling order of count. Of equal counts, the shallower node is first, then the path that is smaller in token order.
// Parents precede their children. All arrays have one length.
struct DraftTree {
  std::vector<std::uint32_t> tokens;
  std::vector<std::int32_t> parents;  // index of the parent node, -1 for a child of the context's last token
  std::vector<std::uint64_t> counts;  // occurrences that continue with the node's path
  std::uint32_t match_length = 0;
  std::uint64_t match_count = 0;
  std::vector<float> scores;  // of each node, in falling order; empty: count / match_count
};

// The `max_nodes` best nodes of the trie of the continuations of `match` that have at least least_count occurrences. Paths have up to
// max_depth tokens and never pass a document's end. The result is exact for any number of occurrences. It does not depend on the
// division of the corpus into segments and deletions.
//
// A node has an interval in each segment and deletion. The nodes with the most occurrences are expanded next. Several are expanded
// at once, so that their reads from memory overlap. Their heaviest children are found first, by samples of the sorted interval in
// steps shorter than a heavy child. Lighter children are not searched for once max_nodes heavier nodes are known. So the cost
// depends on the returned nodes: each takes about (its count / the smallest returned count) token reads. It is O(occurrences) only
// if nearly all continuations differ, or nearly all occurrences are deleted.
//
// REQUIRES: `match` is from longest_match on the same corpus. Thread-safe.
DraftTree draft(const Corpus& corpus, const Match& match, const QueryBounds& bounds);

}  // namespace suffolk
