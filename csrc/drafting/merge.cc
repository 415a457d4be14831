#include "drafting/merge.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "drafting/tree.h"

namespace suffolk::drafting {
namespace {

// Nodes by parent and token, in a hash table with open addressing. At least half of its slots are free.
class Trie {
 public:
  explicit Trie(std::size_t most) : slots_(std::bit_ceil(2 * most + 1), -1) { nodes_.reserve(most); }

  // Adds the child, or the estimate of another source for it. Returns its row.
  std::int32_t add(std::int32_t parent, std::int32_t token, double probability, std::uint32_t sources) {
    std::int32_t& slot = find(parent, token);
    if (slot < 0) {
      slot = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({.token = token, .parent = parent});
    }
    Node& node = nodes_[static_cast<std::size_t>(slot)];
    node.sources |= sources;
    if (probability > node.value) {
      sum_below(parent) += probability - node.value;
      node.value = probability;
    }
    return slot;
  }

  // Computes the scores of all nodes.
  void score() {
    for (Node& node : nodes_) {
      node.value /= std::max(1.0, sum_below(node.parent));
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
    MergedTree tree{.tokens = std::vector<std::int32_t>(kept),
                    .parents = std::vector<std::int32_t>(kept),
                    .scores = std::vector<float>(kept),
                    .sources = std::vector<std::uint32_t>(kept)};
    for (std::size_t at = 0; at < kept; ++at) {
      const Node& node = nodes_[static_cast<std::size_t>(order[at])];
      place[static_cast<std::size_t>(order[at])] = static_cast<std::int32_t>(at);
      tree.tokens[at] = node.token;
      tree.parents[at] = node.parent < 0 ? -1 : place[static_cast<std::size_t>(node.parent)];
      tree.scores[at] = static_cast<float>(node.value);
      tree.sources[at] = node.sources;
    }
    return tree;
  }

 private:
  struct Node {
    std::int32_t token, parent;
    std::uint32_t sources = 0;
    double value = 0;      // the probability given its parent; after `score`, that of the whole path
    double sum_below = 0;  // of the probabilities of its children
  };

  double& sum_below(std::int32_t parent) { return parent < 0 ? root_sum_ : nodes_[static_cast<std::size_t>(parent)].sum_below; }

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

  std::vector<std::int32_t> slots_;  // rows; -1 where free
  std::vector<Node> nodes_;          // in the order of adding
  double root_sum_ = 0;
};

}  // namespace

MergedTree merge(std::span<const ScoredTree> trees, std::size_t max_nodes) {
  std::size_t size = 0;
  for (const ScoredTree& tree : trees) {
    require_scored(tree);
    size += tree.tokens.size();
  }
  if (size > std::numeric_limits<std::int32_t>::max()) { refuse("draft trees: ", size, " nodes in all; there must be fewer than 2147483648"); }
  Trie trie(size);
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

}  // namespace suffolk::drafting
