#include "drafting/calibrator.h"

#include <algorithm>
#include <array>
#include <cmath>

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
constexpr double kStrength = 40;      // weight of the coarser estimate, in observations
constexpr double kForgotten = 1e-30;  // smaller counts become 0; denormal numbers would be slow

// How many of the edges are at most `value`.
template <std::size_t size>
std::size_t bin(const std::array<double, size>& edges, double value) {
  return static_cast<std::size_t>(std::count_if(edges.begin(), edges.end(), [&](double edge) { return edge <= value; }));
}

double decayed(double count, double decay) { return count * decay < kForgotten ? 0 : count * decay; }

}  // namespace

// The features of a node, and its cells in the tables.
struct Calibrator::Kind {
  double match, above, share, depth;
  std::size_t coarse, fine;
};

class Calibrator::Kinds {
 public:
  // Throws kInvalidArgument if the columns are no tree.
  explicit Kinds(const CountedTree& tree) : tree_(tree), depths_(tree.parents.size()) {
    const std::size_t size = tree.tokens.size();
    if (tree.parents.size() != size || (!tree.counts.empty() && tree.counts.size() != size)) {
      refuse("draft tree: ", size, " tokens have ", tree.parents.size(), " parents and ", tree.counts.size(), " counts; the numbers must be equal");
    }
    require_parents(tree.parents);
    find_depths(tree.parents, depths_);
  }

  Kind operator[](std::size_t node) const {
    const std::int32_t parent = tree_.parents[node];
    const double above = parent < 0 ? static_cast<double>(std::max<std::uint64_t>(1, tree_.match_count)) : count(static_cast<std::size_t>(parent));
    const double match = static_cast<double>(std::max<std::uint64_t>(1, tree_.match_length));
    const double share = std::min(count(node) / above, 1.0), depth = depths_[node];
    const std::size_t coarse = bin(kMatchEdges, match) * (kShareEdges.size() + 1) + bin(kShareEdges, share);
    const std::size_t within = bin(kCountEdges, above) * (kDepthEdges.size() + 1) + bin(kDepthEdges, depth);
    return {.match = match, .above = above, .share = share, .depth = depth, .coarse = coarse, .fine = coarse * kFinePerCoarse + within};
  }

 private:
  double count(std::size_t node) const { return tree_.counts.empty() ? 1.0 : static_cast<double>(std::max<std::uint64_t>(1, tree_.counts[node])); }

  const CountedTree& tree_;
  std::vector<std::int32_t> depths_;
};

Calibrator::Calibrator(const Prior& prior, double decay)
    : reliability(decay), prior_(prior), decay_(decay), coarse_(kCoarse), fine_(kCoarse * kFinePerCoarse) {}

// P(node accepted | parent accepted), without regard to siblings.
double Calibrator::chance(const Kind& kind) const {
  const double taken = kind.share * kind.above;
  const double odds = prior_.constant + prior_.match * std::log(kind.match) + prior_.share * std::log((taken + 0.3) / (kind.above - taken + 0.3)) +
                      prior_.count * std::log(kind.above) + prior_.depth * std::log(kind.depth);
  const auto lean = [](const Tally& tally, double estimate) { return (tally.hits + kStrength * estimate) / (tally.seen + kStrength); };
  return lean(fine_[kind.fine], lean(coarse_[kind.coarse], 1.0 / (1.0 + std::exp(-odds))));
}

void Calibrator::score(const CountedTree& tree, std::span<float> scores) const {
  const Kinds kinds(tree);
  const std::size_t size = tree.tokens.size();
  std::vector<double> chances(size), sums(size + 1);  // the children of node i add up to sums[i + 1]
  for (std::size_t node = 0; node < size; ++node) {
    chances[node] = chance(kinds[node]);
    sums[static_cast<std::size_t>(tree.parents[node] + 1)] += chances[node];
  }
  for (std::size_t node = 0; node < size; ++node) {
    const auto above = static_cast<std::size_t>(tree.parents[node] + 1);
    chances[node] /= std::max(1.0, sums[above]);
    if (above > 0) chances[node] *= chances[above - 1];  // already the probability of the parent's whole path
    scores[node] = static_cast<float>(chances[node]);
  }
}

void Calibrator::learn(const CountedTree& tree, std::span<const std::int32_t> tokens) {
  const Kinds kinds(tree);
  const std::size_t size = tree.tokens.size();
  if (size == 0) return reliability.add<float>({}, {});  // no predictions: only lets earlier ones decay
  std::vector<Kind> judged;
  std::vector<double> estimates;
  std::vector<float> chances;
  std::vector<std::uint8_t> hits;
  std::int32_t parent = -1;
  for (const std::int32_t token : tokens) {
    const std::size_t first = judged.size();
    std::int32_t taken = -1;
    double sum = 0;
    for (auto node = static_cast<std::size_t>(parent + 1); node < size; ++node) {  // children come after their parent
      if (tree.parents[node] != parent) continue;
      const bool hit = taken < 0 && tree.tokens[node] == token;  // only the first of equal siblings counts
      if (hit) taken = static_cast<std::int32_t>(node);
      judged.push_back(kinds[node]);
      hits.push_back(hit ? 1 : 0);
      estimates.push_back(chance(judged.back()));
      sum += estimates.back();
    }
    for (std::size_t at = first; at < judged.size(); ++at) chances.push_back(static_cast<float>(estimates[at] / std::max(1.0, sum)));
    if (taken < 0) break;
    parent = taken;
  }
  for (std::vector<Tally>* table : {&coarse_, &fine_}) {
    for (Tally& tally : *table) tally = {.hits = decayed(tally.hits, decay_), .seen = decayed(tally.seen, decay_)};
  }
  for (std::size_t at = 0; at < judged.size(); ++at) {
    for (Tally* tally : {&coarse_[judged[at].coarse], &fine_[judged[at].fine]}) {
      tally->seen += 1;
      tally->hits += hits[at];
    }
  }
  reliability.add<float>(chances, hits);
}

std::vector<double> Calibrator::state() const {
  std::vector<double> found;
  found.reserve(2 * (coarse_.size() + fine_.size()));
  for (const std::vector<Tally>* table : {&coarse_, &fine_}) {
    for (const Tally& tally : *table) found.insert(found.end(), {tally.hits, tally.seen});
  }
  return found;
}

void Calibrator::restore(std::span<const double> state) {
  const std::size_t wanted = 2 * (coarse_.size() + fine_.size());
  if (state.size() != wanted) refuse("calibration: a state has ", state.size(), " entries; it must have ", wanted);
  for (std::size_t cell = 0; cell < wanted; cell += 2) {
    if (!(state[cell] >= 0 && state[cell] <= state[cell + 1] && std::isfinite(state[cell + 1]))) {
      refuse("calibration: a state has ", state[cell], " hits of ", state[cell + 1], " seen in cell ", cell / 2,
             "; there must be 0 to as many as were seen");
    }
  }
  std::size_t cell = 0;
  for (std::vector<Tally>* table : {&coarse_, &fine_}) {
    for (Tally& tally : *table) {
      tally = {.hits = state[cell], .seen = state[cell + 1]};
      cell += 2;
    }
  }
}

}  // namespace suffolk::drafting
