#include "bindings/bind.h"
#include "kernels/skinny_gemm.h"
#include "kernels/tree_attention.h"

namespace suffolk::bindings {
namespace {

namespace py = pybind11;
using kernels::Element;
using namespace py::literals;

const void* address(std::uintptr_t at) { return reinterpret_cast<const void*>(at); }

void skinny_gemm(Element element, std::uintptr_t rows, std::size_t row_stride, std::uintptr_t weights, std::uintptr_t scales, std::uintptr_t bias,
                 std::uintptr_t out, std::size_t row_count, std::size_t inputs, std::size_t outputs, unsigned threads) {
  kernels::skinny_gemm({.element = element,
                        .rows = address(rows),
                        .row_stride = row_stride,
                        .weights = address(weights),
                        .scales = static_cast<const float*>(address(scales)),
                        .bias = address(bias),
                        .out = reinterpret_cast<void*>(out),
                        .row_count = row_count,
                        .inputs = inputs,
                        .outputs = outputs},
                       threads);
}

// spans: int64[spans, 5], the fields of AttentionSpan.
void attend(Element element, std::uintptr_t query, std::size_t row_stride, std::size_t head_stride, std::uintptr_t keys, std::uintptr_t values,
            std::uintptr_t out, std::size_t heads, std::size_t key_heads, std::size_t key_width, std::size_t value_width, std::uintptr_t spans,
            std::size_t span_count, std::uintptr_t offsets, std::uintptr_t ancestors, float scaling, float softcap, std::int64_t window,
            unsigned threads) {
  kernels::attend({.element = element,
                   .query = address(query),
                   .row_stride = row_stride,
                   .head_stride = head_stride,
                   .keys = address(keys),
                   .values = address(values),
                   .out = reinterpret_cast<void*>(out),
                   .heads = heads,
                   .key_heads = key_heads,
                   .key_width = key_width,
                   .value_width = value_width,
                   .spans = static_cast<const kernels::AttentionSpan*>(address(spans)),
                   .span_count = span_count,
                   .offsets = static_cast<const std::int64_t*>(address(offsets)),
                   .ancestors = static_cast<const std::int64_t*>(address(ancestors)),
                   .scaling = scaling,
                   .softcap = softcap,
                   .window = window},
                  threads);
}

}  // namespace

void bind_kernels(py::module_& module) {
  py::enum_<Element>(module, "Element").value("FLOAT32", Element::kFloat32).value("BFLOAT16", Element::kBFloat16).value("FLOAT16", Element::kFloat16);
  module.def("skinny_gemm_supports", &kernels::supports, "element"_a);
  module.def("skinny_gemm_instructions", &kernels::instructions, "element"_a, "inputs"_a, "outputs"_a);
  module.def("attend_instructions", &kernels::attention_instructions, "element"_a, "key_width"_a, "value_width"_a);
  module.def("skinny_gemm", &skinny_gemm, py::call_guard<py::gil_scoped_release>(), "element"_a, "rows"_a, "row_stride"_a, "weights"_a, "scales"_a,
             "bias"_a, "out"_a, "row_count"_a, "inputs"_a, "outputs"_a, "threads"_a);
  module.def("attend", &attend, py::call_guard<py::gil_scoped_release>(), "element"_a, "query"_a, "row_stride"_a, "head_stride"_a, "keys"_a,
             "values"_a, "out"_a, "heads"_a, "key_heads"_a, "key_width"_a, "value_width"_a, "spans"_a, "span_count"_a, "offsets"_a, "ancestors"_a,
             "scaling"_a, "softcap"_a, "window"_a, "threads"_a);
}

}  // namespace suffolk::bindings
