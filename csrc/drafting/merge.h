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
// A path that several propose is one node with all their marks and the highest of their scores: the sources read related text, so
// their agreement is no independent evidence, and the highest keeps a child's score at most its parent's.
//
// O(n log n) for n nodes in all. Throws kInvalidArgument if columns are no tree, or scores not as said above.
MergedTree merge(std::span<const ScoredTree> trees, std::size_t max_nodes);

}  // namespace suffolk::drafting
