// One draft tree of several whose scores are on one scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drafting/tree.h"

namespace suffolk::drafting {

constexpr std::size_t kSources = 32;  // one for each bit of a mark

// How much a source's chances count beside those of others.
struct PoolWeight {
  double weight;    // above 0
  double unlisted;  // logarithm of what it leaves any one token that it does not propose, as a share of what it leaves to all others
  double doubt;     // a source that expects less than this of all its nodes has little to say of others' either; 0 or more
};

struct MergedTree {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  std::vector<std::uint32_t> sources;
};

// The trie of all trees, sorted by falling score with parents first, cut to `max_nodes`; of equals, what came first.
//
// A score is the chance that a node's whole path is accepted; over its parent's it is the chance of the node behind its parent, which
// is what a source knows. So each source's opinion of a node counts whatever it thinks of the path above, and scores are products of
// chances along the path. A source is known by its bit (where a node has several, its score is the opinion of the lowest); of what it
// says twice the higher counts; nodes without a mark only lead to others.
//
// Behind a node on which one source alone has an opinion, its chances count as they are, brought down to a sum of 1. Several are pooled:
// the logarithm of a child's chance is the weighted sum of those that the sources give it, and the weights of n sources of one
// weight add up to sqrt(n): they read related text. A source that does not propose a child leaves it a share of its rest, and counts the
// less the less it expects of its own. At most one child is right: chances and the chance of none are brought to a sum of 1.
//
// `weights` has an entry for each source, by its bit. O(n log n) for n nodes in all. Throws kInvalidArgument if columns are no tree, scores
// not as described above, or weights not finite or out of their range.
MergedTree merge(std::span<const ScoredTree> trees, std::span<const PoolWeight, kSources> weights, std::size_t max_nodes);

}  // namespace suffolk::drafting
