// Queries of the documents of groups, or of these first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/draft.h"
#include "core/snapshot.h"

namespace suffolk {

// Which documents a query searches.
enum class Scope {
  kStore,       // all
  kGroup,       // those of its groups
  kGroupFirst,  // those of its groups, then all for what is left of the tree
};

struct ScopedQuery {
  std::span<const std::uint32_t> context;
  QueryBounds bounds;
  Scope scope = Scope::kStore;
  // Searched as one group that has the documents of all: in several datastores as one, a group of each. kNoGroup stands for none.
  std::span<const std::uint64_t> groups = {};

  bool has_group() const;  // without one, kGroup finds nothing
};

// Queries of one snapshot, by one thread. It keeps the text of the last groups for the next query. REQUIRES: the snapshot outlives it;
// the `bounds` of all queries are checked.
class ScopedSearch {
 public:
  // `vocab_size` bounds the ids of all segments.
  ScopedSearch(const Snapshot& snapshot, std::uint32_t vocab_size) : snapshot_(snapshot), vocab_size_(vocab_size) {}

  // Length and count of the longest match. With kGroupFirst, all documents are searched if the group has no match.
  std::pair<std::uint32_t, std::uint64_t> lookup(const ScopedQuery& query);

  // The draft tree. A group's documents are read, not searched by suffixes (text_search.h); the answer is exact.
  //
  // With kGroupFirst, the nodes of the group's tree come first. If there are fewer than max_nodes, nodes of the tree of all documents
  // follow, as far as their paths are new. The match is that of the group, if there is one. Of an added node, the score is its share
  // of the match in all documents, at most the score before it. The count is its count in all documents or its parent's count,
  // whichever is lower. So counts fall from parent to child, but not from node to node.
  //
  // In all documents, an ending of the last query's context that is at least as long as the match has the same draft. Then the same
  // tree is returned. REQUIRES: the last query's context is still there.
  std::shared_ptr<const DraftTree> draft(const ScopedQuery& query);

  // Up to `limit` occurrences of the whole context, spread evenly. With kGroupFirst, all documents are searched if the group has none.
  std::vector<Snapshot::Place> occurrences(const ScopedQuery& query, std::uint64_t limit);

  // The number of documents that hold the whole context, at most `most`. See Snapshot::count_documents; in groups it is exact. With
  // kGroupFirst, all documents are counted if the group has none.
  std::uint64_t count_documents(const ScopedQuery& query, std::uint64_t most);

  // See Snapshot::group_text; that of one group after the other. Valid until other groups are read.
  std::span<const std::uint32_t> group_text(std::span<const std::uint64_t> groups);

 private:
  std::shared_ptr<const DraftTree> draft_store(const ScopedQuery& query);
  std::vector<Snapshot::Place> group_occurrences(const ScopedQuery& query, std::uint64_t limit);

  const Snapshot& snapshot_;
  std::uint32_t vocab_size_;
  ScopedQuery last_;                             // the last query of all documents
  std::shared_ptr<const DraftTree> last_draft_;  // its tree; null before the first
  std::vector<std::uint64_t> groups_;            // of text_
  std::vector<std::uint32_t> text_;
};

}  // namespace suffolk
