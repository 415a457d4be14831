#include "core/kept_tokens.h"

namespace suffolk {

KeptTokens::KeptTokens(std::uint64_t tokens, std::span<const Interval> deleted, std::uint64_t base) : base_(base), tokens_(tokens) {
  for (const auto& [lo, hi] : deleted) {
    if (!gaps_.empty() && lo == gaps_.back().end) {
      gaps_.back().end = static_cast<std::uint32_t>(hi);
    } else {
      gaps_.push_back({static_cast<std::uint32_t>(lo), static_cast<std::uint32_t>(hi), static_cast<std::uint32_t>(removed_)});
    }
    removed_ += hi - lo;
  }
  if (gaps_.empty()) return;
  std::uint32_t gap = 0;
  for (std::uint64_t block = 0; block <= tokens_ / kBlock + 1; ++block) {
    while (gap < gaps_.size() && gaps_[gap].end <= block * kBlock) ++gap;
    first_gap_.push_back(gap);
  }
}

std::uint64_t KeptTokens::origin(std::uint64_t moved) const noexcept {
  const std::uint64_t kept = moved - base_;
  const auto gap = std::partition_point(gaps_.begin(), gaps_.end(), [&](const Gap& each) { return each.begin - each.removed <= kept; });
  return kept + (gap == gaps_.end() ? removed_ : gap->removed);
}

}  // namespace suffolk
