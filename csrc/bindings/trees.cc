#include <pybind11/gil_safe_call_once.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/columns.h"
#include "drafting/merge.h"
#include "drafting/noise_reweighting.h"
#include "drafting/tree.h"

namespace suffolk::bindings {
namespace {

using drafting::DraftPart, drafting::Drafts, drafting::ScoredTree, drafting::Trees;
using namespace py::literals;

// The class DraftTree of Python.
const py::object& tree_type() {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> storage;
  return storage.call_once_and_store_result([] { return py::object(py::module_::import("suffolk.datastore.draft_tree").attr("DraftTree")); })
      .get_stored();
}

// The DraftTree of Python with a copy of the columns.
py::object tree_at(const Trees& trees, std::size_t at) {
  const ScoredTree tree = trees.scored(at);
  const drafting::CountedTree counted = trees.counted(at);
  const py::object counts = trees.has_counts(at) ? py::object(array_of(counted.counts)) : py::none();
  return tree_type()(array_of(tree.tokens), array_of(tree.parents), array_of(tree.scores), array_of(tree.sources), counts, counted.match_length,
                     counted.match_count, trees.partial(at));
}

std::size_t checked_place(std::int64_t at, std::size_t size) {
  const auto all = static_cast<std::int64_t>(size);
  if (at < -all || at >= all) throw py::index_error();
  return static_cast<std::size_t>(at < 0 ? at + all : at);
}

Trees trees_of(const py::sequence& given, bool with_counts) {
  Trees trees;
  for (const py::handle tree : given) add_tree(trees, tree, with_counts);
  return trees;
}

Drafts drafts_of(const py::sequence& given) {
  Drafts drafts;
  for (const py::handle request : given) {
    for (const py::handle tree : request) add_tree(drafts.trees, tree, true);
    drafts.end_request();
  }
  return drafts;
}

py::list trees_at(const Drafts& drafts, std::int64_t at) {
  const std::size_t request = checked_place(at, drafts.size());
  py::list found;
  for (std::size_t tree = drafts.begin(request); tree < drafts.end(request); ++tree) found.append(tree_at(drafts.trees, tree));
  return found;
}

std::size_t checked_nodes(std::int64_t max_nodes) {
  if (max_nodes < 0) refuse("max_nodes is ", max_nodes, "; it must be 0 or more");
  return static_cast<std::size_t>(max_nodes);
}

void require_entries(std::size_t entries, std::size_t requests, const char* name) {
  if (entries != requests) refuse(name, " has ", entries, " entries for ", requests, " requests; give one for each");
}

std::vector<DraftPart> parts_of(const std::vector<std::pair<const Drafts*, std::vector<std::size_t>>>& given) {
  std::vector<DraftPart> parts;
  for (const auto& [drafts, requests] : given) parts.push_back({.drafts = drafts, .requests = requests});
  return parts;
}

Trees merge_parts(const std::vector<std::tuple<const Drafts*, std::vector<std::size_t>, std::vector<float>>>& given,
                  const std::vector<std::int64_t>& max_nodes) {
  std::vector<drafting::ScaledPart> parts;
  for (const auto& [drafts, requests, factors] : given) parts.push_back({{.drafts = drafts, .requests = requests}, factors});
  std::vector<std::size_t> most;
  for (const std::int64_t nodes : max_nodes) most.push_back(checked_nodes(nodes));
  return drafting::merge(parts, most);
}

// The fields of Judgement, with its first tokens as drafts of one tree for each request.
py::tuple judge(const Drafts& drafts, const std::vector<std::int64_t>& max_nodes, const std::vector<float>& factors,
                const std::vector<float>& least) {
  require_entries(max_nodes.size(), drafts.size(), "max_nodes");
  require_entries(factors.size(), drafts.size(), "factors");
  require_entries(least.size(), drafts.size(), "least");
  std::vector<std::size_t> most;
  for (const std::int64_t nodes : max_nodes) most.push_back(checked_nodes(nodes));
  drafting::Judgement found = drafting::judge(drafts, most, factors, least);
  return py::make_tuple(std::move(found.first), found.first_scores, found.likely);
}

// Trees, or a sequence of DraftTrees whose counts are not read.
class Uncounted {
 public:
  explicit Uncounted(const py::object& given) {
    if (!py::isinstance<Trees>(given)) made_ = trees_of(given, false);
    trees_ = made_ ? &*made_ : &given.cast<const Trees&>();
  }
  const Trees& operator*() const { return *trees_; }

