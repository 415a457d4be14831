#include "core/scoped_query.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/text_search.h"

namespace suffolk {
namespace {

// Adds the nodes of `rest` whose paths are new, up to max_nodes.
void add_nodes(DraftTree& tree, const DraftTree& rest, std::size_t max_nodes) {
  const auto share = [](std::uint64_t count, std::uint64_t all) { return static_cast<float>(static_cast<double>(count) / static_cast<double>(all)); };
  std::map<std::pair<std::int32_t, std::uint32_t>, std::int32_t> children;  // (parent, token) -> node
  for (std::size_t i = 0; i < tree.tokens.size(); ++i) {
    children[{tree.parents[i], tree.tokens[i]}] = static_cast<std::int32_t>(i);
    tree.scores.push_back(share(tree.counts[i], tree.match_count));
  }
  std::vector<std::int32_t> places;  // of the nodes of `rest` in `tree`
  for (std::size_t i = 0; i < rest.tokens.size() && tree.tokens.size() < max_nodes; ++i) {
    const std::int32_t parent = rest.parents[i] < 0 ? -1 : places[static_cast<std::size_t>(rest.parents[i])];
    const auto [place, is_new] = children.try_emplace({parent, rest.tokens[i]}, static_cast<std::int32_t>(tree.tokens.size()));
    places.push_back(place->second);
    if (!is_new) continue;
    const std::uint64_t above = parent < 0 ? tree.match_count : tree.counts[static_cast<std::size_t>(parent)];
    tree.scores.push_back(std::min(tree.scores.empty() ? 1.0F : tree.scores.back(), share(rest.counts[i], rest.match_count)));
    tree.tokens.push_back(rest.tokens[i]);
    tree.parents.push_back(parent);
    tree.counts.push_back(std::min(above, rest.counts[i]));
  }
}

}  // namespace

bool ScopedQuery::has_group() const {
  return std::ranges::any_of(groups, [](std::uint64_t group) { return group != kNoGroup; });
}

std::pair<std::uint32_t, std::uint64_t> ScopedSearch::lookup(const ScopedQuery& query) {
  if (query.scope != Scope::kStore && query.has_group()) {
    const auto text = group_text(query.groups);
    const TextMatch match = longest_match(text, text.size(), query.context, query.bounds);
    if (query.scope == Scope::kGroup || match.length > 0) return {match.length, match.ends.size()};
  }
  if (query.scope == Scope::kGroup) return {0, 0};
  const Match match = longest_match(snapshot_.corpus(), query.context, query.bounds);
  return {match.length, match.count};
}

std::shared_ptr<const DraftTree> ScopedSearch::draft(const ScopedQuery& query) {
  if (query.scope == Scope::kStore) return draft_store(query);
  auto tree = std::make_shared<DraftTree>();
  if (query.has_group()) {
    const auto text = group_text(query.groups);
    *tree = suffolk::draft(text, longest_match(text, text.size(), query.context, query.bounds), vocab_size_, query.bounds);
  }
  if (query.scope == Scope::kGroup || tree->tokens.size() >= query.bounds.max_nodes) return tree;
  auto rest = draft_store(query);
  if (tree->match_length == 0) return rest;
  add_nodes(*tree, *rest, query.bounds.max_nodes);
  return tree;
}

std::vector<Snapshot::Place> ScopedSearch::occurrences(const ScopedQuery& query, std::uint64_t limit) {
  if (query.scope != Scope::kStore && query.has_group()) {
    std::vector<Snapshot::Place> found = group_occurrences(query, limit);
    if (query.scope == Scope::kGroup || !found.empty()) return found;
  }
  if (query.scope == Scope::kGroup) return {};
  return snapshot_.occurrences(query.context, limit);
}

std::uint64_t ScopedSearch::count_documents(const ScopedQuery& query, std::uint64_t most) {
  if (query.scope != Scope::kStore && query.has_group()) {
    std::set<std::pair<std::size_t, std::uint64_t>> documents;  // a group may be named twice
    for (const Snapshot::Place& place : group_occurrences(query, ~std::uint64_t{0})) documents.emplace(place.segment, snapshot_.document_at(place));
    if (query.scope == Scope::kGroup || !documents.empty()) return std::min<std::uint64_t>(documents.size(), most);
  }
  return query.scope == Scope::kGroup ? 0 : snapshot_.count_documents(query.context, most);
}

std::span<const std::uint32_t> ScopedSearch::group_text(std::span<const std::uint64_t> groups) {
  if (std::ranges::equal(groups, groups_)) return text_;
  text_.clear();
  for (const std::uint64_t group : groups) {
    if (group == kNoGroup) continue;
    const std::vector<std::uint32_t> more = snapshot_.group_text(group);
    text_.insert(text_.end(), more.begin(), more.end());
  }
  groups_.assign(groups.begin(), groups.end());
  return text_;
}

std::vector<Snapshot::Place> ScopedSearch::group_occurrences(const ScopedQuery& query, std::uint64_t limit) {
  const auto text = group_text(query.groups);
  const auto length = static_cast<std::uint32_t>(query.context.size());
  const std::vector<std::uint32_t> ends = longest_match(text, text.size(), query.context, {.max_match = length, .min_match = length}).ends;
  const std::uint64_t wanted = std::min<std::uint64_t>(limit, ends.size());
  std::vector<Snapshot::Place> found;
  std::uint64_t begin = 0;  // where the document begins in the text
  const auto add = [&](std::size_t place, const MemorySegment& segment, std::uint32_t document) {
    const Interval range = segment.documents().range(document);
    while (found.size() < wanted) {
      const std::uint64_t start = ends[ends.size() * found.size() / wanted] - length;
      if (start >= begin + range.size()) break;
      found.push_back({place, range.lo + start - begin});
    }
    begin += range.size() + 1;
  };
  for (const std::uint64_t group : query.groups) {
    if (group != kNoGroup) snapshot_.for_each_in_group(group, add);
  }
  return found;
}

std::shared_ptr<const DraftTree> ScopedSearch::draft_store(const ScopedQuery& query) {
  const std::size_t size = query.context.size();
  if (last_draft_ && query.bounds == last_.bounds && last_draft_->match_length <= size && size <= last_.context.size() &&
      std::ranges::equal(query.context, last_.context.last(size))) {
    return last_draft_;
  }
  const Corpus corpus = snapshot_.corpus();
  last_draft_ = std::make_shared<DraftTree>(suffolk::draft(corpus, longest_match(corpus, query.context, query.bounds), query.bounds));
  last_ = query;
  return last_draft_;
}

}  // namespace suffolk
