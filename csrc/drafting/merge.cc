#include "drafting/merge.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "core/error.h"
#include "drafting/tree.h"

namespace suffolk::drafting {
namespace {

// How much a source's opinion counts beside others', the logarithm of what it leaves any one token that it does not propose, as a share of
// what it leaves to all others, and its doubt: a source that expects less than this of all its nodes has little to say of others' either.
struct Voice {
  double weight, unlisted, doubt = 0.1;
};
constexpr std::size_t kVoices = 8;  // one a bit of a mark
constexpr Voice kNetwork = {.weight = 1.0, .unlisted = -4.4};  // where none was fitted
// Fitted by research/fit_merge.py, with kNobody, to the answers that the priors were fitted to. The draft model's is near the fit to answers
// of a target of its own family; its doubt was not fitted: it is so large that one that is no good is not heard before texts.
constexpr std::array<Voice, kVoices> kVoice = {{
    {.weight = 0.26, .unlisted = -3.4},               // datastore
    {.weight = 1.0, .unlisted = -3.5},                // prompt-lookup
    {.weight = 6.0, .unlisted = -5.6, .doubt = 1.0},  // draft-model
    kNetwork,                                         // early-exit
    {.weight = 0.13, .unlisted = -7.4},               // redrafter
    {.weight = 0.78, .unlisted = -4.1},               // eagle
    kNetwork,                                         // hierarchy
    {.weight = 0.56, .unlisted = -4.5},               // token-recycling
}};
constexpr double kNobody = 3.47;       // the more opinions there are, the less likely none of their tokens is right
constexpr double kLeastRest = 0.01;    // of what a source leaves to other tokens
constexpr double kLeastChance = 1e-5;  // of what it proposes

using Chances = std::array<float, kVoices>;

bool spoke(std::uint8_t speakers, std::size_t voice) { return (speakers >> voice & 1U) != 0; }

// What the sources together say of the children of one node. All children are first added, then weighed, then judged.
class Pool {
 public:
  // `change`: of the chance that the source gave the child before, 0 at first.
  void add(std::size_t voice, double change) {
    heard_ = static_cast<std::uint8_t>(heard_ | 1U << voice);
    expected_[voice] += change;
  }

  void weigh() {
    if (is_lone()) return;
    double sum = 0, most = 0;
    for (std::size_t voice = 0; voice < kVoices; ++voice) {
      if (!spoke(heard_, voice)) continue;
      const double expected = std::clamp(expected_[voice], kLeastChance, 1.0);
      weight_[voice] = kVoice[voice].weight * expected / (expected + kVoice[voice].doubt);
      sum += weight_[voice];
      most = std::max(most, weight_[voice]);
    }
    const double opinions = sum / most;
    double nobody = -kNobody * std::log(opinions);
    for (std::size_t voice = 0; voice < kVoices; ++voice) {
      if (!spoke(heard_, voice)) continue;
      weight_[voice] *= std::sqrt(opinions) / sum;
      const double rest = std::log(std::max(kLeastRest, 1 - expected_[voice]));
      unlisted_[voice] = rest + kVoice[voice].unlisted;
      nothing_ += weight_[voice] * unlisted_[voice];
      nobody += weight_[voice] * rest;
    }
    nobody_ = std::exp(nobody);
  }

  // What the chance of a child is in proportion to.
  double judge(std::uint8_t speakers, const Chances& chances) {
    if (speakers == 0) return 0;
    double found = 0;
    if (is_lone()) {
      found = chances[static_cast<std::size_t>(std::countr_zero(heard_))];
    } else {
      double log = nothing_;
      for (std::size_t voice = 0; voice < kVoices; ++voice) {
        if (spoke(speakers, voice)) log += weight_[voice] * (std::log(std::max<double>(kLeastChance, chances[voice])) - unlisted_[voice]);
      }
      found = std::exp(log);
    }
    judged_ += found;
    return found;
  }

  // The sum of all children's and of what is left to other tokens, once all are judged.
  double total() const { return is_lone() ? std::max(1.0, judged_) : judged_ + nobody_; }

 private:
  // Whether there is at most one opinion, which counts as it is.
  bool is_lone() const { return std::popcount(heard_) < 2; }

  std::uint8_t heard_ = 0;
  std::array<double, kVoices> expected_{}, weight_{}, unlisted_{};
  double nothing_ = 0, nobody_ = 0, judged_ = 0;
};

// Nodes found by their parent and token, in a hash table with open addresses, half of them free at least.
class Trie {
 public:
  explicit Trie(std::size_t most) : slots_(std::bit_ceil(2 * most + 1), -1) { nodes_.reserve(most); }

  // The row of the child, which is made or gets what another source thinks of it.
  std::int32_t add(std::int32_t parent, std::int32_t token, double chance, std::uint8_t source) {
    std::int32_t& slot = find(parent, token);
    if (slot < 0) {
      slot = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({.token = token, .parent = parent, .pool = pool_of(parent)});
    }
    if (source != 0) {
      Node& node = nodes_[static_cast<std::size_t>(slot)];
      const auto voice = static_cast<std::size_t>(std::countr_zero(source));
      const float before = node.chances[voice];
      node.chances[voice] = std::max(before, static_cast<float>(chance));
      node.source |= source;
      node.speakers = static_cast<std::uint8_t>(node.speakers | 1U << voice);
      pools_[node.pool].add(voice, node.chances[voice] - before);
    }
    return slot;
  }

  // Makes scores of chances: parents stand before their children.
  void score() {
    for (Pool& pool : pools_) pool.weigh();
    for (Node& node : nodes_) node.value = pools_[node.pool].judge(node.speakers, node.chances);
    for (Node& node : nodes_) {
      if (node.value > 0) node.value /= pools_[node.pool].total();
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
    std::size_t pool;   // its own and its siblings'
    Chances chances{};  // behind its parent, by voice
    std::uint8_t source = 0, speakers = 0;
    double value = 0;       // after `score` the chance of the whole path
    std::size_t below = 0;  // the pool of its children; 0, the root's, where it has none
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

  std::vector<std::int32_t> slots_;  // rows; -1 where free
  std::vector<Node> nodes_;          // in the order of their coming
  std::vector<Pool> pools_{1};       // the root's first
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
