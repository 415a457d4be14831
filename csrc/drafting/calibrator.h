// From what a source found to the probability that the target follows it: learned while decoding.
//
// A count ratio of 1 at a match of two tokens is no probability of 1, and the same ratio means different things in a corpus and
// in the request's own text. So each source counts, per kind of node, how often the target took a node whose parent it took.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace suffolk::drafting {

// Log-odds of acceptance before anything is learned: linear in log(match length), log-odds of the share, log(parent's count) and
// log(depth).
struct Prior {
  double constant, match, share, count, depth;
};

// A tree as a source found it (see tree.h), in the memory of whoever asks.
struct CountedTree {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> parents;
  std::span<const std::uint64_t> counts;  // occurrences that go on with a node's path; as many as nodes, or none: then 1 each
  std::uint64_t match_length = 0;         // tokens at the context's end that were found
  std::uint64_t match_count = 0;          // how often they were found
};

// What the target made of a tree: for each node whose parent it took, what was expected before, and whether it took the node.
struct Evidence {
  std::vector<float> chances;  // P(node accepted | parent accepted)
  std::vector<std::uint8_t> taken;
};

// P(node accepted | parent accepted) by match length, share, count and depth, for one source. Not thread-safe.
//
// A fine table leans on a coarse one (match length and share), which leans on the prior; old evidence fades with `decay` per
// observed tree. `score` and `learn` throw kInvalidArgument, and learn nothing, if the columns are no tree.
class Calibrator {
 public:
  Calibrator(const Prior& prior, double decay);

  // Writes the estimated probability that each node's whole path is accepted, in 0..1. A child's never exceeds its parent's, and
  // those of the children of one node add up to their parent's at most: the target takes one of them. O(n)
  // REQUIRES: scores has an entry a node
  void score(const CountedTree& tree, std::span<float> scores) const;

  // Counts what the target's tokens, which followed the context, say about the tree: only nodes whose parent's path they contain
  // are evidence, which is returned, node by node. O(n) for each token that the tree has, and O(1), some 2,000 sums, for the fading.
  Evidence learn(const CountedTree& tree, std::span<const std::int32_t> tokens);

  // All that was learned: hits and seen of each cell in turn, to be given to `restore`.
  std::vector<double> state() const;

  // Takes over what another calibrator learned. Throws kInvalidArgument, and keeps what it has, if `state` has another size, or an
  // entry that is not finite, below 0, or more hits than were seen.
  void restore(std::span<const double> state);

 private:
  struct Tally {
    double hits = 0, seen = 0;
  };
  struct Kind;
  class Kinds;

  double chance(const Kind& kind) const;

  Prior prior_;
  double decay_;
  std::vector<Tally> coarse_, fine_;
};

}  // namespace suffolk::drafting
