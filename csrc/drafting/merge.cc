#include "drafting/merge.h"

#include <algorithm>
#include <bit>
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
  explicit Trie(std::size_t most) : slots_(std::bit_ceil(2 * most + 1), -1) {
    nodes_.tokens.reserve(most);
    nodes_.parents.reserve(most);
    nodes_.scores.reserve(most);
    nodes_.sources.reserve(most);
  }

  // The row of the child, which is made or gets the marks and the score, if that is higher.
  std::int32_t add(std::int32_t parent, std::int32_t token, float score, std::uint8_t source) {
    std::int32_t& slot = find(parent, token);
    if (slot < 0) {
      slot = static_cast<std::int32_t>(nodes_.tokens.size());
      nodes_.tokens.push_back(token);
      nodes_.parents.push_back(parent);
      nodes_.scores.push_back(score);
      nodes_.sources.push_back(source);
    } else {
      const auto row = static_cast<std::size_t>(slot);
      nodes_.scores[row] = std::max(nodes_.scores[row], score);
      nodes_.sources[row] |= source;
    }
    return slot;
  }

  MergedTree best(std::size_t max_nodes) const {
    const std::size_t size = nodes_.tokens.size(), kept = std::min(size, max_nodes);
    std::vector<std::int32_t> order(size), place(size);
    std::iota(order.begin(), order.end(), 0);
    // Rows break ties, so that of equals parents stay first.
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const float left = nodes_.scores[static_cast<std::size_t>(a)], right = nodes_.scores[static_cast<std::size_t>(b)];
      return left != right ? left > right : a < b;
    });
    MergedTree tree{.tokens = std::vector<std::int32_t>(kept), .parents = std::vector<std::int32_t>(kept), .scores = std::vector<float>(kept),
                    .sources = std::vector<std::uint8_t>(kept)};
    for (std::size_t at = 0; at < kept; ++at) {
      const auto row = static_cast<std::size_t>(order[at]);
      place[row] = static_cast<std::int32_t>(at);
      tree.tokens[at] = nodes_.tokens[row];
      tree.parents[at] = nodes_.parents[row] < 0 ? -1 : place[static_cast<std::size_t>(nodes_.parents[row])];
      tree.scores[at] = nodes_.scores[row];
      tree.sources[at] = nodes_.sources[row];
    }
    return tree;
  }

 private:
  std::int32_t& find(std::int32_t parent, std::int32_t token) {
    const std::uint64_t key = std::uint64_t{static_cast<std::uint32_t>(parent)} << 32 | static_cast<std::uint32_t>(token);
    std::size_t at = (key * 0x9E3779B97F4A7C15U) >> 32;
    for (;; ++at) {
      std::int32_t& slot = slots_[at & (slots_.size() - 1)];
      const auto row = static_cast<std::size_t>(slot);
      if (slot < 0 || (nodes_.parents[row] == parent && nodes_.tokens[row] == token)) return slot;
    }
  }

  std::vector<std::int32_t> slots_;  // rows; -1 where free
  MergedTree nodes_;                 // in the order of their coming
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
      const std::int32_t above = tree.parents[node] < 0 ? -1 : rows[static_cast<std::size_t>(tree.parents[node])];
      rows.push_back(trie.add(above, tree.tokens[node], tree.scores[node], tree.sources[node]));
    }
  }
  return trie.best(max_nodes);
}

}  // namespace suffolk::drafting
