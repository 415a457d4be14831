#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <type_traits>

#include "bindings/arguments.h"
#include "bindings/bind.h"
#include "drafting/calibrator.h"
#include "drafting/merge.h"
#include "drafting/noise_reweighting.h"
#include "drafting/noisy_argmax.h"
#include "drafting/next_token_table.h"
#include "drafting/tree.h"

namespace suffolk::bindings {
namespace {

using drafting::CountedTree, drafting::ScoredTree, drafting::MergedTree;
using namespace py::literals;

template <typename T>
constexpr char kKind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';

// A numpy array with one axis, or with rows of one width: the caller's memory, or a copy if that is not contiguous and aligned.
template <typename T>
class Column {
 public:
  Column(const py::handle& given, const char* name) : array_(take(given, name, 1)) {}

  Column(const py::handle& given, const char* name, std::size_t width) : array_(take(given, name, 2)) {
    if (static_cast<std::size_t>(array_.shape(1)) == width) return;
    refuse(name, " have rows of ", array_.shape(1), " entries; there must be ", width, " in each");
  }

  std::span<const T> view() const { return {array_.data(), static_cast<std::size_t>(array_.size())}; }

 private:
  using Array = py::array_t<T, static_cast<int>(py::array::c_style) | static_cast<int>(py::detail::npy_api::NPY_ARRAY_ALIGNED_)>;

  static Array take(const py::handle& given, const char* name, int axes) {
    const bool is_array = py::isinstance<py::array>(given);
    const auto array = is_array ? py::reinterpret_borrow<py::array>(given) : py::array();
    if (!is_array || array.ndim() != axes || array.dtype().kind() != kKind<T> || array.itemsize() != sizeof(T)) {
      const std::string found = is_array ? std::string(py::str(array.dtype())) + " with " + std::to_string(array.ndim()) + " axes"
                                         : std::string(py::str(py::type::handle_of(given).attr("__name__")));
      refuse("draft tree: ", name, " is ", found, "; it must be an array of ", std::string(py::str(py::dtype::of<T>())),
             (axes == 1 ? " with one axis" : " with two axes"));
    }
    Array typed = Array::ensure(given);
    if (!typed) {
      fail(Code::kResourceExhausted, "draft tree: no memory to put the ", array.size(), " entries of ", name,
           " in order; ask for fewer nodes");
    }
    return typed;
  }

  Array array_;
};

std::uint64_t checked_number(const py::handle& value, const char* name) {
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  const unsigned long long number = index ? PyLong_AsUnsignedLongLong(index.ptr()) : 0;
  if (PyErr_Occurred()) {
    PyErr_Clear();
    refuse("draft tree: ", name, " is ", std::string(py::str(value)), "; it must be 0 to 2^64 - 1");
  }
  return number;
}

void require_size(std::size_t size, std::size_t tokens, const char* name) {
  if (size == tokens) return;
  refuse("draft tree: ", name, " has ", size, " entries, tokens has ", tokens, "; they must be equal");
}

// The columns of a CountedTree.
class Counted {
 public:
  Counted(const py::handle& tokens, const py::handle& parents, const py::object& counts, const py::handle& match_length, const py::handle& match_count)
      : tokens_(tokens, "tokens"), parents_(parents, "parents"), match_length_(checked_number(match_length, "match_length")),
        match_count_(checked_number(match_count, "match_count")) {
    if (!counts.is_none()) counts_.emplace(counts, "counts");
  }

  CountedTree view() const {
    const std::span<const std::uint64_t> counts = counts_ ? counts_->view() : std::span<const std::uint64_t>();
    if (counts_) require_size(counts.size(), tokens_.view().size(), "counts");
    return {.tokens = tokens_.view(), .parents = parents_.view(), .counts = counts, .match_length = match_length_, .match_count = match_count_};
  }

 private:
  Column<std::int32_t> tokens_, parents_;
  std::optional<Column<std::uint64_t>> counts_;
  std::uint64_t match_length_, match_count_;
};

// The columns of a ScoredTree.
class Scored {
 public:
  Scored(const py::handle& tokens, const py::handle& parents, const py::handle& scores, const py::handle& sources)
      : tokens_(tokens, "tokens"), parents_(parents, "parents"), scores_(scores, "scores"), sources_(sources, "sources") {}

  ScoredTree view() const { return {.tokens = tokens_.view(), .parents = parents_.view(), .scores = scores_.view(), .sources = sources_.view()}; }

