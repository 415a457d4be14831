// Merges draft trees whose scores are on one scale.
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

// The trie of all trees, sorted by falling score with parents first, cut to `max_nodes`. Ties keep the order of the input.
//
// A score is the probability that a node's whole path is accepted. A source's estimate for a node is its score divided by its
// parent's. The highest estimate of all sources is used, because sources often repeat each other and their agreement is weak
// evidence. At most one child is accepted, so the estimates of siblings are scaled down if their sum exceeds 1. A merged score is
// the product of the estimates along the path.
//
// O(n log n) for n nodes in all. Throws kInvalidArgument if columns are no tree, or scores break the rules of ScoredTree.
MergedTree merge(std::span<const ScoredTree> trees, std::size_t max_nodes);

// The trees of one source. For each request, a factor multiplies the scores.
struct ScaledPart {
  DraftPart part;
  std::vector<float> factors;
};

// Merges the trees of all parts: a tree for each entry of `max_nodes`. Throws as `merge`, or if a part has a wrong place.
Trees merge(std::span<const ScaledPart> parts, std::span<const std::size_t> max_nodes);

// The expected value of the trees of one source.
struct Judgement {
  Drafts first;                      // the first level of each request's merged tree; no tree for a request without nodes
  std::vector<double> first_scores;  // the sum of their scores
  std::vector<double> likely;        // expected tokens of the best tree, counting only nodes with scaled scores of at least `least`
};

// REQUIRES: the spans have an entry for each request of `drafts`. Throws as `merge`.
Judgement judge(const Drafts& drafts, std::span<const std::size_t> max_nodes, std::span<const float> factors, std::span<const float> least);

}  // namespace suffolk::drafting
