#include "core/draft.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>

#include "core/heavy_runs.h"

namespace suffolk {
namespace {

constexpr std::uint64_t kLight = 256;  // occurrences up to which a node is expanded in larger shares; measured
constexpr std::size_t kBatch = 8;      // nodes that are expanded at once, so that their reads from memory overlap; measured
constexpr std::uint64_t kSpread = 2;   // the most occurrences in a batch are at most this many times the fewest; measured

// The state of one draft.
class Expansion {
 public:
  Expansion(const Corpus& corpus, const Match& match, const QueryBounds& bounds) : corpus_(corpus), bounds_(bounds), match_length_(match.length) {
    const std::size_t expected = 3 * std::min<std::size_t>(bounds.max_nodes, 64);
    nodes_.reserve(expected);
    intervals_.reserve(expected * match.intervals.size());
    intervals_ = match.intervals;
    nodes_.push_back({.token = 0, .parent = -1, .depth = 0, .output = -1, .count = match.count});
    rests_.push({match.count, 0});
  }

  void run(DraftTree& tree) {
    while (take_batch()) expand_batch();
    output(tree);
  }

 private:
  struct Node {
    std::uint32_t token;
    std::int32_t parent;  // in nodes_
    std::uint32_t depth;  // 0 for the root
    std::int32_t output;  // index in the finished tree; -1 for the root, and while the tree is not finished
    std::uint64_t count;
  };

  // The children of a node that are not found yet. Each has at most `bound` occurrences.
  struct Rest {
    std::uint64_t bound;
    std::int32_t node;
    std::uint64_t least = 0;  // during an expansion: children with fewer occurrences stay in the rest

    bool operator<(const Rest& other) const { return bound != other.bound ? bound < other.bound : node > other.node; }
  };

  // Whether `a` comes before `b` in the output. The node with more occurrences comes first, then the shallower node, then the
  // smaller path in token order.
  bool precedes(std::int32_t a, std::int32_t b) const {
    if (node(a).count != node(b).count) return node(a).count > node(b).count;
    if (node(a).depth != node(b).depth) return node(a).depth < node(b).depth;
    bool smaller = false;
    for (; a != b; a = node(a).parent, b = node(b).parent) {
      if (node(a).token != node(b).token) smaller = node(a).token < node(b).token;  // the topmost difference decides
    }
    return smaller;
  }

  // A number that orders nodes: an earlier node has a larger number. Nodes that differ only in their path have the same number.
  static std::uint64_t rank(std::uint64_t count, std::uint32_t depth) { return count << 16 | (0xFFFF - depth); }

  // Whether a node can be among the best max_nodes.
  bool useful(std::uint64_t count, std::uint32_t depth) const { return best_.size() < bounds_.max_nodes || rank(count, depth) >= best_.top(); }

  // The smallest count of a node at `depth` that can be among the best max_nodes.
  std::uint64_t least_useful(std::uint32_t depth) const {
    const std::uint64_t least = std::max<std::uint64_t>(bounds_.least_count, 1);
    if (best_.size() < bounds_.max_nodes) return least;
    const std::uint64_t last = best_.top() >> 16;
    return std::max(least, useful(last, depth) ? last : last + 1);
  }

  // Takes the rests with the most occurrences; false if no rest can give output.
  bool take_batch() {
    batch_.clear();
    while (batch_.size() < kBatch && !rests_.empty()) {
      Rest rest = rests_.top();
      if (!batch_.empty() && rest.bound * kSpread < batch_.front().bound) break;
      rests_.pop();
      const std::uint64_t useful = least_useful(node(rest.node).depth + 1);
      if (rest.bound < useful) {
        if (rest.bound < least_useful(1)) rests_ = {};
        continue;
      }
      // A smaller share finds more children at once, but also more that are not needed: there are many light children.
      rest.least = std::max({rest.bound > kLight ? rest.bound / 16 : rest.bound / 4, useful});
      batch_.push_back(rest);
    }
    return !batch_.empty();
  }

  // Finds the children of all rests of the batch. A rest that can still give output stays. A child whose count is lowered by
  // deletions is found again later, at that count.
  void expand_batch() {
    find_candidates();
    find_missing();
    for (const Candidate& candidate : candidates_) {
      const Rest& rest = batch_[candidate.rest];
      const auto intervals = std::span(found_).subspan(candidate.first_interval, corpus_.suffixes.size());
      const std::uint64_t count = corpus_.count(intervals);
      if (count < rest.least || count > rest.bound) continue;  // still too light, or already found
      const std::uint32_t depth = node(rest.node).depth + 1;
      if (!useful(count, depth)) continue;
      intervals_.insert(intervals_.end(), intervals.begin(), intervals.end());
      nodes_.push_back({.token = candidate.token, .parent = rest.node, .depth = depth, .output = -1, .count = count});
      const std::int32_t index = static_cast<std::int32_t>(nodes_.size()) - 1;
      best_.push(rank(count, depth));
      if (best_.size() > bounds_.max_nodes) best_.pop();
      if (depth < bounds_.max_depth && count >= least_useful(depth + 1)) rests_.push({count, index});
    }
    for (const Rest& rest : batch_) {
      if (rest.least > least_useful(node(rest.node).depth + 1)) rests_.push({rest.least - 1, rest.node});
    }
  }

