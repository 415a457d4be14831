// Maps the tokens of a segment that remain after deletions to their new positions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/suffixes.h"

namespace suffolk {

// Maps token positions of one segment to positions of a new segment, in which the remaining documents begin at `base`. Immutable
// and thread-safe. Memory: 12 bytes for each run of neighbouring deleted documents, and 4 bytes for every 4096 tokens. No memory
// if nothing is deleted.
class KeptTokens {
 public:
  static constexpr std::uint32_t kGone = 0xFFFFFFFF;

  //   tokens   tokens of the segment, separators included
  //   deleted  the tokens of each deleted document with its separator
  // REQUIRES: `deleted` rises without overlap and ends within the tokens.
  KeptTokens(std::uint64_t tokens, std::span<const Interval> deleted, std::uint64_t base);

  std::uint64_t base() const noexcept { return base_; }
  std::uint64_t tokens() const noexcept { return tokens_ - removed_; }  // separators included

  // The new position of a token; kGone if its document is deleted. REQUIRES: position is below the segment's token count.
  std::uint32_t moved(std::uint64_t position) const noexcept {
    if (gaps_.empty()) return static_cast<std::uint32_t>(base_ + position);
    const auto begin = gaps_.begin() + first_gap_[position / kBlock], end = gaps_.begin() + first_gap_[position / kBlock + 1];
    // The first gap that ends after the position. All gaps in [begin, end) end within the position's block.
    const auto gap = std::partition_point(begin, end, [&](const Gap& each) { return each.end <= position; });
    if (gap == gaps_.end()) return static_cast<std::uint32_t>(base_ + position - removed_);
    return position >= gap->begin ? kGone : static_cast<std::uint32_t>(base_ + position - gap->removed);
  }
  // The inverse of `moved`. REQUIRES: base() <= moved < base() + tokens(). O(log of the deleted runs).
  std::uint64_t origin(std::uint64_t moved) const noexcept;

  // Calls visit(begin, end) for every run of kept tokens, in order.
  template <typename Visit>
  void for_each_run(Visit visit) const {
    std::uint64_t begin = 0;
    for (const Gap& gap : gaps_) {
      if (begin < gap.begin) visit(begin, std::uint64_t{gap.begin});
      begin = gap.end;
    }
    if (begin < tokens_) visit(begin, tokens_);
  }

  // Calls visit(begin, end) for every run of deleted tokens, in order.
  template <typename Visit>
  void for_each_gap(Visit visit) const {
    for (const Gap& gap : gaps_) visit(std::uint64_t{gap.begin}, std::uint64_t{gap.end});
  }

 private:
  static constexpr std::uint64_t kBlock = 4096;

  struct Gap {
    std::uint32_t begin;
    std::uint32_t end;
    std::uint32_t removed;  // tokens in the gaps before this one
  };

  std::uint64_t base_;
  std::uint64_t tokens_;
  std::uint64_t removed_ = 0;
  std::vector<Gap> gaps_;
  std::vector<std::uint32_t> first_gap_;  // for each block and for the end: the first gap that ends after the block's first token
};

}  // namespace suffolk
