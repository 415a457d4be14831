// Merges draft trees whose scores are on one scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drafting/tree.h"

namespace suffolk::drafting {

constexpr std::size_t kSources = 32;  // one for each bit of a mark

// The weight of a source's probabilities beside those of others.
struct PoolWeight {
  double weight;    // above 0
  double unlisted;  // logarithm of the share that one token gets of the probability that the source leaves to tokens it does not propose
  double doubt;     // the weight falls when the source expects less than this of all its nodes; 0 or more
};

struct MergedTree {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  std::vector<std::uint32_t> sources;
};

// The trie of all trees, sorted by falling score with parents first, cut to `max_nodes`. Ties keep the order of the input.
//
// A score is the probability that a node's whole path is accepted. Divided by the parent's score it is the probability of the node
// given its parent, which is the estimate of a source. Estimates are pooled per node and multiplied along the path. A source is
// identified by its bit. The score of a node with several bits belongs to the lowest. If a source proposes a node twice, the higher
// score counts. Nodes without a bit only lead to others.
//
// If one source alone proposes children of a node, its probabilities count unchanged, scaled down to a sum of at most 1.
// Several sources are pooled: the logarithm of a child's probability is the weighted sum of the sources' logarithms. The
// weights of n equally weighted sources add up to sqrt(n), because their texts are related. A source that does not propose a
// child gives it a share of its remaining probability. A source counts less, the less probability it gives to its own children.
// At most one child is accepted, so the probabilities of the children and of none are normalized to a sum of 1.
//
// `weights` has an entry for each source, by its bit. O(n log n) for n nodes in all. Throws kInvalidArgument if columns are no
// tree, scores break the rules of ScoredTree, or weights are not finite or out of range.
MergedTree merge(std::span<const ScoredTree> trees, std::span<const PoolWeight, kSources> weights, std::size_t max_nodes);

}  // namespace suffolk::drafting
