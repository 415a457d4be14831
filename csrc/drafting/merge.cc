#include "drafting/merge.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "core/error.h"
#include "drafting/tree.h"

namespace suffolk::drafting {
namespace {

void require_scored(const ScoredTree& tree) {
  const std::size_t size = tree.tokens.size();
  if (tree.parents.size() != size || tree.scores.size() != size || tree.sources.size() != size) {
    throw Error(Code::kInvalidArgument, "draft tree: " + std::to_string(size) + " tokens have " + std::to_string(tree.parents.size()) + " parents, " +
                                            std::to_string(tree.scores.size()) + " scores and " + std::to_string(tree.sources.size()) +
                                            " sources; the numbers must be equal");
  }
  require_parents(tree.parents);
  require_scores(tree.scores);
  for (std::size_t node = 0; node < size; ++node) {
    if (tree.parents[node] >= 0 && tree.scores[node] > tree.scores[static_cast<std::size_t>(tree.parents[node])]) {
      throw Error(Code::kInvalidArgument, "draft tree: node " + std::to_string(node) + " has score " + std::to_string(tree.scores[node]) +
                                              ", more than its parent; a path is never likelier than its beginning");
    }
  }
}

// Nodes found by their parent and token, in a hash table with open addresses, half of them free at least.
class Trie {
 public:
  explicit Trie(std::size_t most) : slots_(std::bit_ceil(2 * most + 1), -1) { nodes_.reserve(most); }

  // The row of the child, which is made or gets what another source thinks of it.
  std::int32_t add(std::int32_t parent, std::int32_t token, double chance, std::uint8_t source) {
    std::int32_t& slot = find(parent, token);
    if (slot < 0) {
      slot = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({.token = token, .parent = parent, .value = 0, .source = 0});
    }
    Node& node = nodes_[static_cast<std::size_t>(slot)];
    if (source != 0) {
      const double high = std::max(node.value, chance), low = std::min(node.value, chance);
      node.value = (node.source & source) != 0 ? high : 1 - (1 - high) * std::sqrt(1 - low);
      node.source |= source;
    }
    return slot;
  }

  // Makes scores of chances: parents stand before their children.
  void score() {
    std::vector<double> sums(nodes_.size() + 1);  // the children of node i add up to sums[i + 1]
    for (const Node& node : nodes_) sums[static_cast<std::size_t>(node.parent + 1)] += node.value;
    for (Node& node : nodes_) {
      node.value /= std::max(1.0, sums[static_cast<std::size_t>(node.parent + 1)]);
      if (node.parent >= 0) node.value *= nodes_[static_cast<std::size_t>(node.parent)].value;
    }
  }

  MergedTree best(std::size_t max_nodes) const {
    const std::size_t size = nodes_.size(), kept = std::min(size, max_nodes);
    std::vector<std::int32_t> order(size), place(size);
    std::iota(order.begin(), order.end(), 0);
    // Rows break ties, so that of equals parents stay first.
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const double left = nodes_[static_cast<std::size_t>(a)].value, right = nodes_[static_cast<std::size_t>(b)].value;
      return left != right ? left > right : a < b;
    });
    MergedTree tree{.tokens = std::vector<std::int32_t>(kept), .parents = std::vector<std::int32_t>(kept), .scores = std::vector<float>(kept),
                    .sources = std::vector<std::uint8_t>(kept)};
    for (std::size_t at = 0; at < kept; ++at) {
      const Node& node = nodes_[static_cast<std::size_t>(order[at])];
      place[static_cast<std::size_t>(order[at])] = static_cast<std::int32_t>(at);
      tree.tokens[at] = node.token;
      tree.parents[at] = node.parent < 0 ? -1 : place[static_cast<std::size_t>(node.parent)];
      tree.scores[at] = static_cast<float>(node.value);
      tree.sources[at] = node.source;
    }
    return tree;
  }

 private:
  struct Node {
    std::int32_t token, parent;
    double value;  // the chance behind its parent; after `score` that of its whole path
    std::uint8_t source;
  };

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
  std::vector<Node> nodes_;          // in the order of their coming
};

}  // namespace

MergedTree merge(std::span<const ScoredTree> trees, std::size_t max_nodes) {
  std::size_t most = 0;
  for (const ScoredTree& tree : trees) {
    require_scored(tree);
    most += tree.tokens.size();
  }
  if (most > std::numeric_limits<std::int32_t>::max()) {
    throw Error(Code::kInvalidArgument, "draft trees: " + std::to_string(most) + " nodes in all; there must be fewer than 2147483648");
  }
  Trie trie(most);
  std::vector<std::int32_t> rows;
  for (const ScoredTree& tree : trees) {
    rows.clear();
    for (std::size_t node = 0; node < tree.tokens.size(); ++node) {
      const bool first = tree.parents[node] < 0;
      const auto parent = static_cast<std::size_t>(tree.parents[node]);
      const double above = first ? 1.0 : tree.scores[parent];
      const double chance = above > 0 ? tree.scores[node] / above : 0.0;
      rows.push_back(trie.add(first ? -1 : rows[parent], tree.tokens[node], chance, tree.sources[node]));
    }
  }
  trie.score();
  return trie.best(max_nodes);
}

}  // namespace suffolk::drafting
