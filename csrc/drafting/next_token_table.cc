#include "drafting/next_token_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <new>
#include <queue>

#include "core/error.h"
#include "drafting/mix.h"

namespace suffolk::drafting {
namespace {

constexpr std::size_t kWays = 4;  // entries of a bucket
constexpr std::size_t kFewestEnds = 64, kMostEnds = std::size_t{1} << 24;
constexpr std::size_t kMostNodes = std::numeric_limits<std::int32_t>::max();

constexpr double kWarmest = 1;     // upper bound of the temperature: the highest of the fitted data
constexpr float kLeast = -87;      // lower bound of a log probability: the exponential of smaller ones is denormal
constexpr double kSlight = 0.003;  // candidates of a smaller probability get no node

// The weight of a log probability, the weight of its noise, and the log weight of "no candidate", by the length of the end.
// Longer ends predict better. Fitted by maximum likelihood to 25,000 tokens of answers sampled at temperatures 0 and 0.7.
constexpr std::array<double, NextTokenTable::kOrder> kLikely = {0.45, 0.58, 0.65, 1.0}, kNoise = {0.47, 0.45, 0.45, 0.76},
                                                     kNone = {1.05, -0.07, -0.51, -2.19};

// A candidate node.
struct Found {
  double score;
  std::size_t number;  // order of discovery, which breaks ties
  std::int32_t token, parent;
  std::size_t depth;

  bool operator<(const Found& other) const { return score != other.score ? score < other.score : number > other.number; }
};

}  // namespace

// The keys of the ends of a text, the shortest end first.
class NextTokenTable::Ends {
 public:
  explicit Ends(std::span<const std::int32_t> tokens) { lengthen(tokens); }

  // The ends of `tokens` followed by the path to a node.
  Ends(std::span<const std::int32_t> tokens, const NextTokenTree& tree, std::int32_t node) {
    for (; node >= 0 && size_ < kOrder; node = tree.parents[static_cast<std::size_t>(node)]) add(tree.tokens[static_cast<std::size_t>(node)]);
    lengthen(tokens);
  }

  std::span<const std::uint64_t> keys() const& { return {keys_.data(), size_}; }
  std::span<const std::uint64_t> keys() const&& = delete;  // the view would dangle

 private:
  void lengthen(std::span<const std::int32_t> tokens) {
    for (auto token = tokens.rbegin(); token != tokens.rend() && size_ < kOrder; ++token) add(*token);
  }

  // Lengthens the end by the token before it. A key is the hash of the end. It is never 0: an empty entry has key 0.
  void add(std::int32_t token) {
    const std::uint64_t shorter = size_ == 0 ? kGolden : keys_[size_ - 1];
    keys_[size_++] = std::max<std::uint64_t>(1, mix(shorter + (std::uint64_t{static_cast<std::uint32_t>(token)} + 1) * kGolden));
  }

