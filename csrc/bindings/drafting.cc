#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/columns.h"
#include "drafting/calibrator.h"
#include "drafting/next_token_table.h"
#include "drafting/noise_reweighting.h"
#include "drafting/noisy_argmax.h"
#include "drafting/pass_times.h"

namespace suffolk::bindings {
namespace {

using namespace py::literals;

using drafting::Drafts;

// Replaces the scores of each request's trees by its calibrator's scores. Changes nothing if a tree is refused.
void score_drafts(Drafts& drafts, const std::vector<const drafting::Calibrator*>& calibrators) {
  if (calibrators.size() != drafts.size())
    refuse("calibrators has ", calibrators.size(), " entries for ", drafts.size(), " requests; give one for each");
  std::vector<float> scores;
  std::vector<std::size_t> ends;
  for (std::size_t request = 0; request < drafts.size(); ++request) {
    for (std::size_t tree = drafts.begin(request); tree < drafts.end(request); ++tree) {
      const std::size_t begin = scores.size();
      scores.resize(begin + drafts.trees.nodes(tree));
      calibrators[request]->score(drafts.trees.counted(tree), std::span(scores).subspan(begin));
    }
  }
  auto next = scores.begin();
  for (std::size_t tree = 0; tree < drafts.trees.size(); ++tree) {
    const std::span<float> column = drafts.trees.scores(tree);
    std::copy_n(next, column.size(), column.begin());
    next += static_cast<std::ptrdiff_t>(column.size());
  }
}

// Lets calibrators learn. Each entry has a calibrator, drafts, the request whose trees it learns from, and the tokens that
// followed.
void learn_drafts(const std::vector<std::tuple<drafting::Calibrator*, const Drafts*, std::size_t, py::object>>& entries) {
  for (const auto& [calibrator, drafts, request, followed] : entries) {
    if (request >= drafts->size()) refuse("draft trees: request ", request, " of ", drafts->size());
    const Column<std::int32_t> tokens(followed, "the tokens that followed");
    for (std::size_t tree = drafts->begin(request); tree < drafts->end(request); ++tree)
      calibrator->learn(drafts->trees.counted(tree), tokens.view());
  }
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
  using drafting::Reliability;
  py::class_<Reliability>(module, "Reliability")
      .def(py::init<double>(), "decay"_a)
      .def(
          "add",
          [](Reliability& reliability, const py::handle& predicted, const py::handle& taken) {
            const Column<double> chances(predicted, "predicted");
            const Column<std::uint8_t> hits(taken, "taken");
            if (chances.view().size() != hits.view().size()) refuse(chances.view().size(), " predictions have ", hits.view().size(), " outcomes");
            reliability.add(chances.view(), hits.view());
          },
          "predicted"_a, "taken"_a)
      .def_readwrite("sums", &Reliability::sums);
  using drafting::Calibrator;
  py::class_<Calibrator>(module, "Calibrator")
      .def(py::init([](double constant, double match, double share, double count, double depth, double decay) {
             return Calibrator({.constant = constant, .match = match, .share = share, .count = count, .depth = depth}, decay);
           }),
           "constant"_a, "match"_a, "share"_a, "count"_a, "depth"_a, "decay"_a)
      .def_readonly("reliability", &Calibrator::reliability)
      .def("state", [](const Calibrator& calibrator) { return array_of(calibrator.state()); })
      .def(
          "restore",
          [](Calibrator& calibrator, const py::handle& state) { calibrator.restore(Column<double>(state, "a calibrator's state").view()); },
          "state"_a);
  using drafting::PassTimes;
  py::class_<PassTimes>(module, "PassTimes")
      .def(py::init([](const std::vector<double>& sizes, const std::vector<double>& measured, double per_request, double per_key, double per_pair) {
             if (sizes.empty() || sizes.size() != measured.size()) refuse("costs: ", sizes.size(), " sizes have ", measured.size(), " times");
             return PassTimes(sizes, measured, {.per_request = per_request, .per_key = per_key, .per_pair = per_pair});
           }),
           "sizes"_a, "measured"_a, "per_request"_a, "per_key"_a, "per_pair"_a)
      .def(
          "times",
          [](const PassTimes& times, const py::handle& rows, double requests, double context, double deviations, bool reads) {
            const Column<double> sizes(rows, "rows");
            py::array_t<double> seconds(static_cast<py::ssize_t>(sizes.view().size()));
            times.times(sizes.view(), requests, context, deviations, reads, {seconds.mutable_data(), sizes.view().size()});
            return seconds;
          },
          "rows"_a, "requests"_a, "context"_a, "deviations"_a, "reads"_a)
      .def("update", &PassTimes::update, "rows"_a, "requests"_a, "context"_a, "seconds"_a)
      .def("slowdown", &PassTimes::slowdown);
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
  module.def("score_drafts", &score_drafts, "drafts"_a, "calibrators"_a);
  module.def("learn_drafts", &learn_drafts, "entries"_a);
  module.def("noisy_argmax", &noisy_argmax, "logits"_a, "temperature"_a, "seed"_a, "positions"_a);
}

}  // namespace suffolk::bindings
