// Draft trees: the trie of what follows all occurrences of a match, by exact counts (REST, He et al. 2023, section 3.2,
// without its cut at the first occurrences).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/search.h"
#include "core/suffixes.h"

namespace suffolk {

// Nodes in falling order of count; ties: shallower first, then the path that is smaller in token order. Parents precede
// their children. Arrays of one length.
struct DraftTree {
  std::vector<std::uint32_t> tokens;
  std::vector<std::int32_t> parents;  // index of the parent node, -1 for a child of the context's last token
  std::vector<std::uint64_t> counts;  // occurrences that continue with the node's path
  std::uint32_t match_length = 0;
  std::uint64_t match_count = 0;
};

// The `max_nodes` best nodes of the trie of what follows `match`, up to max_depth tokens and never past a document's end.
// Exact whatever the number of occurrences, and the same for any cut of a corpus into segments and deletions.
//
// A node is an interval per segment and per deletion. The best open node is expanded next, its heaviest children first. They are
// found by sampling the sorted interval in steps shorter than a heavy child. Lighter children are never searched for once max_nodes
// heavier nodes are known. So the cost follows the returned nodes: each takes about as many token reads as its count is a multiple of
// the smallest count returned. O(occurrences) only when nearly all continuations differ, or nearly all occurrences are deleted.
//
// REQUIRES: match came from longest_match on the same corpus. Thread-safe.
DraftTree draft(const Corpus& corpus, const Match& match, const QueryBounds& bounds);

}  // namespace suffolk