 private:
  Column<std::int32_t> tokens_, parents_;
  Column<float> scores_;
  Column<std::uint32_t> sources_;
};

template <typename T>
py::array_t<T> to_array(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::array_t<float> score(const drafting::Calibrator& calibrator, const py::handle& tokens, const py::handle& parents, const py::object& counts,
                         const py::handle& match_length, const py::handle& match_count) {
  const Counted tree(tokens, parents, counts, match_length, match_count);
  const CountedTree view = tree.view();
  py::array_t<float> scores(static_cast<py::ssize_t>(view.tokens.size()));
  calibrator.score(view, {scores.mutable_data(), view.tokens.size()});
  return scores;
}

// The fields of Evidence: (chances float32[k], taken uint8[k]).
py::tuple learn(drafting::Calibrator& calibrator, const py::handle& tokens, const py::handle& parents, const py::object& counts,
                const py::handle& match_length, const py::handle& match_count, const py::handle& followed) {
  const Counted tree(tokens, parents, counts, match_length, match_count);
  const drafting::Evidence found = calibrator.learn(tree.view(), Column<std::int32_t>(followed, "the tokens that followed").view());
  return py::make_tuple(to_array(found.chances), to_array(found.taken));
}

// The columns (tokens, parents, scores, sources) of the merged tree.
py::tuple merge_trees(const py::sequence& trees, std::int64_t max_nodes) {
  if (max_nodes < 0) refuse("max_nodes is ", max_nodes, "; it must be 0 or more");
  std::vector<Scored> columns;
  std::vector<ScoredTree> views;
  for (const py::object each : trees) {
    const auto tree = py::cast<py::tuple>(each);
    if (tree.size() != 4) refuse("a tree to merge has ", tree.size(), " columns; it must have 4");
    views.push_back(columns.emplace_back(tree[0], tree[1], tree[2], tree[3]).view());
  }
  const MergedTree merged = drafting::merge(views, static_cast<std::size_t>(max_nodes));
  return py::make_tuple(to_array(merged.tokens), to_array(merged.parents), to_array(merged.scores), to_array(merged.sources));
}

void learn_next_tokens(drafting::NextTokenTable& table, const py::handle& tokens, const py::handle& candidates, const py::handle& log_probabilities) {
  const Column<std::int32_t> text(tokens, "tokens"), ids(candidates, "candidates", drafting::NextTokenTable::kWidth);
  const Column<float> logs(log_probabilities, "log_probabilities", drafting::NextTokenTable::kWidth);
  table.learn(text.view(), ids.view(), logs.view());
}

// The columns (tokens, parents, scores) of the drafted tree.
py::tuple draft_next_tokens(drafting::NextTokenTable& table, const py::handle& tokens, std::int64_t position, std::int64_t max_depth, std::int64_t max_nodes,
                         std::uint64_t seed, double temperature) {
  if (max_depth < 0) refuse("max_depth is ", max_depth, "; it must be 0 or more");
  if (max_nodes < 0) refuse("max_nodes is ", max_nodes, "; it must be 0 or more");
  if (!(temperature >= 0)) refuse("temperature is ", temperature, "; it must be 0 or more");
  std::optional<drafting::Sampling> sampling;
  if (temperature > 0) sampling = {.seed = seed, .temperature = temperature};
  const drafting::NextTokenTree found = table.draft(Column<std::int32_t>(tokens, "tokens").view(), position, static_cast<std::size_t>(max_depth),
                                                      static_cast<std::size_t>(max_nodes), sampling);
  return py::make_tuple(to_array(found.tokens), to_array(found.parents), to_array(found.scores));
}

py::array_t<float> reweight_scores(const py::handle& tokens, const py::handle& parents, const py::handle& scores, const py::handle& sources,
                               std::int64_t position, std::uint64_t seed, double temperature) {
  const Scored tree(tokens, parents, scores, sources);
  const std::size_t size = tree.view().tokens.size();
  if (!(temperature > 0)) refuse("temperature is ", temperature, "; it must be above 0");
  py::array_t<float> reweighted(static_cast<py::ssize_t>(size));
  drafting::reweight_scores(tree.view(), position, {.seed = seed, .temperature = temperature}, {reweighted.mutable_data(), size});
  return reweighted;
}

void check_tree(const py::handle& tokens, const py::handle& parents, const py::handle& scores, const py::handle& sources, std::int64_t vocab_size) {
  const Scored columns(tokens, parents, scores, sources);
  const ScoredTree tree = columns.view();
  require_size(tree.parents.size(), tree.tokens.size(), "parents");
  require_size(tree.scores.size(), tree.tokens.size(), "scores");
  require_size(tree.sources.size(), tree.tokens.size(), "sources");
  drafting::require_parents(tree.parents);
  drafting::require_tokens(tree.tokens, vocab_size);
  drafting::require_scores(tree.scores);
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
  return to_array(drafting::path_along(ids.view(), above.view(), followed.view()));
}

py::array_t<std::int64_t> accepted_path(const py::handle& tokens, const py::handle& parents, const py::handle& sampled) {
  const Column<std::int32_t> ids(tokens, "tokens"), above(parents, "parents");
  const Column<std::int64_t> after(sampled, "sampled");
  require_size(above.view().size(), ids.view().size(), "parents");
  if (after.view().size() != ids.view().size() + 1) {
    refuse("draft tree: sampled has ", after.view().size(), " entries; there must be one more than the ", ids.view().size(), " nodes");
  }
  drafting::require_parents(above.view());
  return to_array(drafting::accepted_path(ids.view(), above.view(), after.view()));
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

using Logits = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Positions = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

py::array_t<std::int64_t> noisy_argmax(const Logits& logits, double temperature, std::uint64_t seed, const Positions& positions) {
  if (logits.ndim() != 2 || positions.ndim() != 1 || positions.shape(0) != logits.shape(0) || logits.shape(1) == 0) {
    refuse("logits must have a row of at least one token for each position");
  }
  if (!(temperature > 0)) refuse("temperature is ", temperature, "; it must be above 0");
  const auto width = static_cast<std::size_t>(logits.shape(1));
  py::array_t<std::int64_t> tokens(logits.shape(0));
  const std::span<const float> values(logits.data(), static_cast<std::size_t>(logits.size()));
  const std::span<const std::int64_t> places(positions.data(), static_cast<std::size_t>(positions.size()));
  const std::span<std::int64_t> found(tokens.mutable_data(), places.size());
  const py::gil_scoped_release release;
  for (std::size_t row = 0; row < places.size(); ++row) {
    found[row] = drafting::noisy_argmax(values.subspan(row * width, width), temperature, seed, places[row]);
  }
  return tokens;
}

}  // namespace

void bind_drafting(py::module_& module) {
  using drafting::Calibrator;
  py::class_<Calibrator>(module, "Calibrator")
      .def(py::init([](double constant, double match, double share, double count, double depth, double decay) {
        return Calibrator({.constant = constant, .match = match, .share = share, .count = count, .depth = depth}, decay);
      }), "constant"_a, "match"_a, "share"_a, "count"_a, "depth"_a, "decay"_a)
      .def("score", &score, "tokens"_a, "parents"_a, "counts"_a, "match_length"_a, "match_count"_a)
      .def("learn", &learn, "tokens"_a, "parents"_a, "counts"_a, "match_length"_a, "match_count"_a, "followed"_a)
      .def("state", [](const Calibrator& calibrator) { return to_array(calibrator.state()); })
      .def("restore", [](Calibrator& calibrator, const py::handle& state) { calibrator.restore(Column<double>(state, "a calibrator's state").view()); },
           "state"_a);
  using drafting::NextTokenTable;
  py::class_<NextTokenTable> table(module, "NextTokenTable");
  table.def(py::init([](std::int64_t ends) {
    if (ends < 0) refuse("next-token table: ends is ", ends, "; it must be 64 or more");
    return std::make_unique<NextTokenTable>(static_cast<std::size_t>(ends));
  }), "ends"_a)
      .def("learn", &learn_next_tokens, "tokens"_a, "candidates"_a, "log_probabilities"_a)
      .def("draft", &draft_next_tokens, "tokens"_a, "position"_a, "max_depth"_a, "max_nodes"_a, "seed"_a, "temperature"_a)
      .def_property_readonly("size", &NextTokenTable::size);
  table.attr("WIDTH") = NextTokenTable::kWidth;
  table.attr("ORDER") = NextTokenTable::kOrder;
  module.def("merge_trees", &merge_trees, "trees"_a, "max_nodes"_a);
  module.def("noisy_argmax", &noisy_argmax, "logits"_a, "temperature"_a, "seed"_a, "positions"_a);
  module.def("reweight_scores", &reweight_scores, "tokens"_a, "parents"_a, "scores"_a, "sources"_a, "position"_a, "seed"_a, "temperature"_a);
  module.def("check_tree", &check_tree, "tokens"_a, "parents"_a, "scores"_a, "sources"_a, "vocab_size"_a);
  module.def("tree_depths", &tree_depths, "parents"_a);
  module.def("path_along", &path_along, "tokens"_a, "parents"_a, "text"_a);
  module.def("accepted_path", &accepted_path, "tokens"_a, "parents"_a, "sampled"_a);
  module.def("lay_out", &lay_out, "last_token"_a, "tokens"_a, "parents"_a);
}

}  // namespace suffolk::bindings
