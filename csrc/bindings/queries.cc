#include "bindings/queries.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "bindings/arguments.h"

namespace suffolk::bindings {

Contexts scoped_contexts(const py::sequence& ids, const py::object& groups, const std::string& scope) {
  Contexts contexts = {.ids = ids};
  if (scope == "group") {
    contexts.scope = Scope::kGroup;
  } else if (scope == "group_first") {
    contexts.scope = Scope::kGroupFirst;
  } else if (scope != "store") {
    refuse("scope is '", scope, "'; it must be store, group or group_first");
  }
  if (!groups.is_none()) {
    const auto keys = py::array_t<std::uint64_t, py::array::c_style | py::array::forcecast>::ensure(groups);
    if (!keys) throw py::error_already_set();
    contexts.groups.assign(keys.data(), keys.data() + keys.size());
    if (contexts.groups.size() != ids.size()) refuse("groups has ", contexts.groups.size(), " keys for ", ids.size(), " contexts; give one a context");
  }
  if (contexts.scope != Scope::kStore && groups.is_none()) refuse("scope is '", scope, "', but no groups are given; give one key a context");
  return contexts;
}

std::vector<std::pair<std::uint32_t, std::uint64_t>> Queries::lookup(const Snapshot& snapshot, const Contexts& contexts, std::int64_t max_match,
                                                                     std::int64_t min_match) const {
  const QueryBounds bounds = query_bounds(max_match, min_match, 1, 1);
  // A lookup reads no continuation, so it may use the whole order depth.
  if (bounds.max_match > order_depth_) {
    refuse("max_match is ", bounds.max_match, ", above the order depth ", order_depth_,
           " of the datastore; lower it, or build with a larger --order-depth");
  }
  check(bounds, order_depth_ + 1);
  const auto contexts_tails = tails(contexts.ids, bounds);
  const py::gil_scoped_release release;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> matches(contexts_tails.size());
  for_each_context(snapshot, contexts, contexts_tails.size(), [&](ScopedSearch& search, std::size_t i) {
    matches[i] = search.lookup(query(contexts, i, contexts_tails[i], bounds));
  });
  return matches;
}

py::list Queries::draft(const Snapshot& snapshot, const Contexts& contexts, std::int64_t max_match, std::int64_t min_match,
                        std::int64_t max_depth, const std::vector<std::int64_t>& max_nodes, std::uint32_t source) const {
  if (max_nodes.size() != contexts.ids.size()) {
    refuse("max_nodes has ", max_nodes.size(), " entries for ", contexts.ids.size(), " contexts; give one number or one a context");
  }
  std::vector<QueryBounds> bounds;
  for (const std::int64_t nodes : max_nodes) {
    bounds.push_back(query_bounds(max_match, min_match, max_depth, nodes));
    check(bounds.back(), order_depth_);
  }
  if (bounds.empty()) return py::list();
  const auto contexts_tails = tails(contexts.ids, bounds.front());
  std::vector<DraftTree> trees(contexts_tails.size());
  {
    const py::gil_scoped_release release;
    for_each_context(snapshot, contexts, contexts_tails.size(), [&](ScopedSearch& search, std::size_t i) {
      trees[i] = search.draft(query(contexts, i, contexts_tails[i], bounds[i]));
    });
  }
  py::list answers;
  for (const DraftTree& tree : trees) answers.append(tree_tuple(tree, source));
  return answers;
}

py::tuple Queries::clock(const std::function<std::shared_ptr<const Snapshot>()>& take, const py::sequence& contexts, std::int64_t max_match,
                         std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes) const {
  const QueryBounds bounds = query_bounds(max_match, min_match, max_depth, max_nodes);
  check(bounds, order_depth_);
  const auto contexts_tails = tails(contexts, bounds);
  std::vector<double> lookups, drafts;
  {
    const py::gil_scoped_release release;
    using Clock = std::chrono::steady_clock;
    for (const auto& tail : contexts_tails) {
      const auto start = Clock::now();
      const std::shared_ptr<const Snapshot> snapshot = take();
      const Match match = longest_match(snapshot->corpus(), tail, bounds);
      const auto found = Clock::now();
      const DraftTree tree = suffolk::draft(snapshot->corpus(), match, bounds);
      const auto end = Clock::now();
      lookups.push_back(std::chrono::duration<double>(found - start).count());
      drafts.push_back(std::chrono::duration<double>(end - found).count());
    }
  }
  return py::make_tuple(py::array_t<double>(static_cast<py::ssize_t>(lookups.size()), lookups.data()),
                        py::array_t<double>(static_cast<py::ssize_t>(drafts.size()), drafts.data()));
}

std::vector<Snapshot::Place> Queries::occurrences(const Snapshot& snapshot, const Contexts& contexts, std::uint64_t limit) const {
  const std::vector<std::uint32_t> pattern = token_tail(contexts.ids[0], order_depth_, vocab_size_);
  const py::gil_scoped_release release;
  return ScopedSearch(snapshot, vocab_size_).occurrences(query(contexts, 0, pattern, {}), limit);
}

std::vector<std::vector<std::uint32_t>> Queries::tails(const py::sequence& contexts, const QueryBounds& bounds) const {
  std::vector<std::vector<std::uint32_t>> all;
  for (const py::object context : contexts) all.push_back(token_tail(context, bounds.max_match, vocab_size_));
  return all;
}

// Calls visit(search, i) for every context, those of one group in a row, so that a thread reads the group's text once.
template <typename Visit>
void Queries::for_each_context(const Snapshot& snapshot, const Contexts& contexts, std::size_t count, const Visit& visit) const {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!contexts.groups.empty()) std::ranges::stable_sort(order, {}, [&](std::size_t i) { return contexts.groups[i]; });
  pool_.parallel_for((order.size() + kGrain - 1) / kGrain, 1, [&](std::size_t block) {
    ScopedSearch search(snapshot, vocab_size_);
    const std::size_t begin = block * kGrain, end = std::min(begin + kGrain, order.size());
    for (std::size_t at = begin; at < end; ++at) visit(search, order[at]);
  });
}

ScopedQuery Queries::query(const Contexts& contexts, std::size_t i, std::span<const std::uint32_t> tail, const QueryBounds& bounds) {
  return {.context = tail, .bounds = bounds, .scope = contexts.scope, .group = contexts.groups.empty() ? kNoGroup : contexts.groups[i]};
}

}  // namespace suffolk::bindings
