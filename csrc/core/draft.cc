#include "core/draft.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>

#include "core/directory.h"

namespace suffolk {
namespace {

// The tokens at `depth` of every `step`-th rank of a range, from the first multiple of `step` on; kEnd after the range. If the
// step is long enough, they are read from the directory.
class Samples {
 public:
  static constexpr std::size_t kBlock = 16;

  Samples(const Suffixes& suffixes, std::uint32_t depth, Interval range, std::uint64_t step)
      : suffixes_(suffixes),
        depth_(depth),
        end_(range.hi),
        step_(step),
        in_directory_(step >= kDirectoryStride && knows(suffixes, depth) && (range.hi - 1) / kDirectoryStride < suffixes.directory_count) {
    if (in_directory_) step_ -= step % kDirectoryStride;
    first_ = (range.lo + step_ - 1) / step_ * step_;
  }

  std::uint64_t step() const noexcept { return step_; }
  std::uint64_t first() const noexcept { return first_; }

  std::uint32_t operator[](std::uint64_t rank) const noexcept {
    if (rank >= end_) return kEnd;
    return in_directory_ ? directory_token(suffixes_, rank / kDirectoryStride, depth_) : suffixes_.token(rank, depth_);
  }

  // The samples from `rank` on. Their reads from memory overlap.
  std::array<std::uint32_t, kBlock> block(std::uint64_t rank) const noexcept {
    std::array<std::uint32_t, kBlock> tokens;
    if (!in_directory_) {
      for (std::uint64_t i = 0, at = rank; i < kBlock && at < end_; ++i, at += step_) suffixes_.prefetch(at, depth_);
    }
    for (std::uint32_t& token : tokens) {
      token = (*this)[rank];
      rank += step_;
    }
    return tokens;
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
  const Suffixes& suffixes_;
  std::uint32_t depth_;
  std::uint64_t end_, step_, first_ = 0;
  bool in_directory_;
};

// Calls emit(token, run) for every run of equal tokens at `depth` in `range` whose length is `least` to `most`, and possibly
// for other runs. Documents that end here are skipped.
//
// A run of length `least` covers several samples in a row. Only then are its ends searched for. O(range.size() / least)
// samples, and O(log least) more reads for each run.
template <typename Emit>
void for_heavy_runs(const Suffixes& suffixes, std::uint32_t depth, Interval range, std::uint64_t least, std::uint64_t most,
                    std::vector<TokenSearch>& ends, Emit emit) {
  ends.clear();
  if (range.size() < least) return;
  const std::uint32_t first = suffixes.token(range.lo, depth);
  if (first == kEnd) return;                                                    // ends sort last
  if (suffixes.token(range.hi - 1, depth) == first) return emit(first, range);  // an only child is the most common case
  const Samples samples(suffixes, depth, range, std::max<std::uint64_t>(least / 2, 1));
  const std::uint64_t step = samples.step(), shortest = (least / step - 1) * step;  // from the first to the last sample of a heavy run

  // In the current run, ranks `start` to `last` have the token; it begins at `before` or later. The first rank counts as a sample.
  std::uint64_t before = range.lo, start = range.lo, last = range.lo, rank = samples.first();
  std::uint32_t token = first;
  while (token != kEnd) {
    for (const std::uint32_t next : samples.block(rank)) {
      if (next != token) {
        if (last - start >= shortest && last - start < most) {
          ends.push_back({before, start, token});
          ends.push_back({last + 1, std::min(rank, range.hi), token + 1});
        }
        before = last + 1;
        start = rank;
        token = next;
        if (next == kEnd) break;
      }
      last = rank;
      rank += step;
    }
    if (token != kEnd && last - start >= Samples::kBlock * step) {  // few runs are this long, but some are very long
      last = samples.last_equal(last);
      rank = last + step;
    }
  }
  lower_bounds(suffixes, depth, ends);
  for (std::size_t i = 0; i < ends.size(); i += 2) emit(ends[i].token, Interval{ends[i].lo, ends[i + 1].lo});
}

constexpr std::uint64_t kLight = 256;  // occurrences up to which a node is expanded in larger shares; measured

// The state of one draft.
class Expansion {
 public:
  Expansion(const Corpus& corpus, const Match& match, const QueryBounds& bounds)
      : corpus_(corpus), bounds_(bounds), match_length_(match.length), open_(Worse{this}) {
    const std::size_t expected = 3 * std::min<std::size_t>(bounds.max_nodes, 64);
    nodes_.reserve(expected);
    intervals_.reserve(expected * match.intervals.size());
    intervals_ = match.intervals;
    nodes_.push_back({.token = 0, .parent = -1, .depth = 0, .output = -1, .count = match.count});
    open_.push({match.count, 0, true});
  }

