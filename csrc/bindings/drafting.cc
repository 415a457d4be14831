#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/columns.h"
#include "drafting/calibrator.h"
#include "drafting/next_token_table.h"
#include "drafting/noise_reweighting.h"
#include "drafting/noisy_argmax.h"

namespace suffolk::bindings {
namespace {

using namespace py::literals;

// The scores of each tree by its own calibrator.
py::list score_trees(const std::vector<const drafting::Calibrator*>& calibrators, const py::sequence& trees) {
  if (calibrators.size() != trees.size()) refuse("calibrators has ", calibrators.size(), " entries for ", trees.size(), " trees; give one for each");
  py::list scored;
  for (std::size_t at = 0; at < calibrators.size(); ++at) {
    const Counted tree(trees[at]);
    const drafting::CountedTree view = tree.view();
    py::array_t<float> scores(static_cast<py::ssize_t>(view.tokens.size()));
    calibrators[at]->score(view, {scores.mutable_data(), view.tokens.size()});
    scored.append(std::move(scores));
  }
  return scored;
}

// The fields of Evidence: (chances float32[k], taken uint8[k]).
py::tuple learn(drafting::Calibrator& calibrator, const py::handle& tree, const py::handle& followed) {
  const drafting::Evidence found = calibrator.learn(Counted(tree).view(), Column<std::int32_t>(followed, "the tokens that followed").view());
  return py::make_tuple(array_of(found.chances), array_of(found.taken));
}

void learn_next_tokens(drafting::NextTokenTable& table, const py::handle& tokens, const py::handle& candidates, const py::handle& log_probabilities) {
  const Column<std::int32_t> text(tokens, "tokens"), ids(candidates, "candidates", drafting::NextTokenTable::kWidth);
  const Column<float> logs(log_probabilities, "log_probabilities", drafting::NextTokenTable::kWidth);
  table.learn(text.view(), ids.view(), logs.view());
}

// The columns (tokens, parents, scores) of the drafted tree.
py::tuple draft_next_tokens(drafting::NextTokenTable& table, const py::handle& tokens, std::int64_t position, std::int64_t max_depth,
                            std::int64_t max_nodes, std::uint64_t seed, double temperature) {
  if (max_depth < 0) refuse("max_depth is ", max_depth, "; it must be 0 or more");
  if (max_nodes < 0) refuse("max_nodes is ", max_nodes, "; it must be 0 or more");
  if (!(temperature >= 0)) refuse("temperature is ", temperature, "; it must be 0 or more");
  std::optional<drafting::Sampling> sampling;
  if (temperature > 0) sampling = {.seed = seed, .temperature = temperature};
  const drafting::NextTokenTree found = table.draft(Column<std::int32_t>(tokens, "tokens").view(), position, static_cast<std::size_t>(max_depth),
                                                    static_cast<std::size_t>(max_nodes), sampling);
  return py::make_tuple(array_of(found.tokens), array_of(found.parents), array_of(found.scores));
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
           }),
           "constant"_a, "match"_a, "share"_a, "count"_a, "depth"_a, "decay"_a)
      .def("learn", &learn, "tree"_a, "followed"_a)
      .def("state", [](const Calibrator& calibrator) { return array_of(calibrator.state()); })
      .def(
          "restore",
          [](Calibrator& calibrator, const py::handle& state) { calibrator.restore(Column<double>(state, "a calibrator's state").view()); },
          "state"_a);
  using drafting::NextTokenTable;
  py::class_<NextTokenTable> table(module, "NextTokenTable");
  table
      .def(py::init([](std::int64_t ends) {
             if (ends < 0) refuse("next-token table: ends is ", ends, "; it must be 64 or more");
             return std::make_unique<NextTokenTable>(static_cast<std::size_t>(ends));
           }),
           "ends"_a)
      .def("learn", &learn_next_tokens, "tokens"_a, "candidates"_a, "log_probabilities"_a)
      .def("draft", &draft_next_tokens, "tokens"_a, "position"_a, "max_depth"_a, "max_nodes"_a, "seed"_a, "temperature"_a)
      .def_property_readonly("size", &NextTokenTable::size);
  table.attr("WIDTH") = NextTokenTable::kWidth;
  table.attr("ORDER") = NextTokenTable::kOrder;
  module.def("score_trees", &score_trees, "calibrators"_a, "trees"_a);
  module.def("noisy_argmax", &noisy_argmax, "logits"_a, "temperature"_a, "seed"_a, "positions"_a);
}

}  // namespace suffolk::bindings
