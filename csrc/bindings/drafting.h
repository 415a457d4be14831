// The parts of csrc/drafting as Python sees them.
#pragma once

#include <pybind11/pybind11.h>

namespace suffolk::bindings {

// Adds `Calibrator`, `Recycler`, `merge_trees`, `reweight_scores`, `check_tree`, `tree_depths` and `lay_out` to the module. Every column that comes in
// is checked before it is read; whatever is wrong with one raises InvalidArgument. These calls take microseconds and keep the GIL.
void bind_drafting(pybind11::module_& module);

}  // namespace suffolk::bindings
