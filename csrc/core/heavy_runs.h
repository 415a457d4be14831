// Finds the frequent next tokens of many nodes. It searches all nodes at once, so that reads from memory overlap.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/search.h"
#include "core/suffixes.h"

namespace suffolk {

// A search for the runs of equal tokens at `depth` in `range`.
struct RunSearch {
  const Suffixes* suffixes = nullptr;
  std::uint32_t depth = 0;
  Interval range;
  std::uint64_t least = 1;  // ranks of the shortest run to find, at least 1
  std::uint64_t most = 0;   // ranks of the longest run to find
  std::uint32_t node = 0;   // identifies the search in its runs, together with `segment`
  std::uint32_t segment = 0;
};

// The ranks of a search with `token`.
struct Run {
  std::uint32_t node;
  std::uint32_t token;
  std::uint32_t segment;
  Interval range;
};

// Appends to `runs`, in any order, every run whose length lies in the `least` to `most` of its search. May also append other runs.
// The end of a document is no token. O(range.size() / least) samples, and O(log least) more reads for each run. `ends` is scratch.
void find_heavy_runs(std::span<const RunSearch> searches, std::vector<Run>& runs, std::vector<TokenSearch>& ends);

}  // namespace suffolk
