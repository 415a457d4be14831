#include "drafting/merge.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

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
    double value = 0;      // the probability given its parent; after `score`, the probability of the whole path
    double sum_below = 0;  // the sum of its children's probabilities
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

Trees merge(std::span<const ScaledPart> parts, std::span<const std::size_t> max_nodes) {
  std::vector<std::vector<std::pair<ScoredTree, float>>> of(max_nodes.size());
  for (const auto& [part, factors] : parts) {
    require_places(part, max_nodes.size());
    if (factors.size() != part.requests.size()) refuse("draft trees: ", factors.size(), " factors for ", part.requests.size(), " requests");
    for (std::size_t at = 0; at < part.requests.size(); ++at) {
      for (std::size_t tree = part.drafts->begin(at); tree < part.drafts->end(at); ++tree) {
        of[part.requests[at]].emplace_back(part.drafts->trees.scored(tree), factors[at]);
      }
    }
  }
  Trees merged;
  std::vector<ScoredTree> views;
  std::vector<float> scaled;
  for (std::size_t at = 0; at < of.size(); ++at) {
    std::size_t nodes = 0;
    for (const auto& each : of[at]) nodes += each.first.scores.size();
    scaled.resize(nodes);
    views.clear();
    auto end = scaled.begin();
    for (const auto& [tree, factor] : of[at]) {
      const auto begin = end;
      end = std::ranges::transform(tree.scores, begin, [factor = factor](float score) { return score * factor; }).out;
      views.push_back(tree);
      views.back().scores = {begin, end};
    }
    const MergedTree tree = merge(views, max_nodes[at]);
    merged.add({.tokens = tree.tokens, .parents = tree.parents, .scores = tree.scores, .sources = tree.sources}, {}, false);
  }
  return merged;
}

Judgement judge(const Drafts& drafts, std::span<const std::size_t> max_nodes, std::span<const float> factors, std::span<const float> least) {
  Judgement found;
  std::vector<ScoredTree> views;
  for (std::size_t request = 0; request < drafts.size(); ++request) {
    views.clear();
    for (std::size_t tree = drafts.begin(request); tree < drafts.end(request); ++tree) {
      if (drafts.trees.nodes(tree) > 0) views.push_back(drafts.trees.scored(tree));
    }
    double first_score = 0, likely = 0;
    if (!views.empty()) {
      const MergedTree whole = merge(views, max_nodes[request]);
      MergedTree first;
      for (std::size_t node = 0; node < whole.tokens.size(); ++node) {
        if (whole.parents[node] >= 0) continue;
        first.tokens.push_back(whole.tokens[node]);
        first.parents.push_back(-1);
        first.scores.push_back(whole.scores[node]);
        first.sources.push_back(whole.sources[node]);
        first_score += whole.scores[node];
      }
      found.first.trees.add({.tokens = first.tokens, .parents = first.parents, .scores = first.scores, .sources = first.sources}, {}, false);
    }
    for (const ScoredTree& tree : views) {
      double expected = 0;
      for (const float score : tree.scores) {
        const float scaled = score * factors[request];
        if (scaled >= least[request]) expected += scaled;
      }
      likely = std::max(likely, expected);
    }
    found.first.end_request();
    found.first_scores.push_back(first_score);
    found.likely.push_back(likely);
  }
  return found;
}

}  // namespace suffolk::drafting
