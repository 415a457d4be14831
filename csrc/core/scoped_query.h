// Queries that search the documents of groups, either alone or before all documents.
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
  kGroup,       // the documents of its groups
  kGroupFirst,  // the documents of its groups, then all for the rest of the tree
};

struct ScopedQuery {
  std::span<const std::uint32_t> context;
  QueryBounds bounds;
  Scope scope = Scope::kStore;
  // The groups are searched as one group that has all their documents. If several datastores are searched as one, each of
  // them has a group here. kNoGroup: none.
  std::span<const std::uint64_t> groups = {};

  bool has_group() const;  // without one, kGroup finds nothing
};

// Runs queries of one snapshot, in one thread. Keeps the text of the last groups for the next query. REQUIRES: the snapshot
// outlives this object; the `bounds` of all queries are checked.
class ScopedSearch {
 public:
  // `vocab_size` bounds the ids of all segments.
  ScopedSearch(const Snapshot& snapshot, std::uint32_t vocab_size) : snapshot_(snapshot), vocab_size_(vocab_size) {}

  // Length and count of the longest match. With kGroupFirst, all documents are searched if the group has no match.
  std::pair<std::uint32_t, std::uint64_t> lookup(const ScopedQuery& query);

  // The draft tree. A group's documents are read, not searched by suffixes (text_search.h); the answer is exact.
  //
  // With kGroupFirst, the nodes of the group's tree come first. If there are fewer than max_nodes, nodes of the tree of all documents
  // follow, unless the group's tree has their paths. The match is the group's match, if there is one. The score of an added node
  // is its share of the match in all documents, cut to the score of the node before it. Its count is its count in all
  // documents or its parent's count, whichever is lower. So counts fall from parent to child, but not from node to
  // node.
  //
  // In all documents, two contexts with the same match have the same draft. So the last tree is returned again if the context
  // is an ending of the last query's context and contains the last match. REQUIRES: the last query's context still exists.
  std::shared_ptr<const DraftTree> draft(const ScopedQuery& query);

  // Up to `limit` occurrences of the whole context, spread evenly. With kGroupFirst, all documents are searched if the group has none.
  std::vector<Snapshot::Place> occurrences(const ScopedQuery& query, std::uint64_t limit);

  // The number of documents that hold the whole context, at most `most`. See Snapshot::count_documents; in groups it is exact. With
  // kGroupFirst, all documents are counted if the group has none.
  std::uint64_t count_documents(const ScopedQuery& query, std::uint64_t most);

  // The texts of these groups (Snapshot::group_text), one after another. Valid until other groups are read.
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
