// Converts between values of Python and of the core.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/draft.h"
#include "core/error.h"
#include "core/segment.h"
#include "core/snapshot.h"

namespace suffolk::bindings {

namespace py = pybind11;
using Segments = std::vector<std::shared_ptr<Segment>>;

// The last `limit` ids of a sequence or integer array, or all if there are fewer. Throws kInvalidArgument, naming the index,
// for an id that is not in the vocabulary.
std::vector<std::uint32_t> token_tail(const py::handle& ids, std::uint64_t limit, std::uint32_t vocab_size);

// Lists of document indices.
using DocumentLists = std::vector<py::array_t<std::uint32_t, py::array::c_style>>;
std::vector<std::vector<std::uint32_t>> document_lists(const DocumentLists& given);

// Makes a FileSet. Throws kInvalidArgument if the lists of deleted documents do not fit the segments.
std::shared_ptr<const FileSet> file_set(const Segments& segments, const Segments& deletions, const DocumentLists& deleted_documents);

// Throws kInvalidArgument, naming the bound, if a bound is negative or too large.
QueryBounds query_bounds(std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes);

// A Progress that takes the GIL, handles signals (so that Ctrl-C ends a long call), and calls `callback` unless it is None.
Progress progress_with_signals(const py::object& callback);

}  // namespace suffolk::bindings
