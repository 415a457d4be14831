#include "core/tournament.h"

#include <array>
#include <utility>
#include <vector>

#include "core/error.h"

namespace suffolk {
namespace {

// The key of a segment without further suffixes. No suffix has this key, because none begins with a separator.
constexpr SuffixKey kNone = {~std::uint64_t{0}, ~std::uint64_t{0}};

// The kept suffixes of one segment between two ranks.
class Cursor {
 public:
  Cursor(const Suffixes& suffixes, const KeptTokens& kept, const SuffixOrder& order, std::uint32_t segment, Interval ranks)
      : suffixes_(&suffixes), kept_(&kept), order_(&order), segment_(segment), ranks_(ranks) {
    read_ahead();
  }

  const SuffixEntry& front() const noexcept { return entries_[next_]; }
  std::uint32_t moved() const noexcept { return moved_[next_]; }
  // REQUIRES: front().key is not kNone.
  void pop() {
    if (++next_ == size_) read_ahead();
  }

 private:
  static constexpr std::size_t kBlock = 64;

  void read_ahead() {
    next_ = size_ = 0;
    for (; size_ < kBlock && ranks_.lo < ranks_.hi; ++ranks_.lo) {
      const std::uint32_t position = checked_position(*suffixes_, ranks_.lo);
      moved_[size_] = kept_->moved(position);
      if (moved_[size_] == KeptTokens::kGone) continue;
      entries_[size_++].position = position;
      const std::byte* at = suffixes_->tokens.data + std::uint64_t{position} * suffixes_->tokens.width;
      __builtin_prefetch(at);
      __builtin_prefetch(at + 64);  // read by deep comparisons
    }
    for (std::size_t i = 0; i < size_; ++i) entries_[i] = order_->entry(segment_, entries_[i].position);
    if (size_ == 0) entries_[size_++] = {kNone, 0, segment_};
  }

  const Suffixes* suffixes_;
  const KeptTokens* kept_;
  const SuffixOrder* order_;
  std::uint32_t segment_;
  Interval ranks_;  // the ranks that are not read yet
  std::size_t next_ = 0;
  std::size_t size_ = 0;
  std::array<SuffixEntry, kBlock> entries_;
  std::array<std::uint32_t, kBlock> moved_;
};

}  // namespace

std::uint32_t checked_position(const Suffixes& suffixes, std::uint64_t rank) {
  const std::uint32_t position = suffixes.positions[rank];
  if (position < suffixes.tokens.size) return position;
  fail(Code::kCorruption, "the position of rank ", rank, " is ", position,
       ", out of range: a segment is damaged; run 'suffolk verify' on the datastore");
}

std::uint32_t* merge_ranks(std::span<const Suffixes> segments, std::span<const KeptTokens> kept, const SuffixOrder& order,
                           std::span<const Interval> ranks, std::uint32_t* out) {
  const std::size_t count = segments.size();
  std::vector<Cursor> cursors;
  cursors.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) cursors.emplace_back(segments[i], kept[i], order, i, ranks[i]);
  const auto precedes = [&](std::size_t a, std::size_t b) {
    const SuffixEntry &x = cursors[a].front(), &y = cursors[b].front();
    if (x.key == kNone || y.key == kNone) return x.key != kNone;
    return order.precedes(x, y);
  };

  // Leaf i is node count + i; losers[n] is the loser at node n.
  std::vector<std::size_t> winners(2 * count), losers(count);
  for (std::size_t i = 0; i < count; ++i) winners[count + i] = i;
  for (std::size_t node = count; node-- > 1;) {
    std::size_t a = winners[2 * node], b = winners[2 * node + 1];
    if (precedes(b, a)) std::swap(a, b);
    winners[node] = a;
    losers[node] = b;
  }
  std::size_t winner = count == 1 ? 0 : winners[1];
  while (cursors[winner].front().key != kNone) {
    *out++ = cursors[winner].moved();
    cursors[winner].pop();
    for (std::size_t node = (count + winner) / 2; node > 0; node /= 2) {
      if (precedes(losers[node], winner)) std::swap(losers[node], winner);
    }
  }
  return out;
}

}  // namespace suffolk
