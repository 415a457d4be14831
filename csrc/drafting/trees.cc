#include "drafting/trees.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace suffolk::drafting {
namespace {

template <typename T, typename Values>
void append(std::vector<T>& column, const Values& values) {
  column.insert(column.end(), values.begin(), values.end());
}

}  // namespace

ScoredTree Trees::scored(std::size_t tree) const {
  const Tree& at = trees_[tree];
  return {.tokens = part<const std::int32_t>(tokens_, at),
          .parents = part<const std::int32_t>(parents_, at),
          .scores = part<const float>(scores_, at),
          .sources = part<const std::uint32_t>(sources_, at)};
}

CountedTree Trees::counted(std::size_t tree) const {
  const Tree& at = trees_[tree];
  return {.tokens = part<const std::int32_t>(tokens_, at),
          .parents = part<const std::int32_t>(parents_, at),
          .counts = part<const std::uint64_t>(counts_, at),
          .match_length = at.match_length,
          .match_count = at.match_count};
}

void Trees::add(const DraftTree& tree, std::uint32_t source) {
  trees_.push_back({.begin = tokens_.size(),
                    .size = tree.tokens.size(),
                    .match_length = tree.match_length,
                    .match_count = tree.match_count,
                    .partial = false,
                    .has_counts = true});
  append(tokens_, tree.tokens);
  append(parents_, tree.parents);
  append(counts_, tree.counts);
  append(scores_, tree.scores);
  const double all = static_cast<double>(std::max<std::uint64_t>(tree.match_count, 1));
  for (std::size_t node = tree.scores.size(); node < tree.counts.size(); ++node) {
    scores_.push_back(static_cast<float>(static_cast<double>(tree.counts[node]) / all));
  }
  sources_.resize(tokens_.size(), source);
}

void Trees::add(const ScoredTree& tree, const CountedTree& counted, bool partial) {
  trees_.push_back({.begin = tokens_.size(),
                    .size = tree.tokens.size(),
                    .match_length = counted.match_length,
                    .match_count = counted.match_count,
                    .partial = partial,
                    .has_counts = counted.counts.size() == tree.tokens.size()});
  append(tokens_, tree.tokens);
  append(parents_, tree.parents);
  append(scores_, tree.scores);
  append(sources_, tree.sources);
  append(counts_, counted.counts);
  counts_.resize(tokens_.size(), 1);
}

void Trees::add(const Trees& other, std::size_t tree, std::size_t most) {
  const std::size_t size = std::min(other.nodes(tree), most);
  ScoredTree scored = other.scored(tree);
  CountedTree counted = other.counted(tree);
  scored = {.tokens = scored.tokens.first(size),
            .parents = scored.parents.first(size),
            .scores = scored.scores.first(size),
            .sources = scored.sources.first(size)};
  counted.counts = counted.counts.first(size);
  if (!other.has_counts(tree)) counted.counts = {};
  add(scored, counted, other.partial(tree));
}

Drafts::Drafts(Trees all, std::span<const std::size_t> counts) : trees(std::move(all)) {
  std::size_t end = 0;
  for (const std::size_t count : counts) ends_.push_back(end += count);
  if (end != trees.size()) refuse("draft trees: the counts of requests add up to ", end, "; there are ", trees.size(), " trees");
}

Drafts largest_trees(const Trees& trees, std::span<const std::size_t> counts) {
  Drafts found;
  std::vector<std::size_t> chosen;  // the largest trees of one request
  std::size_t begin = 0;
  for (const std::size_t count : counts) {
    if (count > trees.size() - begin) refuse("draft trees: the counts of requests add up to more than the ", trees.size(), " trees");
    chosen.clear();
    for (std::size_t tree = begin; tree < begin + count; ++tree) {
      if (trees.nodes(tree) == 0) continue;
      const auto same =
          std::ranges::find_if(chosen, [&](std::size_t other) { return trees.counted(other).match_length == trees.counted(tree).match_length; });
      if (same == chosen.end()) {
        chosen.push_back(tree);
      } else if (trees.nodes(tree) > trees.nodes(*same)) {
        *same = tree;
      }
    }
    for (const std::size_t tree : chosen) found.trees.add(trees, tree, trees.nodes(tree));
    found.end_request();
    begin += count;
  }
  return found;
}

void require_places(const DraftPart& part, std::size_t requests) {
  if (part.requests.size() != part.drafts->size()) refuse("draft trees: ", part.requests.size(), " places for ", part.drafts->size(), " requests");
  for (const std::size_t place : part.requests) {
    if (place >= requests) refuse("draft trees: a request has place ", place, " of ", requests);
  }
}

Drafts gather(std::span<const DraftPart> parts, std::size_t requests) {
  std::vector<std::vector<std::pair<const Drafts*, std::size_t>>> of(requests);
  for (const DraftPart& part : parts) {
    require_places(part, requests);
    for (std::size_t at = 0; at < part.requests.size(); ++at) of[part.requests[at]].emplace_back(part.drafts, at);
  }
  Drafts found;
  for (const auto& those : of) {
    for (const auto& [drafts, at] : those) {
      for (std::size_t tree = drafts->begin(at); tree < drafts->end(at); ++tree) found.trees.add(drafts->trees, tree, drafts->trees.nodes(tree));
    }
    found.end_request();
  }
  return found;
}

}  // namespace suffolk::drafting
