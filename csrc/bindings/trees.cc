#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/columns.h"
#include "drafting/merge.h"
#include "drafting/noise_reweighting.h"
#include "drafting/tree.h"

namespace suffolk::bindings {
namespace {

using drafting::MergedTree, drafting::ScoredTree;
using namespace py::literals;

std::size_t checked_nodes(std::int64_t max_nodes) {
  if (max_nodes < 0) refuse("max_nodes is ", max_nodes, "; it must be 0 or more");
  return static_cast<std::size_t>(max_nodes);
}

void require_drafts(std::size_t entries, std::size_t drafts, const char* name) {
  if (entries != drafts) refuse(name, " has ", entries, " entries for ", drafts, " drafts; give one for each");
}

// Trees whose scores are multiplied by factors.
class Scaled {
 public:
  void add(const py::handle& tree, float factor) {
    views_.push_back(columns_.emplace_back(tree).view());
    if (factor == 1.0F) return;
    std::vector<float>& scores = scores_.emplace_back(views_.back().scores.begin(), views_.back().scores.end());
    for (float& score : scores) score *= factor;
    views_.back().scores = scores;
  }

  std::span<const ScoredTree> views() const { return views_; }

 private:
  std::vector<Scored> columns_;
  std::vector<std::vector<float>> scores_;  // those that were multiplied
  std::vector<ScoredTree> views_;
};

// For each draft, a sequence of (tree, factor of its scores): the columns (tokens, parents, scores, sources) of the merged tree.
py::list merge_trees(const std::vector<py::sequence>& drafts, const std::vector<std::int64_t>& max_nodes) {
  require_drafts(max_nodes.size(), drafts.size(), "max_nodes");
  py::list merged;
  for (std::size_t at = 0; at < drafts.size(); ++at) {
    Scaled trees;
    for (const py::handle each : drafts[at]) {
      const auto [tree, factor] = py::cast<std::pair<py::object, float>>(each);
      trees.add(tree, factor);
    }
    const MergedTree tree = drafting::merge(trees.views(), checked_nodes(max_nodes[at]));
    merged.append(py::make_tuple(array_of(tree.tokens), array_of(tree.parents), array_of(tree.scores), array_of(tree.sources)));
  }
  return merged;
}

// For each draft, a sequence of trees of one source: (the first tokens of the merged tree, the sum of their scores, and the expected
// tokens of the best tree, of nodes whose scores are at least `least` after they are multiplied by the factor).
py::list judge_trees(const std::vector<py::sequence>& drafts, const std::vector<std::int64_t>& max_nodes, const std::vector<float>& factors,
                     const std::vector<float>& least) {
  require_drafts(max_nodes.size(), drafts.size(), "max_nodes");
  require_drafts(factors.size(), drafts.size(), "factors");
  require_drafts(least.size(), drafts.size(), "least");
  py::list judged;
  for (std::size_t at = 0; at < drafts.size(); ++at) {
    Scaled trees;
    for (const py::handle tree : drafts[at]) trees.add(tree, 1.0F);
    const MergedTree tree = drafting::merge(trees.views(), checked_nodes(max_nodes[at]));
    py::list first;
    double first_score = 0, likely = 0;
    for (std::size_t node = 0; node < tree.tokens.size(); ++node) {
      if (tree.parents[node] >= 0) continue;
      first.append(tree.tokens[node]);
      first_score += tree.scores[node];
    }
    for (const ScoredTree& each : trees.views()) {
      double expected = 0;
      for (const float score : each.scores) {
        const float scaled = score * factors[at];
        if (scaled >= least[at]) expected += scaled;
      }
      likely = std::max(likely, expected);
    }
    judged.append(py::make_tuple(first, first_score, likely));
  }
  return judged;
}

void check_trees(const py::sequence& trees, std::int64_t vocab_size) {
  for (const py::handle each : trees) {
    const Scored columns(each);
    const ScoredTree tree = columns.view();
    require_size(tree.parents.size(), tree.tokens.size(), "parents");
    require_size(tree.scores.size(), tree.tokens.size(), "scores");
    require_size(tree.sources.size(), tree.tokens.size(), "sources");
    drafting::require_parents(tree.parents);
    drafting::require_tokens(tree.tokens, vocab_size);
    drafting::require_scores(tree.scores);
  }
}

py::array_t<float> reweight_scores(const py::handle& tree, std::int64_t position, std::uint64_t seed, double temperature) {
  const Scored columns(tree);
  const std::size_t size = columns.view().tokens.size();
  if (!(temperature > 0)) refuse("temperature is ", temperature, "; it must be above 0");
  py::array_t<float> reweighted(static_cast<py::ssize_t>(size));
  drafting::reweight_scores(columns.view(), position, {.seed = seed, .temperature = temperature}, {reweighted.mutable_data(), size});
  return reweighted;
}

// The most leading tokens of the text that form a path of one of the trees from its root.
std::size_t accepted_length(const py::sequence& trees, const py::handle& text) {
  const Column<std::int32_t> followed(text, "the text");
  std::size_t longest = 0;
  for (const py::handle tree : trees) {
    const Scored columns(tree);
    require_size(columns.view().parents.size(), columns.view().tokens.size(), "parents");
    drafting::require_parents(columns.view().parents);
    longest = std::max(longest, drafting::path_along(columns.view().tokens, columns.view().parents, followed.view()).size());
  }
  return longest;
}

// (sources, depth, number of nodes) in all trees, rising.
py::list count_nodes(const py::sequence& trees) {
  std::map<std::pair<std::uint32_t, std::int32_t>, std::uint64_t> counts;
  std::vector<std::int32_t> depths;
  for (const py::handle each : trees) {
    const Scored columns(each);
    const ScoredTree tree = columns.view();
    require_size(tree.sources.size(), tree.parents.size(), "sources");
    drafting::require_parents(tree.parents);
    depths.resize(tree.parents.size());
    drafting::find_depths(tree.parents, depths);
    for (std::size_t node = 0; node < depths.size(); ++node) ++counts[{tree.sources[node], depths[node]}];
  }
  py::list found;
  for (const auto& [place, count] : counts) found.append(py::make_tuple(place.first, place.second, count));
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
  module.def("merge_trees", &merge_trees, "drafts"_a, "max_nodes"_a);
  module.def("judge_trees", &judge_trees, "drafts"_a, "max_nodes"_a, "factors"_a, "least"_a);
  module.def("check_trees", &check_trees, "trees"_a, "vocab_size"_a);
  module.def("reweight_scores", &reweight_scores, "tree"_a, "position"_a, "seed"_a, "temperature"_a);
  module.def("accepted_length", &accepted_length, "trees"_a, "text"_a);
  module.def("count_nodes", &count_nodes, "trees"_a);
  module.def("tree_depths", &tree_depths, "parents"_a);
  module.def("path_along", &path_along, "tokens"_a, "parents"_a, "text"_a);
  module.def("accepted_path", &accepted_path, "tokens"_a, "parents"_a, "sampled"_a);
  module.def("lay_out", &lay_out, "last_token"_a, "tokens"_a, "parents"_a);
}

}  // namespace suffolk::bindings
