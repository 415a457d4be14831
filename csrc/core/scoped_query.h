// Queries that search only the documents of groups, or first these documents and then all documents. A group is a set of documents
// with one key.
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
  kGroup,       // the documents of the query's groups
  kGroupFirst,  // the documents of the query's groups, then all documents for the rest of the tree
};

struct ScopedQuery {
  std::span<const std::uint32_t> context;
  QueryBounds bounds;
  Scope scope = Scope::kStore;
  // The groups are searched as one group that has the documents of all of them. If several datastores are searched as one, `groups`
  // has an entry for each datastore; kNoGroup there means no group.
  std::span<const std::uint64_t> groups = {};

  bool has_group() const;  // without a group, kGroup finds nothing
};

// Runs queries on one snapshot, in one thread. Keeps the text of the last query's groups for the next query. REQUIRES: the snapshot
// outlives this object; the caller has checked the `bounds` of all queries.
class ScopedSearch {
 public:
  // `vocab_size` bounds the ids of all segments.
  ScopedSearch(const Snapshot& snapshot, std::uint32_t vocab_size) : snapshot_(snapshot), vocab_size_(vocab_size) {}

  // The length and the count of the longest match. With kGroupFirst, all documents are searched if the groups have no match.
  std::pair<std::uint32_t, std::uint64_t> lookup(const ScopedQuery& query);

  // The draft tree. The documents of a group are read from begin to end, without sorted suffixes (text_search.h). The tree is
  // exact.
  //
  // With kGroupFirst, the nodes of the group's tree come first. If these are fewer than max_nodes, nodes of the tree of all
  // documents are added, except nodes whose path the group's tree already has. The tree's match is the group's match, if the group
  // has one. The score of an added node is its share of the match in all documents, but at most the score of the node before it.
  // The count of an added node is its count in all documents, but at most its parent's count. So counts fall from parent to child,
  // but not from node to node.
  //
  // In a search of all documents, two contexts with the same match have the same draft. So the last tree is returned again for an
  // ending of the last query's context that is at least as long as the last match. REQUIRES: the memory of the last query's
  // context is still valid.
  std::shared_ptr<const DraftTree> draft(const ScopedQuery& query);

  // Up to `limit` occurrences of the whole context, spread evenly over all of them. With kGroupFirst, all documents are searched if
  // the groups have no occurrence.
  std::vector<Snapshot::Place> occurrences(const ScopedQuery& query, std::uint64_t limit);

  // The number of documents that hold the whole context, at most `most`. See Snapshot::count_documents; in groups the number is
  // exact. With kGroupFirst, all documents are counted if the groups have no such document.
  std::uint64_t count_documents(const ScopedQuery& query, std::uint64_t most);

  // The texts of these groups (Snapshot::group_text), one after another. Valid until other groups are read.
  std::span<const std::uint32_t> group_text(std::span<const std::uint64_t> groups);

 private:
  std::shared_ptr<const DraftTree> draft_store(const ScopedQuery& query);
  std::vector<Snapshot::Place> group_occurrences(const ScopedQuery& query, std::uint64_t limit);

  const Snapshot& snapshot_;
  std::uint32_t vocab_size_;
  ScopedQuery last_;                             // the last query that searched all documents
  std::shared_ptr<const DraftTree> last_draft_;  // the tree of last_; null before the first query
  std::vector<std::uint64_t> groups_;            // the groups of text_
  std::vector<std::uint32_t> text_;
};

}  // namespace suffolk
