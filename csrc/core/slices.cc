#include "core/slices.h"

#include <algorithm>
#include <utility>

#include "core/tournament.h"

namespace suffolk {

std::vector<Slice> cut_slices(std::span<const Suffixes> segments, const SuffixOrder& order, std::uint64_t slice_suffixes) {
  const auto entry = [&](std::uint32_t segment, std::uint64_t rank) {
    return order.entry(segment, checked_position(segments[segment], rank));
  };
  const std::uint64_t stride = std::max<std::uint64_t>(1, slice_suffixes / segments.size());
  std::vector<SuffixEntry> samples;
  for (std::uint32_t i = 0; i < segments.size(); ++i) {
    for (std::uint64_t rank = stride; rank < segments[i].count; rank += stride) samples.push_back(entry(i, rank));
  }
  std::sort(samples.begin(), samples.end(), [&](const SuffixEntry& a, const SuffixEntry& b) { return order.precedes(a, b); });
  std::vector<Slice> slices(1, Slice(segments.size()));
  for (std::size_t sample = segments.size() - 1; sample < samples.size(); sample += segments.size()) {
    Slice next;
    for (std::uint32_t i = 0; i < segments.size(); ++i) {
      Interval& before = slices.back()[i];
      const auto precedes = [&](std::uint64_t rank) { return order.precedes(entry(i, rank), samples[sample]); };
      before.hi = partition_point(before.lo, segments[i].count, precedes);
      next.push_back({before.hi, before.hi});
    }
    slices.push_back(std::move(next));
  }
  for (std::size_t i = 0; i < segments.size(); ++i) slices.back()[i].hi = segments[i].count;
  return slices;
}

}  // namespace suffolk
