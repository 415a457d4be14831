// Merges draft trees whose scores are comparable: estimated probabilities of acceptance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drafting/tree.h"
#include "drafting/trees.h"

namespace suffolk::drafting {

struct MergedTree {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  std::vector<std::uint32_t> sources;
};

// Merges the trees into one trie, and returns its `max_nodes` best nodes by falling score, parents first. Nodes with equal scores
// keep the order of the input.
//
// A score is the probability that a node's whole path is accepted. So a source's estimate for a node alone is the node's score
// divided by its parent's score. The highest estimate of all sources is used: sources often repeat each other, so their agreement
// is weak evidence. At most one child is accepted, so the estimates of siblings are scaled down if their sum exceeds 1. A merged
// score is the product of the estimates along the path.
//
// O(n log n) for n nodes in all. Throws kInvalidArgument if the columns do not form a tree, or scores break the rules of
// ScoredTree.
MergedTree merge(std::span<const ScoredTree> trees, std::size_t max_nodes);

// The trees of one source, with a factor for each request that multiplies the scores.
struct ScaledPart {
  DraftPart part;
  std::vector<float> factors;
};

// Merges the trees of all parts into one tree for each request. `max_nodes` has an entry for each request. Throws the errors of the
// function above, and kInvalidArgument if a part names a request that does not exist.
Trees merge(std::span<const ScaledPart> parts, std::span<const std::size_t> max_nodes);

// What the trees of one source are expected to add.
struct Judgement {
  Drafts first;                      // the first level of each request's merged tree; a request without nodes has no tree
  std::vector<double> first_scores;  // for each request, the sum of the scores in `first`
  std::vector<double> likely;        // for each request, the expected tokens of the best tree: the sum of its scaled scores of at least `least`
};

// Judges the trees of one source. A scaled score is the score times the request's entry of `factors`. REQUIRES: each span has an
// entry for each request of `drafts`. Throws the errors of `merge`.
Judgement judge(const Drafts& drafts, std::span<const std::size_t> max_nodes, std::span<const float> factors, std::span<const float> least);

}  // namespace suffolk::drafting
