// Merges draft trees whose scores are on one scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drafting/tree.h"

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
// parent's. The highest estimate of all sources counts: sources often repeat each other, so their agreement is weak evidence. At
// most one child is accepted, so the estimates of siblings are scaled down if their sum exceeds 1. They are multiplied along the
// path.
//
// O(n log n) for n nodes in all. Throws kInvalidArgument if columns are no tree, or scores break the rules of ScoredTree.
MergedTree merge(std::span<const ScoredTree> trees, std::size_t max_nodes);

}  // namespace suffolk::drafting