 private:
  std::optional<Trees> made_;
  const Trees* trees_;
};

void check(const Trees& trees, std::int64_t vocab_size) {
  for (std::size_t at = 0; at < trees.size(); ++at) {
    const ScoredTree tree = trees.scored(at);
    drafting::require_parents(tree.parents);
    drafting::require_tokens(tree.tokens, vocab_size);
    drafting::require_scores(tree.scores);
  }
}

// Copies of the first nodes of all trees, without their counts. Throws as check.
py::list checked_trees(const py::object& given, std::int64_t vocab_size, const std::vector<std::int64_t>& max_nodes) {
  const Uncounted known(given);
  const Trees& trees = *known;
  require_entries(max_nodes.size(), trees.size(), "max_nodes");
  check(trees, vocab_size);
  py::list found;
  for (std::size_t at = 0; at < trees.size(); ++at) {
    const ScoredTree tree = trees.scored(at);
    const std::size_t size = std::min(tree.tokens.size(), checked_nodes(max_nodes[at]));
    found.append(tree_type()(array_of(tree.tokens.first(size)), array_of(tree.parents.first(size)), array_of(tree.scores.first(size)),
                             array_of(tree.sources.first(size))));
  }
  return found;
}

void reweight(Drafts& drafts, std::int64_t at, std::int64_t position, std::uint64_t seed, double temperature) {
  if (!(temperature > 0)) refuse("temperature is ", temperature, "; it must be above 0");
  const std::size_t request = checked_place(at, drafts.size());
  std::vector<float> reweighted;
  for (std::size_t tree = drafts.begin(request); tree < drafts.end(request); ++tree) {
    reweighted.resize(drafts.trees.nodes(tree));
    drafting::reweight_scores(drafts.trees.scored(tree), position, {.seed = seed, .temperature = temperature}, reweighted);
    std::ranges::copy(reweighted, drafts.trees.scores(tree).begin());
  }
}

// For each entry (drafts, request, text): how many first tokens of the text are a path from the root in one of the request's trees.
std::vector<std::size_t> accepted_lengths(const std::vector<std::tuple<const Drafts*, std::int64_t, py::object>>& entries) {
  std::vector<std::size_t> found;
  for (const auto& [drafts, at, given] : entries) {
    const Column<std::int32_t> text(given, "the text");
    const std::size_t request = checked_place(at, drafts->size());
    std::size_t longest = 0;
    for (std::size_t at_tree = drafts->begin(request); at_tree < drafts->end(request); ++at_tree) {
      const ScoredTree tree = drafts->trees.scored(at_tree);
      drafting::require_parents(tree.parents);
      longest = std::max(longest, drafting::path_along(tree.tokens, tree.parents, text.view()).size());
    }
    found.push_back(longest);
  }
  return found;
}

// (sources, depth, number of nodes) in all trees, rising.
py::list count_nodes(const py::sequence& trees) {
  std::map<std::uint32_t, std::vector<std::uint64_t>> counts;  // by depth
  std::vector<std::int32_t> depths;
  for (const py::handle tree : trees) {
    const Column<std::int32_t> parents(tree.attr("parents"), "parents");
    const Column<std::uint32_t> sources(tree.attr("sources"), "sources");
    require_size(sources.view().size(), parents.view().size(), "sources");
    drafting::require_parents(parents.view());
    depths.resize(parents.view().size());
    drafting::find_depths(parents.view(), depths);
    for (std::size_t node = 0; node < depths.size(); ++node) {
      std::vector<std::uint64_t>& by_depth = counts[sources.view()[node]];
      const auto depth = static_cast<std::size_t>(depths[node]);
      if (by_depth.size() <= depth) by_depth.resize(depth + 1);
      ++by_depth[depth];
    }
  }
  py::list found;
  for (const auto& [source, by_depth] : counts) {
    for (std::size_t depth = 1; depth < by_depth.size(); ++depth) {
      if (by_depth[depth] > 0) found.append(py::make_tuple(source, depth, by_depth[depth]));
    }
  }
  return found;
}

py::array_t<std::int32_t> tree_depths(const py::handle& parents) {
  const Column<std::int32_t> above(parents, "parents");
  drafting::require_parents(above.view());
  py::array_t<std::int32_t> depths(static_cast<py::ssize_t>(above.view().size()));
  drafting::find_depths(above.view(), {depths.mutable_data(), above.view().size()});
  return depths;
}

py::array_t<std::int64_t> path_along(const py::handle& tokens, const py::handle& parents, const py::handle& text) {
  const Column<std::int32_t> ids(tokens, "tokens"), above(parents, "parents"), followed(text, "the text");
  require_size(above.view().size(), ids.view().size(), "parents");
  drafting::require_parents(above.view());
  return array_of(drafting::path_along(ids.view(), above.view(), followed.view()));
}

py::array_t<std::int64_t> accepted_path(const py::handle& tokens, const py::handle& parents, const py::handle& sampled) {
  const Column<std::int32_t> ids(tokens, "tokens"), above(parents, "parents");
  const Column<std::int64_t> after(sampled, "sampled");
  require_size(above.view().size(), ids.view().size(), "parents");
  if (after.view().size() != ids.view().size() + 1) {
    refuse("draft tree: sampled has ", after.view().size(), " entries; there must be one more than the ", ids.view().size(), " nodes");
  }
  drafting::require_parents(above.view());
  return array_of(drafting::accepted_path(ids.view(), above.view(), after.view()));
}

// The rows of a pass over `last_token` and the n nodes of a tree: (tokens int64[n + 1], depths int64[n + 1], and the attention mask
// bool[n + 1, n + 1], or None for a chain).
py::tuple lay_out(std::int64_t last_token, const py::handle& tokens, const py::handle& parents) {
  const Column<std::int32_t> ids(tokens, "tokens"), above(parents, "parents");
  const std::size_t size = ids.view().size();
  require_size(above.view().size(), size, "parents");
  drafting::require_parents(above.view());
  const auto count = static_cast<py::ssize_t>(size + 1);
  py::array_t<std::int64_t> rows(count), depths(count);
  rows.mutable_data()[0] = last_token;
  std::copy(ids.view().begin(), ids.view().end(), rows.mutable_data() + 1);
  std::vector<std::int32_t> found(size);
  drafting::find_depths(above.view(), found);
  depths.mutable_data()[0] = 0;
  std::copy(found.begin(), found.end(), depths.mutable_data() + 1);
  if (drafting::is_chain(above.view())) return py::make_tuple(rows, depths, py::none());
  py::array_t<bool> visible({count, count});
  static_assert(sizeof(bool) == 1);
  drafting::find_visible(above.view(), {reinterpret_cast<std::uint8_t*>(visible.mutable_data()), (size + 1) * (size + 1)});
  return py::make_tuple(rows, depths, visible);
}

}  // namespace

void bind_trees(py::module_& module) {
  py::class_<Trees>(module, "Trees")
      .def(py::init([](const py::sequence& trees) { return trees_of(trees, true); }), "trees"_a)
      .def("__len__", &Trees::size)
      .def(
          "__getitem__", [](const Trees& trees, std::int64_t at) { return tree_at(trees, checked_place(at, trees.size())); }, "at"_a)
      .def(
          "__getitem__",
          [](const Trees& trees, const py::slice& places) {
            py::ssize_t at = 0, end = 0, step = 0, count = 0;
            if (!places.compute(static_cast<py::ssize_t>(trees.size()), &at, &end, &step, &count)) throw py::error_already_set();
            py::list found;
            for (; count > 0; --count, at += step) found.append(tree_at(trees, static_cast<std::size_t>(at)));
            return found;
          },
          "places"_a);
  py::implicitly_convertible<py::sequence, Trees>();
  py::class_<Drafts>(module, "Drafts")
      .def(py::init(&drafts_of), "drafts"_a)
      .def(py::init([](const Trees& trees, const std::vector<std::size_t>& counts) { return Drafts(trees, counts); }), "trees"_a, "counts"_a)
      .def("__len__", &Drafts::size)
      .def("__getitem__", &trees_at, "at"_a)
      .def_property_readonly("trees", [](const Drafts& drafts) -> const Trees& { return drafts.trees; })
      .def(
          "has_trees",
          [](const Drafts& drafts, std::int64_t at) {
            const std::size_t request = checked_place(at, drafts.size());
            return drafts.begin(request) < drafts.end(request);
          },
          "at"_a)
      .def("reweight", &reweight, "at"_a, "position"_a, "seed"_a, "temperature"_a);
  module.def(
      "largest_trees", [](const Trees& trees, const std::vector<std::size_t>& counts) { return drafting::largest_trees(trees, counts); }, "trees"_a,
      "counts"_a);
  module.def(
      "gather",
      [](const std::vector<std::pair<const Drafts*, std::vector<std::size_t>>>& parts, std::size_t requests) {
        return drafting::gather(parts_of(parts), requests);
      },
      "parts"_a, "requests"_a);
  module.def("merge", &merge_parts, "parts"_a, "max_nodes"_a);
  module.def("judge", &judge, "drafts"_a, "max_nodes"_a, "factors"_a, "least"_a);
  module.def(
      "check_trees", [](const py::object& trees, std::int64_t vocab_size) { check(*Uncounted(trees), vocab_size); }, "trees"_a, "vocab_size"_a);
  module.def("checked_trees", &checked_trees, "trees"_a, "vocab_size"_a, "max_nodes"_a);
  module.def("accepted_lengths", &accepted_lengths, "entries"_a);
  module.def("count_nodes", &count_nodes, "trees"_a);
  module.def("tree_depths", &tree_depths, "parents"_a);
  module.def("path_along", &path_along, "tokens"_a, "parents"_a, "text"_a);
  module.def("accepted_path", &accepted_path, "tokens"_a, "parents"_a, "sampled"_a);
  module.def("lay_out", &lay_out, "last_token"_a, "tokens"_a, "parents"_a);
}

}  // namespace suffolk::bindings
