// Merges a slice of the sorted suffixes of several segments by a tournament (a loser tree).
#pragma once

#include <cstdint>
#include <span>

#include "core/kept_tokens.h"
#include "core/suffix_order.h"
#include "core/suffixes.h"

namespace suffolk {

// The position of the suffix with this rank. Throws kCorruption if it lies outside the tokens. REQUIRES: rank < suffixes.count
std::uint32_t checked_position(const Suffixes& suffixes, std::uint64_t rank);

// Takes the suffixes with ranks ranks[i] from each segments[i], and drops the suffixes of deleted documents. Writes the new
// positions of the others to `out`, in suffix order over all segments. Returns the end of what was written: at most one position
// for each rank.
//
// Each segment is read ahead in blocks, so that reads from memory overlap. Takes some KiB of memory for each segment.
// O(log segments) comparisons for each suffix. Thread-safe.
// Throws kCorruption for a position that lies outside its segment.
std::uint32_t* merge_ranks(std::span<const Suffixes> segments, std::span<const KeptTokens> kept, const SuffixOrder& order,
                           std::span<const Interval> ranks, std::uint32_t* out);

}  // namespace suffolk