  void run(DraftTree& tree) {
    while (tree.tokens.size() < bounds_.max_nodes && !open_.empty()) {
      const Entry entry = open_.top();
      open_.pop();
      if (entry.is_rest) {
        expand(entry.node, entry.count);
      } else {
        output(entry.node, tree);
      }
    }
  }

 private:
  struct Node {
    std::uint32_t token;
    std::int32_t parent;  // in nodes_
    std::uint32_t depth;  // 0 for the root
    std::int32_t output;  // index in the finished tree, -1 for the root and while open
    std::uint64_t count;
  };

  // Either a node that is not yet output, or the rest of a node's children: those not found yet, each with at most `count`.
  struct Entry {
    std::uint64_t count;
    std::int32_t node;
    bool is_rest;
  };

  // The reverse of the output order, for std::priority_queue. A rest comes before nodes of the same count, because it may hold a
  // node that precedes these nodes.
  struct Worse {
    const Expansion* expansion;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.count != b.count) return a.count < b.count;
      if (a.is_rest != b.is_rest) return b.is_rest;
      if (a.is_rest) return a.node > b.node;
      return expansion->precedes(b.node, a.node);
    }
  };

  // Whether `a` comes before `b`, which has the same count: `a` is shallower, or equally deep with a smaller path in token order.
  bool precedes(std::int32_t a, std::int32_t b) const {
    if (node(a).depth != node(b).depth) return node(a).depth < node(b).depth;
    bool smaller = false;
    for (; a != b; a = node(a).parent, b = node(b).parent) {
      if (node(a).token != node(b).token) smaller = node(a).token < node(b).token;  // the topmost difference decides
    }
    return smaller;
  }

  void output(std::int32_t index, DraftTree& tree) {
    Node& done = nodes_[static_cast<std::size_t>(index)];
    done.output = static_cast<std::int32_t>(tree.tokens.size());
    tree.tokens.push_back(done.token);
    tree.parents.push_back(node(done.parent).output);
    tree.counts.push_back(done.count);
    if (done.depth < bounds_.max_depth) open_.push({done.count, index, true});
  }

  // The interval of a heavy child in one live segment.
  struct Run {
    std::uint32_t token;
    std::uint32_t segment;
    Interval range;
  };

  // Opens the children whose count is at most `bound` and at least a share of `bound`. The rest stays open if it can still give
  // output. A child whose count is lowered by deletions is found again later, at that count.
  void expand(std::int32_t parent, std::uint64_t bound) {
    // A smaller share finds more children at once, but also more that are not needed: there are many light children.
    const std::uint64_t share = bound > kLight ? bound / 16 : bound / 4;
    const std::uint64_t least = std::max<std::uint64_t>({share, least_useful(), 1});
    if (bound < least) return;
    find_heavy_runs(parent, least, bound);
    for (std::size_t i = 0; i < heavy_.size();) {
      const std::uint32_t token = heavy_[i].token;
      const std::size_t first_interval = intervals_.size();
      for (std::uint32_t segment = 0; segment < corpus_.suffixes.size(); ++segment) {
        const bool known = i < heavy_.size() && heavy_[i].token == token && heavy_[i].segment == segment;
        intervals_.push_back(known ? heavy_[i++].range : find_child(parent, segment, token));
      }
      const std::uint64_t count = corpus_.count(std::span(intervals_).subspan(first_interval));
      if (count < least || count > bound) {  // still too light, or already opened
        intervals_.resize(first_interval);
        continue;
      }
      nodes_.push_back({.token = token, .parent = parent, .depth = node(parent).depth + 1, .output = -1, .count = count});
      open_.push({count, static_cast<std::int32_t>(nodes_.size()) - 1, false});  // after the node: the order looks at it
      best_.push(count);
      if (best_.size() > bounds_.max_nodes) best_.pop();
    }
    if (least > least_useful()) open_.push({least - 1, parent, true});
  }

