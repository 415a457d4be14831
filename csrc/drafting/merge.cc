#include "drafting/merge.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "drafting/tree.h"

namespace suffolk::drafting {
namespace {

// Fitted with the weights of the sources, by research/fit_merge.py.
constexpr double kNone = 3.47;              // with more sources it is less likely that none of their tokens is accepted
constexpr double kLeastRest = 0.01;         // lower bound of the probability that a source leaves to other tokens
constexpr double kLeastProbability = 1e-5;  // lower bound of the probability of a proposed token

// Most merges have at most kFew active sources, those with nodes; arrays are then shorter. Active sources are numbered from 0.
constexpr std::size_t kFew = 8;

template <std::size_t kMost>
using Probabilities = std::array<float, kMost>;

constexpr std::uint32_t lowest(std::uint32_t mark) { return mark & (~mark + 1); }

// Calls `work` with the number of each bit of `mark`, the lowest first.
template <typename Work>
void for_each_source(std::uint32_t mark, Work work) {
  for (; mark != 0; mark &= mark - 1) work(static_cast<std::size_t>(std::countr_zero(mark)));
}

// The weights of the active sources, in the order of their bits.
template <std::size_t kMost>
class ActiveSources {
 public:
  ActiveSources(std::uint32_t bits, std::span<const PoolWeight, kSources> weights) : bits_(bits) {
    std::size_t place = 0;
    for_each_source(bits, [&](std::size_t source) { weights_[place++] = weights[source]; });
  }

  // The number of the source with the lowest bit of `mark`.
  std::size_t place(std::uint32_t mark) const { return static_cast<std::size_t>(std::popcount(bits_ & (lowest(mark) - 1))); }

  const PoolWeight& operator[](std::size_t place) const { return weights_[place]; }

 private:
  std::uint32_t bits_;
  std::array<PoolWeight, kMost> weights_{};
};

// The pooled estimates for the children of one node. Call `add` for every child, then `weigh`, then `unnormalized` for every child.
template <std::size_t kMost>
class Pool {
 public:
  // `change`: the source's probability of the child, minus the source's earlier probability of that child.
  void add(std::size_t source, double change) {
    sources_ |= 1U << source;
    expected_[source] += change;
  }

  void weigh(const ActiveSources<kMost>& weights) {
    if (is_lone()) return;
    double sum = 0, most = 0;
    for_each_source(sources_, [&](std::size_t source) {
      const double expected = std::clamp(expected_[source], kLeastProbability, 1.0);
      weight_[source] = weights[source].weight * expected / (expected + weights[source].doubt);
      sum += weight_[source];
      most = std::max(most, weight_[source]);
    });
    const double effective = sum / most;
    double none = -kNone * std::log(effective);
    for_each_source(sources_, [&](std::size_t source) {
      weight_[source] *= std::sqrt(effective) / sum;
      const double rest = std::log(std::max(kLeastRest, 1 - expected_[source]));
      unlisted_[source] = rest + weights[source].unlisted;
      unlisted_sum_ += weight_[source] * unlisted_[source];
      none += weight_[source] * rest;
    });
    none_ = std::exp(none);
  }

  // A value that is proportional to the probability of a child.
  double unnormalized(std::uint32_t proposers, const Probabilities<kMost>& probabilities) {
    if (proposers == 0) return 0;
    double found = 0;
    if (is_lone()) {
      found = probabilities[static_cast<std::size_t>(std::countr_zero(sources_))];
    } else {
      double log = unlisted_sum_;
      for_each_source(proposers, [&](std::size_t source) {
        log += weight_[source] * (std::log(std::max<double>(kLeastProbability, probabilities[source])) - unlisted_[source]);
      });
      found = std::exp(log);
    }
    sum_ += found;
    return found;
  }

  // The sum of the values of all children and of no child. REQUIRES: `unnormalized` was called for all children.
  double total() const { return is_lone() ? std::max(1.0, sum_) : sum_ + none_; }

 private:
  // Whether at most one source proposes children.
  bool is_lone() const { return std::popcount(sources_) < 2; }

  std::uint32_t sources_ = 0;
  std::array<double, kMost> expected_{}, weight_{}, unlisted_{};
  double unlisted_sum_ = 0, none_ = 0, sum_ = 0;
};

// Nodes by parent and token, in a hash table with open addressing. At least half of its slots are free.
template <std::size_t kMost>
class Trie {
 public:
  Trie(std::size_t most, const ActiveSources<kMost>& active) : active_(active), slots_(std::bit_ceil(2 * most + 1), -1) { nodes_.reserve(most); }

  // Adds the child, or the probability of another source to it. Returns its row.
  std::int32_t add(std::int32_t parent, std::int32_t token, double probability, std::uint32_t mark) {
    std::int32_t& slot = find(parent, token);
    if (slot < 0) {
      slot = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({.token = token, .parent = parent, .pool = pool_of(parent)});
    }
    if (mark != 0) {
      Node& node = nodes_[static_cast<std::size_t>(slot)];
      const std::size_t source = active_.place(mark);
      const float before = node.probabilities[source];
      node.probabilities[source] = std::max(before, static_cast<float>(probability));
      node.mark |= mark;
      node.proposers |= 1U << source;
      pools_[node.pool].add(source, node.probabilities[source] - before);
    }
    return slot;
  }

