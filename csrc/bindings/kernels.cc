#include "bindings/bind.h"
#include "kernels/skinny_gemm.h"

namespace suffolk::bindings {
namespace {

namespace py = pybind11;
using kernels::Element;
using namespace py::literals;

const void* address(std::uintptr_t at) { return reinterpret_cast<const void*>(at); }

void skinny_gemm(Element element, std::uintptr_t rows, std::size_t row_stride, std::uintptr_t weights, std::uintptr_t scales,
                std::uintptr_t bias, std::uintptr_t out,
                std::size_t row_count, std::size_t inputs, std::size_t outputs, unsigned threads) {
  kernels::skinny_gemm({.element = element, .rows = address(rows), .row_stride = row_stride, .weights = address(weights),
                       .scales = static_cast<const float*>(address(scales)), .bias = address(bias),
                       .out = reinterpret_cast<void*>(out), .row_count = row_count, .inputs = inputs, .outputs = outputs},
                      threads);
}

}  // namespace

void bind_kernels(py::module_& module) {
  py::enum_<Element>(module, "Element")
      .value("FLOAT32", Element::kFloat32)
      .value("BFLOAT16", Element::kBFloat16)
      .value("FLOAT16", Element::kFloat16);
  module.def("skinny_gemm_supports", &kernels::supports, "element"_a);
  module.def("skinny_gemm", &skinny_gemm, py::call_guard<py::gil_scoped_release>(), "element"_a, "rows"_a, "row_stride"_a,
             "weights"_a, "scales"_a, "bias"_a, "out"_a, "row_count"_a, "inputs"_a, "outputs"_a, "threads"_a);
}

}  // namespace suffolk::bindings
