// Random trees, and counted expectations, for the tests of drafting.
#pragma once

#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "core/error.h"
#include "drafting/calibrator.h"
#include "drafting/tree.h"

namespace suffolk::drafting {

inline int failures = 0;

inline void expect(bool condition, const char* what) {
  if (condition) return;
  ++failures;
  std::printf("FAILED: %s\n", what);
}

template <typename Work>
bool refused(Work work) {
  try {
    work();
    return false;
  } catch (const Error& error) { return error.code() == Code::kInvalidArgument; }
}

struct Columns {
  std::vector<std::int32_t> tokens, parents;
  std::vector<std::uint64_t> counts;
  std::vector<float> scores;
  std::vector<std::uint32_t> sources;
  std::uint64_t match_length = 0, match_count = 0;

  CountedTree counted() const {
    return {.tokens = tokens, .parents = parents, .counts = counts, .match_length = match_length, .match_count = match_count};
  }
  ScoredTree scored() const { return {.tokens = tokens, .parents = parents, .scores = scores, .sources = sources}; }
};

inline float above(const std::vector<float>& scores, std::int32_t parent) { return parent < 0 ? 1.0F : scores[static_cast<std::size_t>(parent)]; }

inline Columns random_tree(std::mt19937_64& random, std::size_t size) {
  Columns tree;
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  for (std::size_t node = 0; node < size; ++node) {
    tree.tokens.push_back(static_cast<std::int32_t>(below(4)));
    tree.parents.push_back(static_cast<std::int32_t>(below(node + 1)) - 1);
    tree.counts.push_back(below(5) == 0 ? random() : below(20));
    tree.scores.push_back(above(tree.scores, tree.parents.back()) * static_cast<float>(below(5)) / 4);
    tree.sources.push_back(std::uint32_t{1} << (size % 2 == 0 ? below(3) : below(32)));
  }
  if (below(4) == 0) tree.counts.clear();
  tree.match_length = below(20);
  tree.match_count = below(5) == 0 ? random() : below(40);
  return tree;
}

}  // namespace suffolk::drafting
