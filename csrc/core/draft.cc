#include "core/draft.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "core/directory.h"

namespace suffolk {
namespace {

// The token at `depth` of a rank; from the directory if it has that one.
std::uint32_t sample(const Suffixes& suffixes, std::uint32_t depth, std::uint64_t rank, bool in_directory) noexcept {
  return in_directory ? directory_token(suffixes, rank / kDirectoryStride, depth) : suffixes.token(rank, depth);
}

// Calls emit(token, run) for every run of equal tokens at `depth` in `range` that is `least` to `most` long, and maybe for
// others. Documents that end here are passed over.
//
// Looks at every `step`-th rank: a run of `least` or more shows itself by several samples in a row, and only then are its ends
// searched for. Samples do not depend on one another, so that their reads from memory overlap; where the step is long enough
// they are in the directory. O(range.size() / least) samples, O(log least) more reads for each run.
template <typename Emit>
void for_heavy_runs(const Suffixes& suffixes, std::uint32_t depth, Interval range, std::uint64_t least, std::uint64_t most, Emit emit) {
  if (range.size() < least) return;
  const std::uint32_t first = suffixes.token(range.lo, depth);
  if (first == kEnd) return;  // ends sort last
  if (suffixes.token(range.hi - 1, depth) == first) return emit(first, range);  // an only child is the commonest case
  std::uint64_t step = std::max<std::uint64_t>(least / 2, 1);
  const bool in_directory = step >= kDirectoryStride && knows(suffixes, depth) && (range.hi - 1) / kDirectoryStride < suffixes.directory_count;
  if (in_directory) step -= step % kDirectoryStride;
  const std::uint64_t needed = least / step;

  std::uint64_t before = range.lo;                              // the run of the next sample begins here or later
  std::uint64_t rank = (range.lo + step - 1) / step * step;
  std::uint32_t token = rank < range.hi ? sample(suffixes, depth, rank, in_directory) : kEnd;
  while (token != kEnd) {
    const std::uint64_t start = rank;
    std::uint64_t samples = 0;
    std::uint32_t next = token;
    for (; next == token; ++samples) {
      rank += step;
      next = rank < range.hi ? sample(suffixes, depth, rank, in_directory) : kEnd;
    }
    const std::uint64_t last = rank - step;
    if (samples >= needed && last - start < most) {
      const std::uint64_t begin = lower_bound(suffixes, depth, before, start, token);
      emit(token, Interval{begin, run_end(suffixes, depth, last, std::min(rank, range.hi), token)});
    }
    before = last + 1;
    token = next;
  }
}

class Expansion {
 public:
  Expansion(const Corpus& corpus, const Match& match, const QueryBounds& bounds)
      : corpus_(corpus), bounds_(bounds), match_length_(match.length), open_(Worse{this}) {
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

  // Either a node that waits to be output, or the rest of a node's children: those not found yet, all of at most `count`.
  struct Entry {
    std::uint64_t count;
    std::int32_t node;
    bool is_rest;
  };

  // The order of the output, turned round for std::priority_queue. A rest goes before nodes of the same count, for it may
  // hide a node that precedes them.
  struct Worse {
    const Expansion* expansion;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.count != b.count) return a.count < b.count;
      if (a.is_rest != b.is_rest) return b.is_rest;
      if (a.is_rest) return a.node > b.node;
      return expansion->precedes(b.node, a.node);
    }
  };

  // Of two nodes of one count: is `a` shallower, or equally deep with a path smaller in token order?
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

  // A heavy child as one live segment sees it.
  struct Run {
    std::uint32_t token;
    std::uint32_t segment;
    Interval range;
  };

  // Opens the children whose count is at most `bound` and at least a share of it; leaves the rest for later. A child that
  // deletions make lighter than it was found to be is found again when its own count's turn comes.
  void expand(std::int32_t parent, std::uint64_t bound) {
    const std::uint64_t least = bound <= 16 ? 1 : bound / 4;
    find_heavy_runs(parent, least, bound);
    for (std::size_t i = 0; i < heavy_.size();) {
      const std::uint32_t token = heavy_[i].token;
      const std::size_t first_interval = intervals_.size();
      for (std::uint32_t segment = 0; segment < corpus_.suffixes.size(); ++segment) {
        const bool known = i < heavy_.size() && heavy_[i].token == token && heavy_[i].segment == segment;
        intervals_.push_back(known ? heavy_[i++].range : find_child(parent, segment, token));
      }
      const std::uint64_t count = corpus_.count(std::span(intervals_).subspan(first_interval));
      if (count < least || count > bound) {  // too light yet, or opened already
        intervals_.resize(first_interval);
        continue;
      }
      nodes_.push_back({.token = token, .parent = parent, .depth = node(parent).depth + 1, .output = -1, .count = count});
      open_.push({count, static_cast<std::int32_t>(nodes_.size()) - 1, false});  // after the node: the order looks at it
    }
    if (least > 1) open_.push({least - 1, parent, true});
  }

  // Fills heavy_, by token and segment, with a run of every child that has `least` to `bound` occurrences in the live segments.
  void find_heavy_runs(std::int32_t parent, std::uint64_t least, std::uint64_t bound) {
    // Such a child has at least this many in one of the segments, and at most these in any; deletions may hide any number.
    const std::uint64_t fewest = (least + corpus_.live - 1) / corpus_.live;
    const std::uint64_t most = corpus_.live == corpus_.suffixes.size() ? bound : std::numeric_limits<std::uint64_t>::max();
    heavy_.clear();
    for (std::uint32_t segment = 0; segment < corpus_.live; ++segment) {
      for_heavy_runs(corpus_.suffixes[segment], depth_below(parent), interval(parent, segment), fewest, most,
                     [&](std::uint32_t token, Interval run) { heavy_.push_back({token, segment, run}); });
    }
    const auto order = [](const Run& a, const Run& b) { return a.token != b.token ? a.token < b.token : a.segment < b.segment; };
    if (corpus_.live > 1) std::sort(heavy_.begin(), heavy_.end(), order);
  }

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
  // Where the children's tokens stand in the suffixes of a node.
  std::uint32_t depth_below(std::int32_t index) const { return match_length_ + node(index).depth; }

  const Corpus& corpus_;
  const QueryBounds& bounds_;
  std::uint32_t match_length_;
  std::vector<Node> nodes_;          // nodes_[0] is the root: the match itself
  std::vector<Interval> intervals_;  // one for each of the corpus' suffixes, node by node
  std::vector<Run> heavy_;           // found by the latest expand
  std::priority_queue<Entry, std::vector<Entry>, Worse> open_;
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
