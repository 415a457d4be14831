#include <pybind11/stl.h>

#include <algorithm>
#include <memory>

#include "bindings/arguments.h"
#include "bindings/bind.h"
#include "bindings/queries.h"
#include "bindings/searched.h"
#include "core/format.h"

namespace suffolk::bindings {
namespace {

using namespace py::literals;

std::uint32_t least(const Segments& segments, std::uint32_t format::Header::* field, std::uint32_t limit) {
  for (const auto& segment : segments) limit = std::min(limit, segment->header().*field);
  return limit;
}

// The segments of one generation, searched as one. Immutable: any number of threads may query it.
class Searcher : public Searched {
 public:
  // `deletions` hold the tokens of deleted documents; their counts are subtracted. `deleted_documents` are the indices of these
  // documents, which only `occurrences` needs.
  Searcher(const Segments& segments, const Segments& deletions, const DocumentLists& deleted_documents, unsigned threads)
      : queries_(least(segments, &format::Header::vocab_size, kEnd), least(segments, &format::Header::order_depth, format::kMaxOrderDepth), threads) {
    if (segments.empty()) refuse("a datastore needs at least one segment");
    auto files = std::make_shared<FileSet>();
    files->segments.assign(segments.begin(), segments.end());
    files->deletions.assign(deletions.begin(), deletions.end());
    files->deleted = document_lists(deleted_documents);
    files->check();
    snapshot_ = std::make_shared<const Snapshot>(std::move(files), std::vector<LiveSegment>(), std::vector<LiveSegment>());
  }

  auto lookup(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match) const {
    return queries_.lookup(*snapshot_, {contexts}, max_match, min_match);
  }
  py::list draft(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth,
                 const std::vector<std::int64_t>& max_nodes, std::uint32_t source) const {
    return queries_.draft(*snapshot_, {contexts}, max_match, min_match, max_depth, max_nodes, source);
  }
  py::tuple clock(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes) const {
    return queries_.clock([this] { return snapshot_; }, contexts, max_match, min_match, max_depth, max_nodes);
  }
  std::vector<std::pair<std::size_t, std::uint64_t>> occurrences(const py::handle& pattern, std::uint64_t limit) const {
    std::vector<std::pair<std::size_t, std::uint64_t>> found;
    for (const auto& [segment, position] : queries_.occurrences(*snapshot_, {py::make_tuple(pattern)}, limit)) found.emplace_back(segment, position);
    return found;
  }
  std::shared_ptr<const Snapshot> snapshot() const override { return snapshot_; }
  std::uint32_t vocab_size() const override { return queries_.vocab_size(); }
  std::uint32_t order_depth() const override { return queries_.order_depth(); }

 private:
  Queries queries_;
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace

void bind_searcher(py::module_& module) {
  py::class_<Searched, std::shared_ptr<Searched>>(module, "Searched");
  py::class_<Searcher, Searched, std::shared_ptr<Searcher>>(module, "Searcher")
      .def(py::init<const Segments&, const Segments&, const DocumentLists&, unsigned>(),
           "segments"_a, "deletions"_a = py::list(), "deleted_documents"_a = py::list(), "threads"_a = 0)
      .def("lookup", &Searcher::lookup, "contexts"_a, "max_match"_a, "min_match"_a)
      .def("draft", &Searcher::draft, "contexts"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a, "source"_a)
      .def("clock", &Searcher::clock, "contexts"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a)
      .def("occurrences", &Searcher::occurrences, "pattern"_a, "limit"_a)
      .def_property_readonly("order_depth", &Searcher::order_depth);
}

}  // namespace suffolk::bindings
