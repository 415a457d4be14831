// Merges one stretch of the suffixes of several segments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kept_tokens.h"
#include "core/suffix_order.h"
#include "core/suffixes.h"

namespace suffolk {

// The position of the suffix of a rank. Throws kCorruption if it lies outside the tokens. REQUIRES: rank < suffixes.count
std::uint32_t checked_position(const Suffixes& suffixes, std::uint64_t rank);

// The new positions of the kept suffixes in ranks[i] of segments[i], for all segments in one order.
//
// A loser tree over the segments' next suffixes; each is read ahead in blocks, so that the waits for memory overlap.
// Memory beside the answer: some KiB a segment. Time: O(log segments) comparisons a suffix. Thread-safe.
// Throws kCorruption for a position that lies outside its segment.
std::vector<std::uint32_t> merge_ranks(std::span<const Suffixes> segments, std::span<const KeptTokens> kept, const SuffixOrder& order,
                                       std::span<const Interval> ranks);

}  // namespace suffolk
