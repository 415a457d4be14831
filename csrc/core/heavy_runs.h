// Finds the frequent next tokens of many nodes of a draft tree. All nodes are searched at once, so that reads from memory overlap.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/search.h"
#include "core/suffixes.h"

namespace suffolk {

// A search among the suffixes with ranks in `range`, whose tokens at `depth` are in rising order. A run is a range of ranks with
// the same token at `depth`.
struct RunSearch {
  const Suffixes* suffixes = nullptr;
  std::uint32_t depth = 0;
  Interval range;
  std::uint64_t least = 1;  // ranks of the shortest run to find, at least 1
  std::uint64_t most = 0;   // ranks of the longest run to find
  std::uint32_t node = 0;   // copied to the runs that are found, as `segment` is, to identify the search
  std::uint32_t segment = 0;
};

// The ranks of a search that have `token` at its depth.
struct Run {
  std::uint32_t node;
  std::uint32_t token;
  std::uint32_t segment;
  Interval range;
};

// Appends to `runs`, in any order, every run whose length is from `least` to `most` of the search that finds it. May also append
// other runs. The end of a document does not count as a token. Takes O(range.size() / least) samples, and O(log least) further
// reads for each run. `ends` is scratch memory.
void find_heavy_runs(std::span<const RunSearch> searches, std::vector<Run>& runs, std::vector<TokenSearch>& ends);

}  // namespace suffolk
