// Batches of random trees, and the times of random passes, without Python, so that sanitizers see every access. Exit code 0: all holds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>
#include <vector>

#include "drafting/merge.h"
#include "drafting/pass_times.h"
#include "drafting/trees.h"
#include "random_trees.h"

namespace {

using namespace suffolk::drafting;

// Drafts of several requests in parts are those of each request alone.
void test_drafts(std::mt19937_64& random) {
  for (int round = 0; round < 300; ++round) {
    const std::size_t requests = 1 + random() % 4;
    std::vector<Drafts> drafts(random() % 4);
    std::vector<DraftPart> parts;
    std::vector<ScaledPart> scaled;
    std::vector<std::vector<Columns>> trees(requests);
    for (Drafts& each : drafts) {
      DraftPart part{.drafts = &each, .requests = {}};
      for (std::size_t request = 0; request < requests; ++request) {
        if (random() % 3 == 0) continue;
        part.requests.push_back(request);
        for (std::size_t count = random() % 3; count > 0; --count) {
          trees[request].push_back(random_tree(random, random() % 20));
          each.trees.add(trees[request].back().scored(), trees[request].back().counted(), false);
        }
        each.end_request();
      }
      parts.push_back(part);
      scaled.push_back({.part = part, .factors = std::vector<float>(part.requests.size(), 1)});
    }
    const Drafts all = gather(parts, requests);
    const std::vector<std::size_t> most(requests, 30);
    const Trees merged = merge(scaled, most);
    const Judgement judged = judge(all, most, std::vector<float>(requests, 1), std::vector<float>(requests, 0));
    expect(all.size() == requests && merged.size() == requests, "each request has its place");
    for (std::size_t request = 0; request < requests; ++request) {
      std::vector<ScoredTree> views;
      for (const Columns& tree : trees[request]) views.push_back(tree.scored());
      const MergedTree alone = merge(views, most[request]);
      expect(std::ranges::equal(merged.scored(request).tokens, alone.tokens), "a request has its own tokens");
      expect(std::ranges::equal(merged.scored(request).scores, alone.scores), "a request has its own scores");
      expect(all.end(request) - all.begin(request) == trees[request].size(), "a request has its own trees");
      expect(judged.first_scores[request] <= 1 + 1e-5, "one first token is accepted at most");
    }
    std::vector<std::size_t> counts;
    for (std::size_t request = 0; request < requests; ++request) counts.push_back(trees[request].size());
    const Drafts largest = largest_trees(all.trees, counts);
    for (std::size_t request = 0; request < requests; ++request) {
      std::set<std::uint64_t> lengths, kept;
      for (const Columns& tree : trees[request]) {
        if (!tree.tokens.empty()) lengths.insert(tree.match_length);
      }
      for (std::size_t tree = largest.begin(request); tree < largest.end(request); ++tree) kept.insert(largest.trees.counted(tree).match_length);
      expect(kept == lengths && largest.end(request) - largest.begin(request) == kept.size(), "one tree of each match length is kept");
    }
    counts.push_back(1);
    expect(refused([&] { largest_trees(all.trees, counts); }), "more trees than there are, are refused");
    expect(refused([&] { Drafts(all.trees, counts); }), "counts that do not fit are refused");
    if (!parts.empty() && !parts[0].requests.empty()) {
      parts[0].requests[0] = requests;
      expect(refused([&] { gather(parts, requests); }), "a place that is no request is refused");
    }
  }
}

void test_pass_times(std::mt19937_64& random) {
  PassTimes times({1, 2, 4, 8, 16, 17, 64}, {1, 1.1, 1.2, 1.3, 1.4, 2, 3}, {.per_request = 0.01, .per_key = 1e-6, .per_pair = 1e-7});
  for (int round = 0; round < 1000; ++round) {
    const std::vector<double> rows = {1, 2, 3, 16.5, 64, 65, 1000};
    std::vector<double> seconds(rows.size());
    times.times(rows, 1, 100, round % 2 == 0 ? 0 : -0.7, false, seconds);
    expect(seconds[0] > 0 && std::is_sorted(seconds.begin(), seconds.end(), [](double a, double b) { return a < b * (1 - 1e-9); }),
           "more rows take no less");
    const double size = static_cast<double>(1 + random() % 200);
    times.update(size, 1, 100, static_cast<double>(1 + random() % 1000) / 100);
  }
  for (int round = 0; round < 1000; ++round) times.update(1, 1, 0, 2.02);
  expect(std::abs(times.time(1, 1, 0) - 2.02) < 0.02, "the time of a pass is learned");
}

}  // namespace

int main() {
  std::mt19937_64 random(7);
  test_drafts(random);
  test_pass_times(random);
  std::printf(failures == 0 ? "all hold\n" : "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