  // A child of a rest of the batch, heavy in a live segment.
  struct Candidate {
    std::uint32_t rest;  // in batch_
    std::uint32_t token;
    std::size_t first_interval;  // in found_
  };

  // Fills candidates_ with every child that has `least` to `bound` occurrences in the live segments, and possibly
  // others. Fills found_ with the candidates' known intervals, and missing_ with their other segments.
  void find_candidates() {
    searches_.clear();
    for (std::uint32_t i = 0; i < batch_.size(); ++i) add_searches(i);
    runs_.clear();
    find_heavy_runs(searches_, runs_, ends_);
    const auto name = [](const Run& run) { return std::uint64_t{run.node} << 32 | run.token; };
    const auto before = [&](const Run& a, const Run& b) { return name(a) != name(b) ? name(a) < name(b) : a.segment < b.segment; };
    if (corpus_.live > 1 && runs_.size() > 1) std::sort(runs_.begin(), runs_.end(), before);

    candidates_.clear();
    found_.clear();
    missing_.clear();
    ends_.clear();
    for (std::size_t i = 0; i < runs_.size();) {
      const Run& first = runs_[i];
      const std::int32_t parent = batch_[first.node].node;
      candidates_.push_back({first.node, first.token, found_.size()});
      for (std::uint32_t segment = 0; segment < corpus_.suffixes.size(); ++segment) {
        if (i < runs_.size() && runs_[i].segment == segment && name(runs_[i]) == name(first)) {
          found_.push_back(runs_[i++].range);
          continue;
        }
        const Interval within = interval(parent, segment);
        found_.push_back(within);
        if (within.size() == 0) continue;
        missing_.push_back(found_.size() - 1);
        ends_.push_back({&corpus_.suffixes[segment], depth_below(parent), first.token, within});
        ends_.push_back({&corpus_.suffixes[segment], depth_below(parent), first.token + 1, within});
      }
    }
  }

  // Adds to searches_ the searches for the children of a rest of the batch, in the live segments.
  void add_searches(std::uint32_t index) {
    const Rest& rest = batch_[index];
    // A child has at least its share of `least` in one segment, for any shares that add up to 1. Shares in proportion to the roots
    // of the segments' intervals need the fewest samples. The shares are rounded down a little: a share above the exact one would
    // miss a child. A child has at most `most` occurrences in any segment; deletions may lower its count by any number.
    double roots = 0;
    for (std::uint32_t segment = 0; segment < corpus_.live; ++segment) roots += root(rest.node, segment);
    const std::uint64_t most = corpus_.live == corpus_.suffixes.size() ? rest.bound : std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t segment = 0; segment < corpus_.live; ++segment) {
      const Interval range = interval(rest.node, segment);
      if (range.size() == 0) continue;
      std::uint64_t fewest = rest.least;
      if (const double own = root(rest.node, segment); own != roots) {
        fewest = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::ceil(static_cast<double>(fewest) * own / roots * (1 - 1e-12))), 1, fewest);
      }
      searches_.push_back({&corpus_.suffixes[segment], depth_below(rest.node), range, fewest, most, index, segment});
    }
  }

  // Narrows the intervals of missing_ to the ranks of the candidates.
  void find_missing() {
    lower_bounds(ends_);
    for (std::size_t i = 0; i < missing_.size(); ++i) {
      const std::uint64_t lo = ends_[2 * i].range.lo;
      found_[missing_[i]] = {lo, std::max(lo, ends_[2 * i + 1].range.lo)};  // less than lo in a damaged file
    }
  }

  // The best nodes, in output order.
  void output(DraftTree& tree) {
    std::vector<std::int32_t> order;
    for (std::int32_t index = 1; index < static_cast<std::int32_t>(nodes_.size()); ++index) {
      if (useful(node(index).count, node(index).depth)) order.push_back(index);
    }
    std::ranges::sort(order, [this](std::int32_t a, std::int32_t b) { return precedes(a, b); });
    order.resize(std::min<std::size_t>(order.size(), bounds_.max_nodes));
    for (const std::int32_t index : order) {
      Node& done = nodes_[static_cast<std::size_t>(index)];
      done.output = static_cast<std::int32_t>(tree.tokens.size());
      tree.tokens.push_back(done.token);
      tree.parents.push_back(node(done.parent).output);
      tree.counts.push_back(done.count);
    }
  }

  double root(std::int32_t index, std::uint32_t segment) const { return std::sqrt(static_cast<double>(interval(index, segment).size())); }

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
  std::priority_queue<Rest> rests_;
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> best_;  // ranks of the best max_nodes nodes found

  // Scratch of expand_batch.
  std::vector<Rest> batch_;
  std::vector<RunSearch> searches_;
  std::vector<Run> runs_;
  std::vector<Candidate> candidates_;
  std::vector<Interval> found_;  // one for each of the corpus' suffixes, candidate by candidate
  std::vector<std::size_t> missing_;
  std::vector<TokenSearch> ends_;
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
