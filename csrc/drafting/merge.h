// One draft tree of several whose scores are on one scale.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace suffolk::drafting {

// A tree (see tree.h) in the memory of whoever asks; all columns of one length.
struct ScoredTree {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> parents;
  std::span<const float> scores;          // in 0..1; a child's at most its parent's
  std::span<const std::uint8_t> sources;  // marks of who proposed a node
};

struct MergedTree {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  std::vector<std::uint8_t> sources;
};

// The trie of all trees, sorted by falling score with parents first, cut to `max_nodes`; of equals, what came first.
//
// A score is the chance that a node's whole path is accepted; over its parent's it is the chance of the node behind its parent, which
// is what a source knows. So each source's chance of a node counts whatever it thinks of the path above: where several propose a
// node it gets all their marks and the highest of their chances, and, since sources read related text, half of what another one
// would add if it were independent: 1 - (1 - high) * sqrt(1 - low). A source's further opinion (its mark is there already) adds
// nothing to its highest, and nodes without a mark only lead to others. The chances of one node's children are brought down to a
// sum of 1, as the target takes one of them; scores are products of chances along the path.
//
// O(n log n) for n nodes in all. Throws kInvalidArgument if columns are no tree, or scores not as said above.
MergedTree merge(std::span<const ScoredTree> trees, std::size_t max_nodes);

}  // namespace suffolk::drafting