  std::array<std::uint64_t, kOrder> keys_{};
  std::size_t size_ = 0;
};

NextTokenTable::NextTokenTable(std::size_t ends) {
  if (ends < kFewestEnds || ends > kMostEnds) { refuse("next-token table: ends is ", ends, "; it must be ", kFewestEnds, " to ", kMostEnds); }
  try {
    entries_.resize(std::bit_ceil(ends));
  } catch (const std::bad_alloc&) { fail(Code::kResourceExhausted, "next-token table: no memory to remember ", ends, " ends; ask for fewer"); }
}

void NextTokenTable::learn(std::span<const std::int32_t> tokens, std::span<const std::int32_t> candidates, std::span<const float> log_probabilities) {
  const std::size_t rows = candidates.size() / kWidth;
  if (candidates.size() % kWidth != 0 || candidates.size() != log_probabilities.size()) {
    refuse("next-token table: ", candidates.size(), " candidates have ", log_probabilities.size(),
           " log probabilities; the numbers must be equal, and rows of ", kWidth);
  }
  if (rows > 0 && rows >= tokens.size()) {
    refuse("next-token table: ", rows, " rows of candidates stand behind a text of ", tokens.size(), " tokens; there must be fewer rows than tokens");
  }
  const auto bad = std::find_if(candidates.begin(), candidates.end(), [](std::int32_t token) { return token < 0; });
  if (bad != candidates.end()) {
    refuse("next-token table: a candidate of row ", static_cast<std::size_t>(bad - candidates.begin()) / kWidth, " is ", *bad,
           "; it must be 0 or more");
  }
  for (std::size_t row = 0; row < rows; ++row) {
    Distribution distribution;
    std::copy_n(candidates.begin() + static_cast<std::ptrdiff_t>(row * kWidth), kWidth, distribution.tokens.begin());
    for (std::size_t at = 0; at < kWidth; ++at) {
      const float given = log_probabilities[row * kWidth + at];
      distribution.log_probabilities[at] = given <= 0 ? std::max(given, kLeast) : kLeast;  // NaN is not at most 0
    }
    const Ends ends(tokens.first(tokens.size() - rows + row));
    for (const std::uint64_t key : ends.keys()) remember(key, distribution);
  }
}

NextTokenTree NextTokenTable::draft(std::span<const std::int32_t> tokens, std::int64_t position, std::size_t max_depth, std::size_t max_nodes,
                                    const std::optional<Sampling>& sampling) {
  if (max_nodes > kMostNodes) refuse("next-token table: max_nodes is ", max_nodes, "; it must be at most ", kMostNodes);
  NextTokenTree tree;
  std::priority_queue<Found> open;
  std::size_t number = 0;
  const auto open_behind = [&](std::int32_t node, double score, std::size_t depth) {
    if (depth == max_depth || tree.tokens.size() == max_nodes) return;
    const Known known = find(Ends(tokens, tree, node));
    if (known.distribution == nullptr) return;
    // Unsigned: any position is allowed, and may wrap.
    const auto at = static_cast<std::int64_t>(static_cast<std::uint64_t>(position) + depth);
    const Chances chances = weigh(known, at, sampling);
    for (std::size_t candidate = 0; candidate < kWidth; ++candidate) {
      if (chances[candidate] < kSlight) continue;
      open.push({.score = score * chances[candidate],
                 .number = number++,
                 .token = known.distribution->tokens[candidate],
                 .parent = node,
                 .depth = depth + 1});
    }
  };
  open_behind(-1, 1.0, 0);
  while (!open.empty() && tree.tokens.size() < max_nodes) {
    const Found best = open.top();
    open.pop();
    const auto node = static_cast<std::int32_t>(tree.tokens.size());
    tree.tokens.push_back(best.token);
    tree.parents.push_back(best.parent);
    tree.scores.push_back(static_cast<float>(best.score));
    open_behind(node, best.score, best.depth);
  }
  return tree;
}

std::size_t NextTokenTable::size() const noexcept { return size_; }

std::span<NextTokenTable::Entry> NextTokenTable::bucket(std::uint64_t key) {
  return std::span(entries_).subspan((key & (entries_.size() / kWays - 1)) * kWays, kWays);
}

void NextTokenTable::remember(std::uint64_t key, const Distribution& distribution) {
  const std::span<Entry> entries = bucket(key);
  auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& each) { return each.key == key; });
  if (entry == entries.end()) {
    entry = std::min_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    if (entry->key == 0) ++size_;
  }
  *entry = {.key = key, .used = ++clock_, .distribution = distribution};
}

NextTokenTable::Known NextTokenTable::find(const Ends& ends) {
  const std::span<const std::uint64_t> keys = ends.keys();
  for (std::size_t order = keys.size(); order > 0; --order) {
    for (Entry& entry : bucket(keys[order - 1])) {
      if (entry.key != keys[order - 1]) continue;
      entry.used = ++clock_;
      return {.distribution = &entry.distribution, .order = order};
    }
  }
  return {.distribution = nullptr, .order = 0};
}

// The probability of each candidate to be the next token. The remainder to 1 is the probability of any other token.
NextTokenTable::Chances NextTokenTable::weigh(const Known& known, std::int64_t position, const std::optional<Sampling>& sampling) {
  const std::size_t at = known.order - 1;
  Chances logs{};
  for (std::size_t candidate = 0; candidate < kWidth; ++candidate) {
    logs[candidate] = kLikely[at] * static_cast<double>(known.distribution->log_probabilities[candidate]);
    if (!sampling) continue;
    const double noise = gumbel_noise(sampling->seed, position, known.distribution->tokens[candidate]) - kMeanNoise;
    logs[candidate] += kNoise[at] * std::min(sampling->temperature, kWarmest) * noise;
  }
  const double most = std::max(kNone[at], *std::max_element(logs.begin(), logs.end()));
  double total = std::exp(kNone[at] - most);
  for (double& each : logs) total += each = std::exp(each - most);
  for (double& each : logs) each /= total;
  return logs;
}

}  // namespace suffolk::drafting
