// Draft trees of many contexts. One object owns the columns of all trees, so that no call allocates an object for each tree or
// node.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/draft.h"
#include "drafting/calibrator.h"
#include "drafting/tree.h"

namespace suffolk::drafting {

// A list of trees. A view of a tree is valid until another tree is added. Not thread-safe.
class Trees {
 public:
  std::size_t size() const noexcept { return trees_.size(); }
  std::size_t nodes(std::size_t tree) const { return trees_[tree].size; }
  bool partial(std::size_t tree) const { return trees_[tree].partial; }
  bool has_counts(std::size_t tree) const { return trees_[tree].has_counts; }
  ScoredTree scored(std::size_t tree) const;
  CountedTree counted(std::size_t tree) const;
  std::span<float> scores(std::size_t tree) { return part<float>(scores_, trees_[tree]); }

  // Adds a tree that an index drafted, and sets the source of all nodes to `source`. If the tree has no scores, a node's score is
  // its count divided by the number of occurrences of the match.
  void add(const DraftTree& tree, std::uint32_t source);
  // Adds a tree, given as columns. If `counted` has no counts, each count is 1. REQUIRES: all columns have one length
  void add(const ScoredTree& tree, const CountedTree& counted, bool partial);
  // Adds the first `most` nodes of a tree of `other`, or all nodes if there are fewer.
  void add(const Trees& other, std::size_t tree, std::size_t most);

 private:
  struct Tree {
    std::size_t begin, size;
    std::uint64_t match_length, match_count;
    bool partial, has_counts;
  };

  template <typename T, typename Column>
  static std::span<T> part(Column& column, const Tree& tree) {
    return std::span<T>(column).subspan(tree.begin, tree.size);
  }

  std::vector<std::int32_t> tokens_, parents_;
  std::vector<float> scores_;
  std::vector<std::uint32_t> sources_;
  std::vector<std::uint64_t> counts_;
  std::vector<Tree> trees_;
};

// The trees of several requests, one request after another.
class Drafts {
 public:
  // `counts`: the number of trees of each request. Throws kInvalidArgument unless the counts add up to the number of trees.
  Drafts(Trees trees, std::span<const std::size_t> counts);
  Drafts() = default;

  std::size_t size() const noexcept { return ends_.size(); }
  std::size_t begin(std::size_t request) const { return request == 0 ? 0 : ends_[request - 1]; }
  std::size_t end(std::size_t request) const { return ends_[request]; }

  void end_request() { ends_.push_back(trees.size()); }

  Trees trees;

 private:
  std::vector<std::size_t> ends_;  // where the trees of each request end in `trees`
};

// For each request and each match length, the largest tree. Trees of one match length differ only in where they were cut. The match
// lengths of a request are in the order in which they first appear. Trees without nodes are left out. `counts`: the number of trees
// of each request. Throws kInvalidArgument if the sum of `counts` is above the number of trees.
Drafts largest_trees(const Trees& trees, std::span<const std::size_t> counts);

// The trees of one source in a draft of several requests.
struct DraftPart {
  const Drafts* drafts;
  std::vector<std::size_t> requests;  // for each of the source's requests, its index in the draft
};

// Throws kInvalidArgument unless each index in part.requests is below `requests`, and there are as many indices as requests in
// part.drafts.
void require_places(const DraftPart& part, std::size_t requests);

// The trees of all parts, ordered by request, and by part within a request. Throws the errors of require_places.
Drafts gather(std::span<const DraftPart> parts, std::size_t requests);

}  // namespace suffolk::drafting
