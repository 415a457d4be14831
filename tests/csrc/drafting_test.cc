// Calibrator, merge, known noise and layout on random trees, and what is remembered of random texts, sound and not, without Python, so that
// sanitizers see every access. What they answer in numbers is compared with an oracle in tests/property; here, what must hold for any. Exit code
// 0: all holds.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "drafting/calibrator.h"
#include "drafting/noise_reweighting.h"
#include "drafting/noisy_argmax.h"
#include "drafting/merge.h"
#include "drafting/next_token_table.h"
#include "drafting/tree.h"
#include "random_trees.h"

namespace {

using namespace suffolk;
using namespace suffolk::drafting;

// One entry of one column is made into what no tree has.
void spoil(Columns& tree, std::mt19937_64& random) {
  const std::size_t node = random() % tree.tokens.size();
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int32_t kBad[] = {static_cast<std::int32_t>(node), kMost, -2, std::numeric_limits<std::int32_t>::min()};
  switch (random() % 3) {
    case 0: tree.parents[node] = kBad[random() % 4]; break;
    case 1: tree.parents.pop_back(); break;
    default: tree.tokens.push_back(0);
  }
}

void test_calibrator(std::mt19937_64& random) {
  Calibrator calibrator({.constant = -2.5, .match = 0.45, .share = 0.95, .count = 0.2, .depth = 0.25}, 0.99);
  for (int round = 0; round < 300; ++round) {
    Columns tree = random_tree(random, random() % 60);
    std::vector<float> scores(tree.tokens.size(), -1);
    calibrator.score(tree.counted(), scores);
    std::vector<double> sums(scores.size() + 1);
    for (std::size_t node = 0; node < scores.size(); ++node) {
      expect(scores[node] >= 0 && scores[node] <= above(scores, tree.parents[node]), "a node is at most as likely as its parent");
      sums[static_cast<std::size_t>(tree.parents[node] + 1)] += scores[node];
    }
    for (std::size_t at = 0; at < sums.size(); ++at) {
      expect(sums[at] <= above(scores, static_cast<std::int32_t>(at) - 1) + 1e-5, "siblings are at most as likely as their parent");
    }
    std::vector<std::int32_t> tokens(random() % 6);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 4);
    calibrator.learn(tree.counted(), tokens);
    if (tree.tokens.empty()) continue;
    spoil(tree, random);
    std::vector<float> before(5), after(5);
    const Columns other = random_tree(random, 5);
    calibrator.score(other.counted(), before);
    expect(refused([&] { calibrator.score(tree.counted(), scores); }), "what is no tree is not scored");
    expect(refused([&] { calibrator.learn(tree.counted(), tokens); }), "what is no tree teaches nothing");
    calibrator.score(other.counted(), after);
    expect(before == after, "what is no tree has taught nothing");
  }
}

void test_merge(std::mt19937_64& random) {
  for (int round = 0; round < 300; ++round) {
    std::vector<Columns> trees;
    std::vector<ScoredTree> views;
    for (std::size_t count = random() % 4; trees.size() < count;) trees.push_back(random_tree(random, random() % 40));
    for (const Columns& tree : trees) views.push_back(tree.scored());
    const std::size_t most = random() % 50;
    const MergedTree merged = merge(views, most), whole = merge(views, 1000);
    expect(merged.tokens.size() == std::min(most, whole.tokens.size()), "the merge has as many nodes as it may");
    expect(std::equal(merged.parents.begin(), merged.parents.end(), whole.parents.begin()), "a cut merge is the first part of the whole");
    expect(std::is_sorted(merged.scores.rbegin(), merged.scores.rend()), "scores fall");
    expect(!refused([&] { require_parents(merged.parents); }), "parents come first");
    std::set<std::pair<std::int32_t, std::int32_t>> children;
    for (std::size_t node = 0; node < merged.tokens.size(); ++node) children.emplace(merged.parents[node], merged.tokens[node]);
    expect(children.size() == merged.tokens.size(), "no sibling comes twice");
    if (trees.empty() || trees.back().tokens.empty()) continue;
    Columns bad = trees.back();
    if (random() % 2 == 0) {
      spoil(bad, random);
    } else {
      bad.scores[random() % bad.scores.size()] = random() % 2 == 0 ? std::nanf("") : 1.5F;
    }
    views.back() = bad.scored();
    expect(refused([&] { merge(views, most); }), "what is no tree is not merged");
  }
  Columns rising = random_tree(random, 2);
  rising.parents = {-1, 0};
  rising.scores = {0.5F, 0.6F};
  const std::vector<ScoredTree> views = {rising.scored()};
  expect(refused([&] { merge(views, 9); }), "a child above its parent is refused");
}

void test_noise_reweighting(std::mt19937_64& random) {
  for (int round = 0; round < 300; ++round) {
    Columns tree = random_tree(random, random() % 40);
    const Sampling sampling = {.seed = random(), .temperature = static_cast<double>(1 + random() % 100) / 20};
    const auto position = static_cast<std::int64_t>(random() % 100000);
    std::vector<float> scores(tree.tokens.size());
    reweight_scores(tree.scored(), position, sampling, scores);
    for (std::size_t node = 0; node < scores.size(); ++node) {
      expect(scores[node] >= 0 && scores[node] <= above(scores, tree.parents[node]), "a child is at most as likely as its parent");
    }
    if (tree.tokens.empty()) continue;
    spoil(tree, random);
    expect(refused([&] { reweight_scores(tree.scored(), position, sampling, scores); }), "what is no tree is not scored");
  }
  for (int round = 0; round < 1000; ++round) {
    const auto position = static_cast<std::int64_t>(random() >> 1), token = static_cast<std::int64_t>(random() >> 1);
    expect(std::isfinite(gumbel_noise(random(), position, token)), "noise is finite");
  }
}

