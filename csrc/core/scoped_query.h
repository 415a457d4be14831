// Queries of one group's documents, or of these first.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "core/draft.h"
#include "core/snapshot.h"

namespace suffolk {

// Which documents a query searches.
enum class Scope {
  kStore,       // all
  kGroup,       // those of its group
  kGroupFirst,  // those of its group, then all for what is left of the tree
};

struct ScopedQuery {
  std::span<const std::uint32_t> context;
  QueryBounds bounds;
  Scope scope = Scope::kStore;
  std::uint64_t group = kNoGroup;  // with kNoGroup, kGroup finds nothing
};

// Length and count of the longest match. With kGroupFirst, all documents are searched if the group has no match.
std::pair<std::uint32_t, std::uint64_t> lookup(const Snapshot& snapshot, const ScopedQuery& query);

// The draft tree. A group's documents are read, not searched by suffixes (text_search.h); the answer is exact.
//
// With kGroupFirst, the nodes of the group's tree come first. If there are fewer than max_nodes, nodes of the tree of all documents
// follow, as far as their paths are new. The match is that of the group, if there is one. Of an added node, the score is its share
// of the match in all documents, at most the score before it; the count is at most its parent's.
//
// `vocab_size` bounds the ids of all segments. REQUIRES: `query.bounds` are checked.
DraftTree draft(const Snapshot& snapshot, const ScopedQuery& query, std::uint32_t vocab_size);

}  // namespace suffolk
