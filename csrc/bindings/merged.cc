#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/bind.h"
#include "bindings/queries.h"
#include "bindings/searched.h"
#include "core/merged_snapshot.h"
#include "core/search.h"

namespace suffolk::bindings {
namespace {

using namespace py::literals;
using Parts = std::vector<std::shared_ptr<Searched>>;

// Several indexes, searched as one that holds each document as often as the weight of its part. Each call takes their snapshots.
class MergedSearcher {
 public:
  MergedSearcher(Parts parts, std::vector<std::uint32_t> weights, unsigned threads)
      : parts_(std::move(parts)), weights_(std::move(weights)), queries_(common_vocabulary(parts_), least_depth(parts_), threads) {
    if (weights_.size() != parts_.size()) refuse("weights has ", weights_.size(), " entries for ", parts_.size(), " parts; give one for each");
  }

  auto lookup(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, const py::object& groups, const std::string& scope) const {
    return queries_.lookup(*snapshot(), scoped_contexts(contexts, groups, scope), max_match, min_match);
  }
  py::list draft(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth,
                 const std::vector<std::int64_t>& max_nodes, std::uint32_t source, const py::object& groups, const std::string& scope) const {
    return queries_.draft(*snapshot(), scoped_contexts(contexts, groups, scope), max_match, min_match, max_depth, max_nodes, source);
  }

 private:
  static std::uint32_t common_vocabulary(const Parts& parts) {
    if (parts.empty()) refuse("no part to search; give at least one");
    for (const auto& part : parts) {
      if (part->vocab_size() != parts.front()->vocab_size()) {
        refuse("parts have vocabularies of ", parts.front()->vocab_size(), " and ", part->vocab_size(), " ids; search them one by one");
      }
    }
    return parts.front()->vocab_size();
  }
  static std::uint32_t least_depth(const Parts& parts) {
    return (*std::ranges::min_element(parts, {}, [](const auto& part) { return part->order_depth(); }))->order_depth();
  }

  std::shared_ptr<const Snapshot> snapshot() const {
    std::vector<std::shared_ptr<const Snapshot>> snapshots;
    for (const auto& part : parts_) snapshots.push_back(part->snapshot());
    return merge_snapshots(snapshots, weights_);
  }

  Parts parts_;
  std::vector<std::uint32_t> weights_;
  Queries queries_;
};

}  // namespace

void bind_merged(py::module_& module) {
  py::class_<MergedSearcher>(module, "MergedSearcher")
      .def(py::init<Parts, std::vector<std::uint32_t>, unsigned>(), "parts"_a, "weights"_a, "threads"_a = 0)
      .def("lookup", &MergedSearcher::lookup, "contexts"_a, "max_match"_a, "min_match"_a, "groups"_a = py::none(), "scope"_a = "store")
      .def("draft", &MergedSearcher::draft, "contexts"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a, "source"_a,
           "groups"_a = py::none(), "scope"_a = "store");
}

}  // namespace suffolk::bindings
