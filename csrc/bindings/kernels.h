// The kernels of csrc/kernels as Python sees them.
#pragma once

#include <pybind11/pybind11.h>

namespace suffolk::bindings {

// Adds `skinny_gemm`, `skinny_gemm_supports` and their element types to the module. Operands come as addresses, so that the
// extension needs no torch to be built: serving/engine/model/skinny_gemm.py checks them.
void bind_kernels(pybind11::module_& module);

}  // namespace suffolk::bindings
