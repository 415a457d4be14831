// Cuts sorted segments into slices that are merged one by one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/suffix_order.h"
#include "core/suffixes.h"

namespace suffolk {

using Slice = std::vector<Interval>;  // ranks of each segment

// Cuts all ranks at suffixes sampled at equal distances from every segment. The slices follow each other in suffix order. None has
// more than twice `slice_suffixes` suffixes. Throws kCorruption for a position that lies outside its segment.
std::vector<Slice> cut_slices(std::span<const Suffixes> segments, const SuffixOrder& order, std::uint64_t slice_suffixes);

}  // namespace suffolk
