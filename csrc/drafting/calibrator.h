// Estimates the acceptance probability of retrieved tokens, and learns it while decoding.
//
// A share of counts is not a probability. If one token always followed a match of two tokens, it still is not certain to be
// accepted. A share means different probabilities in a corpus and in the context of the request. So each source has its own tables.
// For each kind of node, a table holds how often a node with an accepted parent was accepted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafting/reliability.h"

namespace suffolk::drafting {

// Log-odds of acceptance before anything is learned. They are linear in log(match length), the log-odds of the share,
// log(parent's count) and log(depth).
struct Prior {
  double constant, match, share, count, depth;
};

// A tree with the counts of its source (see tree.h); a view of the caller's memory.
struct CountedTree {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> parents;
  std::span<const std::uint64_t> counts;  // occurrences that continue with a node's path; if empty, 1 for each node
  std::uint64_t match_length = 0;         // tokens at the context's end that were found
  std::uint64_t match_count = 0;          // how often these tokens were found
};

// P(node accepted | parent accepted) by match length, share, count and depth, for one source. Not thread-safe.
//
// A fine table is smoothed towards a coarse one (match length and share), and the coarse one towards the prior. All counts are
// multiplied by `decay` for each observed tree. `score` and `learn` throw kInvalidArgument, and change nothing, if the columns are
// no tree.
class Calibrator {
 public:
  Calibrator(const Prior& prior, double decay);

  // The reliability diagram of the estimates.
  Reliability reliability;

  // Writes the estimated probability, in 0..1, that each node's whole path is accepted. The scores of a node's children add up to
  // at most the node's score, because at most one child is accepted. O(n)
  // REQUIRES: scores has an entry for each node
  void score(const CountedTree& tree, std::span<float> scores) const;

  // Counts the outcome of a tree. `tokens` are the tokens that followed the context. O(n) for each accepted token, and about 2,000
  // multiplications for the decay.
  void learn(const CountedTree& tree, std::span<const std::int32_t> tokens);

  // The tables, for `restore`: the counts `hits` and `seen` of each cell.
  std::vector<double> state() const;

  // Replaces all counts by the counts of another calibrator. Throws kInvalidArgument, and changes nothing, if `state`
  // has another size, an infinite, NaN or negative entry, or more hits than seen.
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
