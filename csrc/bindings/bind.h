// The functions that add classes to the extension module.
#pragma once

#include <pybind11/pybind11.h>

namespace suffolk::bindings {

// Adds the draft trees. Columns are checked before they are read; a wrong column raises InvalidArgument. The calls take
// microseconds and keep the GIL.
void bind_trees(pybind11::module_& module);
void bind_drafting(pybind11::module_& module);

// Adds Searched, then its subclasses: Searcher (over the segment files of one generation), LiveIndex, and MergedSearcher.
void bind_searched(pybind11::module_& module);
void bind_searcher(pybind11::module_& module);
void bind_live(pybind11::module_& module);
void bind_merged(pybind11::module_& module);

// Adds the kernels. Operands are addresses, because the extension is built without torch. Callers in Python check the operands
// (serving/decoding/engine/model/skinny_gemm.py).
void bind_kernels(pybind11::module_& module);

}  // namespace suffolk::bindings
