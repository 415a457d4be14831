// Estimates the acceptance probability of retrieved tokens, and learns it while decoding.
//
// A count ratio of 1 at a match of two tokens is no probability of 1. The same ratio means different things in a corpus and in the
// text of the request. So each source has its own tables: per kind of node, how often a node with an accepted parent was accepted.
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

// A tree with the counts of its source (see tree.h); a view of the caller's memory.
struct CountedTree {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> parents;
  std::span<const std::uint64_t> counts;  // occurrences that go on with a node's path; as many as nodes, or none: then 1 each
  std::uint64_t match_length = 0;         // tokens at the context's end that were found
  std::uint64_t match_count = 0;          // how often they were found
};

// The outcome of a verified tree: for each node whose parent was accepted, the estimate before and whether the node was accepted.
struct Evidence {
  std::vector<float> chances;  // P(node accepted | parent accepted)
  std::vector<std::uint8_t> taken;
};

// P(node accepted | parent accepted) by match length, share, count and depth, for one source. Not thread-safe.
//
// A fine table is smoothed towards a coarse one (match length and share), and that towards the prior. All counts are multiplied by
// `decay` per observed tree. `score` and `learn` throw kInvalidArgument, and change nothing, if the columns are no tree.
class Calibrator {
 public:
  Calibrator(const Prior& prior, double decay);

  // Writes the estimated probability that each node's whole path is accepted, in 0..1. The children of a node add up to at most
  // their parent's score, because at most one of them is accepted. O(n)
  // REQUIRES: scores has an entry a node
  void score(const CountedTree& tree, std::span<float> scores) const;

  // Counts the outcome of a tree. `tokens` followed the context; nodes whose parent's path they contain are evidence, which is
  // returned node by node. O(n) for each token that the tree holds, and about 2,000 multiplications for the decay.
  Evidence learn(const CountedTree& tree, std::span<const std::int32_t> tokens);

  // Hits and seen of each cell in turn, for `restore`.
  std::vector<double> state() const;

  // Replaces all counts by those of another calibrator. Throws kInvalidArgument, and changes nothing, if `state` has another size,
  // an entry that is not finite or below 0, or more hits than seen.
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
