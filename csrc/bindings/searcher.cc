#include <pybind11/stl.h>

#include <algorithm>
#include <memory>

#include "bindings/arguments.h"
#include "bindings/bind.h"
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
  // `deletions` hold the tokens of deleted documents; their counts are subtracted. `deleted_documents` are the indices
  // of these documents; only `occurrences` and `count_documents` need them.
  Searcher(const Segments& segments, const Segments& deletions, const DocumentLists& deleted_documents, unsigned threads)
      : Searched(least(segments, &format::Header::vocab_size, kEnd), least(segments, &format::Header::order_depth, format::kMaxOrderDepth), threads) {
    if (segments.empty()) refuse("a datastore needs at least one segment");
    auto files = file_set(segments, deletions, deleted_documents);
    snapshot_ = std::make_shared<const Snapshot>(std::move(files), std::vector<LiveSegment>(), std::vector<LiveSegment>());
  }

  std::vector<std::pair<std::size_t, std::uint64_t>> occurrences(const py::handle& pattern, std::uint64_t limit) const {
    std::vector<std::pair<std::size_t, std::uint64_t>> found;
    for (const auto& [segment, position] : places(*snapshot_, pattern, limit)) found.emplace_back(segment, position);
    return found;
  }
  std::shared_ptr<const Snapshot> snapshot() const override { return snapshot_; }

 private:
  std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace

void bind_searcher(py::module_& module) {
  py::class_<Searcher, Searched, std::shared_ptr<Searcher>>(module, "Searcher")
      .def(py::init<const Segments&, const Segments&, const DocumentLists&, unsigned>(), "segments"_a, "deletions"_a = py::list(),
           "deleted_documents"_a = py::list(), "threads"_a = 0)
      .def("occurrences", &Searcher::occurrences, "pattern"_a, "limit"_a);
}

}  // namespace suffolk::bindings