  // Computes the scores of all nodes.
  void score() {
    for (Pool<kMost>& pool : pools_) pool.weigh(active_);
    for (Node& node : nodes_) node.value = pools_[node.pool].unnormalized(node.proposers, node.probabilities);
    for (Node& node : nodes_) {
      if (node.value > 0) node.value /= pools_[node.pool].total();
      if (node.parent >= 0) node.value *= nodes_[static_cast<std::size_t>(node.parent)].value;
    }
  }

  MergedTree best(std::size_t max_nodes) const {
    const std::size_t size = nodes_.size(), kept = std::min(size, max_nodes);
    std::vector<std::int32_t> order(size), place(size);
    std::iota(order.begin(), order.end(), 0);
    // Ties keep the order of rows, so that parents stay before children.
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const double left = nodes_[static_cast<std::size_t>(a)].value, right = nodes_[static_cast<std::size_t>(b)].value;
      return left != right ? left > right : a < b;
    });
    MergedTree tree{.tokens = std::vector<std::int32_t>(kept), .parents = std::vector<std::int32_t>(kept), .scores = std::vector<float>(kept),
                    .sources = std::vector<std::uint32_t>(kept)};
    for (std::size_t at = 0; at < kept; ++at) {
      const Node& node = nodes_[static_cast<std::size_t>(order[at])];
      place[static_cast<std::size_t>(order[at])] = static_cast<std::int32_t>(at);
      tree.tokens[at] = node.token;
      tree.parents[at] = node.parent < 0 ? -1 : place[static_cast<std::size_t>(node.parent)];
      tree.scores[at] = static_cast<float>(node.value);
      tree.sources[at] = node.mark;
    }
    return tree;
  }

 private:
  struct Node {
    std::int32_t token, parent;
    std::size_t pool;   // shared with its siblings
    Probabilities<kMost> probabilities{};  // probability given its parent, by source
    std::uint32_t mark = 0, proposers = 0;
    double value = 0;       // after `score`, the probability of the whole path
    std::size_t below = 0;  // the pool of its children; 0, the root's pool, if it has none
  };

  std::size_t pool_of(std::int32_t parent) {
    if (parent < 0) return 0;
    std::size_t& below = nodes_[static_cast<std::size_t>(parent)].below;
    if (below == 0) {
      below = pools_.size();
      pools_.emplace_back();
    }
    return below;
  }

  std::int32_t& find(std::int32_t parent, std::int32_t token) {
    const std::uint64_t key = std::uint64_t{static_cast<std::uint32_t>(parent)} << 32 | static_cast<std::uint32_t>(token);
    std::size_t at = (key * 0x9E3779B97F4A7C15U) >> 32;
    for (;; ++at) {
      std::int32_t& slot = slots_[at & (slots_.size() - 1)];
      if (slot < 0) return slot;
      const Node& node = nodes_[static_cast<std::size_t>(slot)];
      if (node.parent == parent && node.token == token) return slot;
    }
  }

  ActiveSources<kMost> active_;
  std::vector<std::int32_t> slots_;  // rows; -1 where free
  std::vector<Node> nodes_;          // in the order of adding
  std::vector<Pool<kMost>> pools_{1};  // the root's first
};

template <std::size_t kMost>
MergedTree merged(std::span<const ScoredTree> trees, std::size_t size, const ActiveSources<kMost>& active, std::size_t max_nodes) {
  Trie<kMost> trie(size, active);
  std::vector<std::int32_t> rows;
  for (const ScoredTree& tree : trees) {
    rows.clear();
    for (std::size_t node = 0; node < tree.tokens.size(); ++node) {
      const bool first = tree.parents[node] < 0;
      const auto parent = static_cast<std::size_t>(tree.parents[node]);
      const double above = first ? 1.0 : tree.scores[parent];
      const double probability = above > 0 ? tree.scores[node] / above : 0.0;
      rows.push_back(trie.add(first ? -1 : rows[parent], tree.tokens[node], probability, tree.sources[node]));
    }
  }
  trie.score();
  return trie.best(max_nodes);
}

}  // namespace

MergedTree merge(std::span<const ScoredTree> trees, std::span<const PoolWeight, kSources> weights, std::size_t max_nodes) {
  for (const PoolWeight& each : weights) {
    if (each.weight > 0 && each.doubt >= 0 && std::isfinite(each.weight) && std::isfinite(each.unlisted) && std::isfinite(each.doubt)) continue;
    refuse("draft trees: source ", &each - weights.data(), " has weight ", each.weight, ", unlisted ", each.unlisted,
           " and doubt ", each.doubt, "; they must be finite, the weight above 0, the doubt 0 or more");
  }
  std::size_t size = 0;
  std::uint32_t active_bits = 0;
  for (const ScoredTree& tree : trees) {
    require_scored(tree);
    size += tree.tokens.size();
    for (const std::uint32_t mark : tree.sources) active_bits |= lowest(mark);
  }
  if (size > std::numeric_limits<std::int32_t>::max()) {
    refuse("draft trees: ", size, " nodes in all; there must be fewer than 2147483648");
  }
  if (std::popcount(active_bits) <= static_cast<int>(kFew)) return merged(trees, size, ActiveSources<kFew>(active_bits, weights), max_nodes);
  return merged(trees, size, ActiveSources<kSources>(active_bits, weights), max_nodes);
}

}  // namespace suffolk::drafting