  // The smallest count of any further output node: the query wants no smaller one, or max_nodes nodes with at least this count are
  // known.
  std::uint64_t least_useful() const {
    const std::uint64_t least = std::max<std::uint64_t>(bounds_.least_count, 1);
    return best_.size() < bounds_.max_nodes ? least : std::max(least, best_.top());
  }

  // Fills heavy_, sorted by token and segment, with runs of every child that has `least` to `bound` occurrences in the live
  // segments.
  void find_heavy_runs(std::int32_t parent, std::uint64_t least, std::uint64_t bound) {
    // Such a child has at least its share of `least` in one segment, for any shares that add up to 1. Shares in proportion to the
    // roots of the segments' intervals need the fewest samples. The shares are rounded down a little: a share above the exact one
    // would miss a child. It has at most `most` in any; deletions may lower its count by any number.
    double roots = 0;
    for (std::uint32_t segment = 0; segment < corpus_.live; ++segment) roots += root(parent, segment);
    const std::uint64_t most = corpus_.live == corpus_.suffixes.size() ? bound : std::numeric_limits<std::uint64_t>::max();
    heavy_.clear();
    for (std::uint32_t segment = 0; segment < corpus_.live; ++segment) {
      const double share = std::ceil(static_cast<double>(least) * root(parent, segment) / roots * (1 - 1e-12));
      const std::uint64_t fewest = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(share), 1, least);
      for_heavy_runs(corpus_.suffixes[segment], depth_below(parent), interval(parent, segment), fewest, most, ends_,
                     [&](std::uint32_t token, Interval run) { heavy_.push_back({token, segment, run}); });
    }
    const auto order = [](const Run& a, const Run& b) { return a.token != b.token ? a.token < b.token : a.segment < b.segment; };
    if (corpus_.live > 1) std::sort(heavy_.begin(), heavy_.end(), order);
  }

  double root(std::int32_t index, std::uint32_t segment) const { return std::sqrt(static_cast<double>(interval(index, segment).size())); }

  Interval find_child(std::int32_t parent, std::uint32_t segment, std::uint32_t token) const {
    const auto [lo, hi] = interval(parent, segment);
    const Suffixes& suffixes = corpus_.suffixes[segment];
    const std::uint64_t begin = lower_bound(suffixes, depth_below(parent), lo, hi, token);
    if (begin == hi || suffixes.token(begin, depth_below(parent)) != token) return {begin, begin};
    return {begin, run_end(suffixes, depth_below(parent), begin, hi, token)};
  }

  const Node& node(std::int32_t index) const { return nodes_[static_cast<std::size_t>(index)]; }
  Interval interval(std::int32_t index, std::size_t segment) const {
    return intervals_[static_cast<std::size_t>(index) * corpus_.suffixes.size() + segment];
  }
  // The depth of the children's tokens in the suffixes of a node.
  std::uint32_t depth_below(std::int32_t index) const { return match_length_ + node(index).depth; }

  const Corpus& corpus_;
  const QueryBounds& bounds_;
  std::uint32_t match_length_;
  std::vector<Node> nodes_;          // nodes_[0] is the root: the match itself
  std::vector<Interval> intervals_;  // one for each of the corpus' suffixes, node by node
  std::vector<TokenSearch> ends_;    // scratch of for_heavy_runs
  std::vector<Run> heavy_;           // see find_heavy_runs
  std::priority_queue<Entry, std::vector<Entry>, Worse> open_;
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> best_;  // counts of the best max_nodes nodes found
};

}  // namespace

DraftTree draft(const Corpus& corpus, const Match& match, const QueryBounds& bounds) {
  DraftTree tree;
  tree.match_length = match.length;
  tree.match_count = match.count;
  if (match.length > 0 && bounds.max_nodes > 0) Expansion(corpus, match, bounds).run(tree);
  return tree;
}

}  // namespace suffolk
