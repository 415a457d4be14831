// Estimates the acceptance probability of retrieved tokens, and learns it while decoding.
//
// A node's share is its count divided by its parent's count, or by the count of the match at depth 1. A share is not a probability:
// a token that always followed a match of two tokens may still be rejected. The same share also means one probability in a corpus
// and another in the context of a request. So each source has its own tables. They count, for each kind of node, how often a node
// with an accepted parent was accepted.
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

// A tree (see tree.h) with the counts of the source that proposed it. A view of the caller's memory.
struct CountedTree {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> parents;
  std::span<const std::uint64_t> counts;  // occurrences that continue with a node's path; if empty, each count is 1
  std::uint64_t match_length = 0;         // tokens at the context's end that were found
  std::uint64_t match_count = 0;          // how often these tokens were found
};

// P(node accepted | parent accepted) by match length, share, count and depth, for one source. Not thread-safe.
//
// Estimates of a fine table are smoothed towards the estimates of a coarse table (match length and share only), and coarse
// estimates towards the prior. Each observed tree first multiplies all counts by `decay`. If the columns do not form a tree,
// `score` and `learn` throw kInvalidArgument and change nothing.
class Calibrator {
 public:
  Calibrator(const Prior& prior, double decay);

  // The reliability diagram of the estimates.
  Reliability reliability;

  // Writes the estimated probability, in 0..1, that each node's whole path is accepted. The scores of a node's children add up to
  // at most the node's score, because at most one child is accepted. O(n)
  // REQUIRES: scores has an entry for each node
  void score(const CountedTree& tree, std::span<float> scores) const;

  // Learns which nodes of a tree were accepted. `tokens` are the tokens that followed the context. Takes O(n) for each accepted
  // token, and about 2,000 multiplications for the decay.
  void learn(const CountedTree& tree, std::span<const std::int32_t> tokens);

  // The tables, for `restore`: the counts `hits` and `seen` of each cell.
  std::vector<double> state() const;

  // Replaces all counts by `state`, which another calibrator's `state()` returned. Throws kInvalidArgument and changes nothing if
  // the size is wrong, an entry is infinite, NaN or negative, or a cell has more hits than seen.
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
