// Conversions between Python's values and the core's.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/draft.h"
#include "core/error.h"
#include "core/sort.h"

namespace suffolk::bindings {

namespace py = pybind11;

// At most the last `limit` ids of a sequence or integer array, each checked against the vocabulary.
std::vector<std::uint32_t> token_tail(const py::handle& ids, std::uint64_t limit, std::uint32_t vocab_size);

// Bounds from Python's ints; refuses negative and oversized ones by name.
QueryBounds query_bounds(std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes);

// The fields of Python's DraftTree: tokens int32[n], parents int32[n], scores float32[n] (the share of the match's occurrences that go on with
// the path), sources uint32[n] (all `source`), counts uint64[n], match_length, match_count.
py::tuple tree_tuple(const DraftTree& tree, std::uint32_t source);

// Calls `callback` (may be None) with the GIL and lets Python handle signals, so that Ctrl-C ends a long call.
Progress progress_with_signals(const py::object& callback);

}  // namespace suffolk::bindings
