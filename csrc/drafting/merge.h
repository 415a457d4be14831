// Merges draft trees whose scores are on one scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drafting/tree.h"

namespace suffolk::drafting {

constexpr std::size_t kSources = 32;  // bits of a column `sources`

// The weight of one source's probabilities.
struct PoolWeight {
  double weight;    // above 0
  double unlisted;  // log of the share that an unproposed token gets of the probability left by the source's own tokens
  double doubt;     // 0 or more; the weight falls if the source's tokens have a lower total probability
};

struct MergedTree {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  std::vector<std::uint32_t> sources;
};

// The trie of all trees, sorted by falling score with parents first, cut to `max_nodes`. Ties keep the order of the input.
//
// A score is the probability that a node's whole path is accepted. A source's estimate for a node is its score divided by its
// parent's. Estimates are pooled for each node, and multiplied along the path. A source is identified by its bit. The score of
// a node with several bits belongs to the lowest. If a source proposes a node twice, the higher score counts. Nodes without a
// bit have no estimate; they only lead to other nodes.
//
// If one source alone proposes children of a node, its estimates are not pooled. They are scaled down if their sum exceeds 1. The
// estimates of several sources are pooled: a child's log probability is the weighted sum of the logs of its estimates. The weights
// of n equal sources add up to sqrt(n), because their texts are correlated. A source that does not propose a child gives it a share
// of its remaining probability. The less probability a source gives to its own children, the less it counts. At most one child is
// accepted, so the probabilities of the children and of none are normalized to a sum of 1.
//
// `weights` has an entry for each source, by its bit. O(n log n) for n nodes in all. Throws kInvalidArgument if columns are no
// tree, scores break the rules of ScoredTree, or weights are not finite or out of range.
MergedTree merge(std::span<const ScoredTree> trees, std::span<const PoolWeight, kSources> weights, std::size_t max_nodes);

}  // namespace suffolk::drafting
