#include "drafting/calibrator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/error.h"
#include "drafting/tree.h"

namespace suffolk::drafting {
namespace {

constexpr std::array kMatchEdges = {2.0, 3.0, 4.0, 6.0, 9.0, 14.0};
constexpr std::array kShareEdges = {0.02, 0.05, 0.12, 0.25, 0.45, 0.7, 0.95};
constexpr std::array kCountEdges = {2.0, 8.0, 64.0};
constexpr std::array kDepthEdges = {2.0, 3.0, 5.0};
constexpr std::size_t kFinePerCoarse = (kCountEdges.size() + 1) * (kDepthEdges.size() + 1);
constexpr std::size_t kCoarse = (kMatchEdges.size() + 1) * (kShareEdges.size() + 1);
constexpr double kStrength = 40;  // how many observations the estimate one level up is worth

// How many of the edges are at most `value`.
template <std::size_t size>
std::size_t bin(const std::array<double, size>& edges, double value) {
  return static_cast<std::size_t>(std::count_if(edges.begin(), edges.end(), [&](double edge) { return edge <= value; }));
}

// What a node is judged by, and the cells of the tables that this leads to.
struct Kind {
  double above, share, depth;
  std::size_t coarse, fine;
};

class Kinds {
 public:
  // Throws kInvalidArgument if the columns are no tree.
  explicit Kinds(const CountedTree& tree) : tree_(tree), depths_(tree.parents.size()) {
    const std::size_t size = tree.tokens.size();
    if (tree.parents.size() != size || (!tree.counts.empty() && tree.counts.size() != size)) {
      throw Error(Code::kInvalidArgument, "draft tree: " + std::to_string(size) + " tokens have " + std::to_string(tree.parents.size()) +
                                              " parents and " + std::to_string(tree.counts.size()) + " counts; the numbers must be equal");
    }
    require_parents(tree.parents);
    find_depths(tree.parents, depths_);
  }

  double match() const { return static_cast<double>(std::max<std::uint64_t>(1, tree_.match_length)); }

  Kind operator[](std::size_t node) const {
    const std::int32_t parent = tree_.parents[node];
    const double above = parent < 0 ? static_cast<double>(std::max<std::uint64_t>(1, tree_.match_count)) : count(static_cast<std::size_t>(parent));
    const double share = std::min(count(node) / above, 1.0), depth = depths_[node];
    const std::size_t coarse = bin(kMatchEdges, match()) * (kShareEdges.size() + 1) + bin(kShareEdges, share);
    const std::size_t within = bin(kCountEdges, above) * (kDepthEdges.size() + 1) + bin(kDepthEdges, depth);
    return {.above = above, .share = share, .depth = depth, .coarse = coarse, .fine = coarse * kFinePerCoarse + within};
  }

 private:
  double count(std::size_t node) const {
    return tree_.counts.empty() ? 1.0 : static_cast<double>(std::max<std::uint64_t>(1, tree_.counts[node]));
  }

  const CountedTree& tree_;
  std::vector<std::int32_t> depths_;
};

double before_learning(const Prior& prior, double match_term, const Kind& kind) {
  const double taken = kind.share * kind.above;
  const double odds = prior.constant + match_term + prior.share * std::log((taken + 0.3) / (kind.above - taken + 0.3)) +
                      prior.count * std::log(kind.above) + prior.depth * std::log(kind.depth);
  return 1.0 / (1.0 + std::exp(-odds));
}

}  // namespace

Calibrator::Calibrator(const Prior& prior, double decay) : prior_(prior), decay_(decay), coarse_(kCoarse), fine_(kCoarse * kFinePerCoarse) {}

void Calibrator::score(const CountedTree& tree, std::span<float> scores) const {
  const Kinds kinds(tree);
  const std::size_t size = tree.tokens.size();
  const double match_term = prior_.match * std::log(kinds.match());
  const auto lean = [](const Tally& tally, double estimate) { return (tally.hits + kStrength * estimate) / (tally.seen + kStrength); };
  std::vector<double> chances(size), sums(size + 1);  // the children of node i add up to sums[i + 1]
  for (std::size_t node = 0; node < size; ++node) {
    const Kind kind = kinds[node];
    chances[node] = lean(fine_[kind.fine], lean(coarse_[kind.coarse], before_learning(prior_, match_term, kind)));
    sums[static_cast<std::size_t>(tree.parents[node] + 1)] += chances[node];
  }
  for (std::size_t node = 0; node < size; ++node) {
    const auto above = static_cast<std::size_t>(tree.parents[node] + 1);
    chances[node] /= std::max(1.0, sums[above]);
    if (above > 0) chances[node] *= chances[above - 1];  // by now that of the parent's whole path
    scores[node] = static_cast<float>(chances[node]);
  }
}

void Calibrator::learn(const CountedTree& tree, std::span<const std::int32_t> tokens) {
  const Kinds kinds(tree);
  const std::size_t size = tree.tokens.size();
  if (size == 0) return;
  for (std::vector<Tally>* table : {&coarse_, &fine_}) {
    for (Tally& tally : *table) tally = {.hits = tally.hits * decay_, .seen = tally.seen * decay_};
  }
  std::int32_t parent = -1;
  for (const std::int32_t token : tokens) {
    std::int32_t taken = -1;
    for (auto node = static_cast<std::size_t>(parent + 1); node < size; ++node) {  // children come behind their parent
      if (tree.parents[node] != parent) continue;
      const bool hit = taken < 0 && tree.tokens[node] == token;  // of equal siblings the first
      if (hit) taken = static_cast<std::int32_t>(node);
      const Kind kind = kinds[node];
      for (Tally* tally : {&coarse_[kind.coarse], &fine_[kind.fine]}) {
        tally->seen += 1;
        tally->hits += hit ? 1 : 0;
      }
    }
    if (taken < 0) return;
    parent = taken;
  }
}

}  // namespace suffolk::drafting
