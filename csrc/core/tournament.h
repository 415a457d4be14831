// Merges a slice of the sorted suffixes of several segments with a loser tree.
#pragma once

#include <cstdint>
#include <span>

#include "core/kept_tokens.h"
#include "core/suffix_order.h"
#include "core/suffixes.h"

namespace suffolk {

// The position of the suffix of a rank. Throws kCorruption if it lies outside the tokens. REQUIRES: rank < suffixes.count
std::uint32_t checked_position(const Suffixes& suffixes, std::uint64_t rank);

// Writes to `out` the new positions of the kept suffixes with ranks ranks[i] in segments[i], in suffix order over all segments.
// Returns the end of the written positions: at most one for each rank.
//
// Each segment is read ahead in blocks, so that reads from memory overlap. Takes some KiB of memory for each segment.
// O(log segments) comparisons for each suffix. Thread-safe.
// Throws kCorruption for a position that lies outside its segment.
std::uint32_t* merge_ranks(std::span<const Suffixes> segments, std::span<const KeptTokens> kept, const SuffixOrder& order,
                           std::span<const Interval> ranks, std::uint32_t* out);

}  // namespace suffolk
