#include "core/heavy_runs.h"

#include <algorithm>

#include "core/directory.h"

namespace suffolk {
namespace {

// The tokens at `depth` of every `step`-th rank of a range, from the first multiple of `step` on; kEnd after the range. If the
// step is long enough, they are read from the directory.
class Samples {
 public:
  Samples(const RunSearch& search, std::uint64_t step)
      : suffixes_(search.suffixes),
        depth_(search.depth),
        end_(search.range.hi),
        step_(step),
        in_directory_(step >= kDirectoryStride && knows(*suffixes_, depth_) && (end_ - 1) / kDirectoryStride < suffixes_->directory_count) {
    if (in_directory_) step_ -= step % kDirectoryStride;
    first_ = (search.range.lo + step_ - 1) / step_ * step_;
  }

  std::uint64_t step() const noexcept { return step_; }
  std::uint64_t first() const noexcept { return first_; }

  std::uint32_t operator[](std::uint64_t rank) const noexcept {
    if (rank >= end_) return kEnd;
    return in_directory_ ? directory_token(*suffixes_, rank / kDirectoryStride, depth_) : suffixes_->token(rank, depth_);
  }

  // Prefetches the memory that `count` samples from `rank` on read. Inlined as Suffixes::prefetch is.
  [[gnu::always_inline]] void prefetch(std::uint64_t rank, std::uint64_t count) const noexcept {
    if (in_directory_) return;
    for (const std::uint64_t end = std::min(end_, rank + count * step_); rank < end; rank += step_) suffixes_->prefetch(rank, depth_);
  }

  // The last sample of the run of equal tokens that begins at or before `rank`. Steps are doubled up to its end, then halved.
  std::uint64_t last_equal(std::uint64_t rank) const noexcept {
    const std::uint32_t token = (*this)[rank];
    std::uint64_t steps = 1;
    for (; (*this)[rank + steps * step_] == token; steps *= 2) rank += steps * step_;
    for (steps /= 2; steps > 0; steps /= 2) {
      if ((*this)[rank + steps * step_] == token) rank += steps * step_;
    }
    return rank;
  }

 private:
  const Suffixes* suffixes_;
  std::uint32_t depth_;
  std::uint64_t end_, step_, first_ = 0;
  bool in_directory_;
};

constexpr std::uint64_t kProbeBlock = 64;  // samples whose reads from memory overlap; measured

// One search, block by block of samples. A run of length `least` covers several samples in a row. Ends are searched for such runs
// only.
class Scan {
 public:
  Scan(const RunSearch& search, std::uint32_t first)
      : search_(&search),
        samples_(search, std::max<std::uint64_t>(search.least / 2, 1)),
        shortest_((search.least / samples_.step() - 1) * samples_.step()),
        before_(search.range.lo),
        start_(search.range.lo),
        last_(search.range.lo),
        rank_(samples_.first()),
        token_(first) {
    samples_.prefetch(rank_, kProbeBlock);
  }

  // Reads the next samples, and prefetches the samples after them. Appends each heavy run without its range to `runs`, and
  // the searches for the run's begin and end to `ends`. Returns whether samples are left.
  bool advance(std::vector<TokenSearch>& ends, std::vector<Run>& runs) {
    const std::uint64_t step = samples_.step();
    for (std::uint64_t i = 0; i < kProbeBlock; ++i) {
      const std::uint32_t next = samples_[rank_];
      if (next != token_) {
        if (last_ - start_ >= shortest_ && last_ - start_ < search_->most) add_run(ends, runs);
        before_ = last_ + 1;
        start_ = rank_;
        token_ = next;
        if (next == kEnd) return false;
      }
      last_ = rank_;
      rank_ += step;
    }
    if (last_ - start_ >= kLong * step) {
      last_ = samples_.last_equal(last_);
      rank_ = last_ + step;
    }
    samples_.prefetch(rank_, kProbeBlock);
    return true;
  }

 private:
  static constexpr std::uint64_t kLong = 16;  // samples of a run whose end is found by larger steps; few are this long, some very long

  void add_run(std::vector<TokenSearch>& ends, std::vector<Run>& runs) const {
    ends.push_back({search_->suffixes, search_->depth, token_, {before_, start_}});
    ends.push_back({search_->suffixes, search_->depth, token_ + 1, {last_ + 1, std::min(rank_, search_->range.hi)}});
    runs.push_back({search_->node, token_, search_->segment, {}});
  }

  const RunSearch* search_;
  Samples samples_;
  std::uint64_t shortest_;  // from the first to the last sample of a heavy run
  // In the current run, ranks `start` to `last` have the token; it begins at `before` or later. The first rank counts as a sample.
  std::uint64_t before_, start_, last_, rank_;
  std::uint32_t token_;
};

}  // namespace

void find_heavy_runs(std::span<const RunSearch> searches, std::vector<Run>& runs, std::vector<TokenSearch>& ends) {
  std::vector<Scan> scans;
  for (const RunSearch& search : searches) {
    const auto& [suffixes, depth, range, least, most, node, segment] = search;
    if (range.size() < least) continue;
    const std::uint32_t first = suffixes->token(range.lo, depth);
    if (first == kEnd) continue;                          // ends sort last
    if (suffixes->token(range.hi - 1, depth) == first) {  // an only child is the most common case
      runs.push_back({node, first, segment, range});
    } else {
      if (scans.empty()) scans.reserve(searches.size());
      scans.emplace_back(search, first);
    }
  }
  if (scans.empty()) return;
  ends.clear();
  const std::size_t known = runs.size();
  while (!scans.empty()) std::erase_if(scans, [&](Scan& scan) { return !scan.advance(ends, runs); });
  lower_bounds(ends);
  for (std::size_t i = 0; i < ends.size(); i += 2) runs[known + i / 2].range = {ends[i].range.lo, ends[i + 1].range.lo};
}

}  // namespace suffolk