void test_noisy_argmax(std::mt19937_64& random) {
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + random() % 300);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 100;
    const double temperature = static_cast<double>(1 + random() % 100) / 20;
    const std::uint64_t seed = random();
    const auto position = static_cast<std::int64_t>(random() % 100000);
    std::size_t best = 0;
    const auto score = [&](std::size_t token) {
      return logits[token] / temperature + gumbel_noise(seed, position, static_cast<std::int64_t>(token));
    };
    for (std::size_t token = 1; token < logits.size(); ++token) best = score(token) > score(best) ? token : best;
    expect(noisy_argmax(logits, temperature, seed, position) == static_cast<std::int64_t>(best), "the highest score wins");
  }
}

void test_next_token_table(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  const float kBad[] = {std::nanf(""), 1.0F, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), -1e30F};
  NextTokenTable table(64 + below(200));
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::int32_t> tokens(below(9)), candidates;
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(below(12));
    std::vector<float> logs;
    const std::size_t rows = tokens.empty() ? 0 : below(tokens.size());
    while (candidates.size() < rows * NextTokenTable::kWidth) {
      candidates.push_back(static_cast<std::int32_t>((below(3) + 2 * candidates.size()) % 12));
      logs.push_back(below(10) == 0 ? kBad[below(5)] : -static_cast<float>(below(60)) / 10);
    }
    table.learn(tokens, candidates, logs);
    const std::size_t size = table.size();
    expect(size <= 256, "no more ends than there is room for");
    std::vector<std::int32_t> more = candidates, negative = candidates;
    more.resize(more.size() + 1 + below(20));
    expect(refused([&] { table.learn(tokens, more, logs); }), "candidates without log probabilities are refused");
    more.assign((tokens.size() + 1) * NextTokenTable::kWidth, 0);
    expect(refused([&] { table.learn(tokens, more, std::vector<float>(more.size())); }), "more rows than tokens are refused");
    if (rows > 0) negative[below(negative.size())] = std::numeric_limits<std::int32_t>::min();
    expect(rows == 0 || refused([&] { table.learn(tokens, negative, logs); }), "a negative id is refused");
    expect(table.size() == size, "what is refused is not remembered");

    const std::size_t max_depth = below(8), max_nodes = below(100);
    std::optional<Sampling> sampling;
    if (below(2) == 0) sampling = {.seed = random(), .temperature = static_cast<double>(1 + below(100)) / 20};
    const auto position = below(10) == 0 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(below(100000));
    const NextTokenTree tree = table.draft(tokens, position, max_depth, max_nodes, sampling);
    expect(tree.tokens.size() <= max_nodes && tree.parents.size() == tree.tokens.size(), "no more nodes than asked for");
    expect(!refused([&] { require_parents(tree.parents); }) && !refused([&] { require_tokens(tree.tokens, 12); }), "a draft is a tree of candidates");
    expect(!refused([&] { require_scores(tree.scores); }) && std::is_sorted(tree.scores.rbegin(), tree.scores.rend()), "scores are chances and fall");
    std::vector<std::int32_t> depths(tree.tokens.size());
    find_depths(tree.parents, depths);
    const bool is_deep = std::any_of(depths.begin(), depths.end(), [&](std::int32_t depth) { return static_cast<std::size_t>(depth) > max_depth; });
    expect(!is_deep, "no deeper than asked for");
    for (std::size_t node = 0; node < tree.scores.size(); ++node) {
      expect(tree.scores[node] <= above(tree.scores, tree.parents[node]), "a node is at most as likely as its parent");
    }
  }
  expect(refused([] { NextTokenTable(63); }) && refused([] { NextTokenTable((std::size_t{1} << 24) + 1); }), "too few and too many ends are refused");
}

void test_layout(std::mt19937_64& random) {
  for (int round = 0; round < 100; ++round) {
    const Columns tree = random_tree(random, random() % 40);
    const std::size_t rows = tree.parents.size() + 1;
    std::vector<std::int32_t> depths(tree.parents.size());
    std::vector<std::uint8_t> visible(rows * rows, 7);
    find_depths(tree.parents, depths);
    find_visible(tree.parents, visible);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::span<const std::uint8_t> seen = std::span(visible).subspan(row * rows, rows);
      expect(std::count(seen.begin(), seen.end(), 1) == (row == 0 ? 1 : depths[row - 1] + 1), "a row sees as many as it is deep, and itself");
      for (std::size_t at = row; at > 0; at = static_cast<std::size_t>(tree.parents[at - 1] + 1)) expect(seen[at] == 1, "a row sees its ancestors");
      expect(std::count(seen.begin(), seen.end(), 0) + std::count(seen.begin(), seen.end(), 1) == static_cast<std::ptrdiff_t>(rows), "all is written");
    }
  }
  expect(is_chain({}) && is_chain(std::vector{-1, 0, 1}) && !is_chain(std::vector{-1, 0, 0}), "chains are told from trees");
}

}  // namespace

int main() {
  std::mt19937_64 random(7);
  test_calibrator(random);
  test_merge(random);
  test_noise_reweighting(random);
  test_noisy_argmax(random);
  test_next_token_table(random);
  test_layout(random);
  std::printf(failures == 0 ? "all hold\n" : "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
