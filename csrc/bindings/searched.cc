#include "bindings/searched.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "bindings/arguments.h"
#include "bindings/bind.h"

namespace suffolk::bindings {

using namespace py::literals;

std::vector<std::pair<std::uint32_t, std::uint64_t>> Searched::lookup(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match,
                                                                      const py::object& groups, const std::string& scope) const {
  const QueryBounds bounds = query_bounds(max_match, min_match, 1, 1);
  // A lookup reads no continuation, so it may use the whole order depth.
  if (bounds.max_match > order_depth_) {
    refuse("max_match is ", bounds.max_match, ", above the order depth ", order_depth_,
           " of the datastore; lower it, or build with a larger --order-depth");
  }
  check(bounds, order_depth_ + 1);
  const auto contexts_tails = tails(contexts, bounds);
  const Scopes parts = scopes(contexts.size(), groups, scope);
  const py::gil_scoped_release release;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> matches(contexts_tails.size());
  for_each_context(parts, contexts_tails.size(),
                   [&](ScopedSearch& search, std::size_t i) { matches[i] = search.lookup(query(parts, i, contexts_tails[i], bounds)); });
  return matches;
}

drafting::Trees Searched::draft(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth,
                                const std::vector<std::int64_t>& max_nodes, std::uint32_t source, const py::object& groups, const std::string& scope,
                                const std::vector<std::uint64_t>& least_counts) const {
  if (max_nodes.size() != contexts.size()) {
    refuse("max_nodes has ", max_nodes.size(), " entries for ", contexts.size(), " contexts; give one number or one a context");
  }
  std::vector<QueryBounds> bounds;
  for (const std::int64_t nodes : max_nodes) {
    bounds.push_back(query_bounds(max_match, min_match, max_depth, nodes));
    check(bounds.back(), order_depth_);
  }
  if (!least_counts.empty() && least_counts.size() != bounds.size()) {
    refuse("least_counts has ", least_counts.size(), " entries for ", contexts.size(), " contexts; give one a context, or none");
  }
  for (std::size_t i = 0; i < least_counts.size(); ++i) bounds[i].least_count = least_counts[i];
  drafting::Trees found;
  if (bounds.empty()) return found;
  const auto contexts_tails = tails(contexts, bounds.front());
  const Scopes parts = scopes(contexts.size(), groups, scope);
  std::vector<std::shared_ptr<const DraftTree>> trees(contexts_tails.size());
  const py::gil_scoped_release release;
  for_each_context(parts, contexts_tails.size(),
                   [&](ScopedSearch& search, std::size_t i) { trees[i] = search.draft(query(parts, i, contexts_tails[i], bounds[i])); });
  for (const auto& tree : trees) found.add(*tree, source);
  return found;
}

std::vector<std::uint64_t> Searched::count_documents(const py::sequence& contexts, std::uint64_t most, const py::object& groups,
                                                     const std::string& scope) const {
  std::vector<std::vector<std::uint32_t>> texts;
  for (const py::object context : contexts) {
    texts.push_back(token_tail(context, std::uint64_t{order_depth_} + 1, vocab_size_));
    if (texts.back().size() > order_depth_) {
      refuse("a text of more than ", order_depth_, " tokens, the order depth of the datastore; shorten it, or build with a larger --order-depth");
    }
  }
  const Scopes parts = scopes(contexts.size(), groups, scope);
  const py::gil_scoped_release release;
  std::vector<std::uint64_t> counts(texts.size());
  for_each_context(parts, texts.size(),
                   [&](ScopedSearch& search, std::size_t i) { counts[i] = search.count_documents(query(parts, i, texts[i], {}), most); });
  return counts;
}

py::tuple Searched::clock(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth,
                          std::int64_t max_nodes) const {
  const QueryBounds bounds = query_bounds(max_match, min_match, max_depth, max_nodes);
  check(bounds, order_depth_);
  const auto contexts_tails = tails(contexts, bounds);
  std::vector<double> lookups, drafts;
  {
    const py::gil_scoped_release release;
    using Clock = std::chrono::steady_clock;
    for (const auto& tail : contexts_tails) {
      const auto start = Clock::now();
      const std::shared_ptr<const Snapshot> taken = snapshot();
      const Match match = longest_match(taken->corpus(), tail, bounds);
      const auto found = Clock::now();
      const DraftTree tree = suffolk::draft(taken->corpus(), match, bounds);
      const auto end = Clock::now();
      lookups.push_back(std::chrono::duration<double>(found - start).count());
      drafts.push_back(std::chrono::duration<double>(end - found).count());
    }
  }
  return py::make_tuple(py::array_t<double>(static_cast<py::ssize_t>(lookups.size()), lookups.data()),
                        py::array_t<double>(static_cast<py::ssize_t>(drafts.size()), drafts.data()));
}

std::vector<Snapshot::Place> Searched::places(const Snapshot& snapshot, const py::handle& pattern, std::uint64_t limit, std::uint64_t group,
                                              const std::string& scope) const {
  const std::vector<std::uint32_t> ids = token_tail(pattern, order_depth_, vocab_size_);
  const Scopes parts = scopes(1, py::make_tuple(group), scope);
  const py::gil_scoped_release release;
  return ScopedSearch(snapshot, vocab_size_).occurrences(query(parts, 0, ids, {}), limit);
}

std::vector<std::vector<std::uint32_t>> Searched::tails(const py::sequence& contexts, const QueryBounds& bounds) const {
  std::vector<std::vector<std::uint32_t>> all;
  for (const py::object context : contexts) all.push_back(token_tail(context, bounds.max_match, vocab_size_));
  return all;
}

Searched::Scopes Searched::scopes(std::size_t contexts, const py::object& groups, const std::string& scope) {
  Scopes found = {.scope = Scope::kStore, .groups = {}, .width = 0};
  if (scope == "group") {
    found.scope = Scope::kGroup;
  } else if (scope == "group_first") {
    found.scope = Scope::kGroupFirst;
  } else if (scope != "store") {
    refuse("scope is '", scope, "'; it must be store, group or group_first");
  }
  if (!groups.is_none()) {
    const auto keys = py::array_t<std::uint64_t, py::array::c_style | py::array::forcecast>::ensure(groups);
    if (!keys) throw py::error_already_set();
    found.groups.assign(keys.data(), keys.data() + keys.size());
    found.width = contexts > 0 ? found.groups.size() / contexts : 0;
    if (found.groups.size() != found.width * contexts || (contexts > 0 && found.width == 0)) {
      refuse("groups has ", found.groups.size(), " keys for ", contexts, " contexts; give as many for each context");
    }
  }
  if (found.scope != Scope::kStore && groups.is_none()) refuse("scope is '", scope, "', but no groups are given; give one key a context");
  return found;
}

// Calls visit(search, i) for every context. The contexts of one group are visited one after another, so a thread reads the
// group's text once.
template <typename Visit>
void Searched::for_each_context(const Scopes& scopes, std::size_t count, const Visit& visit) const {
  const std::shared_ptr<const Snapshot> all = snapshot();
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!scopes.groups.empty()) {
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return std::ranges::lexicographical_compare(scopes.of(a), scopes.of(b)); });
  }
  pool_.parallel_for((order.size() + kGrain - 1) / kGrain, 1, [&](std::size_t block) {
    ScopedSearch search(*all, vocab_size_);
    const std::size_t begin = block * kGrain, end = std::min(begin + kGrain, order.size());
    for (std::size_t at = begin; at < end; ++at) visit(search, order[at]);
  });
}

ScopedQuery Searched::query(const Scopes& scopes, std::size_t i, std::span<const std::uint32_t> tail, const QueryBounds& bounds) {
  return {.context = tail, .bounds = bounds, .scope = scopes.scope, .groups = scopes.of(i)};
}

void bind_searched(py::module_& module) {
  py::class_<Searched, std::shared_ptr<Searched>>(module, "Searched")
      .def("lookup", &Searched::lookup, "contexts"_a, "max_match"_a, "min_match"_a, "groups"_a = py::none(), "scope"_a = "store")
      .def("draft", &Searched::draft, "contexts"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a, "source"_a, "groups"_a = py::none(),
           "scope"_a = "store", "least_counts"_a = std::vector<std::uint64_t>())
      .def("count_documents", &Searched::count_documents, "contexts"_a, "most"_a, "groups"_a = py::none(), "scope"_a = "store")
      .def("clock", &Searched::clock, "contexts"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a)
      .def_property_readonly("order_depth", &Searched::order_depth);
}

}  // namespace suffolk::bindings
