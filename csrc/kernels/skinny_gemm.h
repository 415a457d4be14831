// A linear layer for few rows: y[m, n] = sum over k of x[m, k] * w[n, k] (+ bias[n]), for the rows of a draft tree.
//
// Weights are read in place, once for up to 64 rows. So a few rows cost little more than one. Sums are fp32, and are
// rounded once to the element type of the operands. Weights may also be int8, with a scale for each output. This takes a
// quarter or half of the memory traffic, but the results are not exact.
//
// **The bits of a row's result do not depend on other rows, the number of rows, the row's place among them, or the number of
// threads.** Each (row, output) has n partial sums: 16 with AVX-512, otherwise 8. Sum j adds the products of the inputs j, j+n,
// j+2n, ... in that order, fused if the processor can. A fixed tree adds the n sums. Some processors have products of pairs of bf16
// (AVX-512 BF16) or tile matrix instructions (AMX). There, bf16 products without int8 weights are added in the order of these
// instructions, and subnormal numbers count as 0. AVX-512 BF16 needs an even number of inputs, and AMX needs whole tiles. The
// order of a sum depends on the instructions, so the bits depend on the processor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace suffolk::kernels {

enum class Element : std::uint8_t { kFloat32, kBFloat16, kFloat16 };

// One product. All pointers except `scales` point to elements of one type. If there are scales, `weights` points to int8 instead.
// Addresses are aligned for their type. No operand overlaps `out`.
struct SkinnyGemm {
  Element element;
  const void* rows;        // [row_count, inputs]
  std::size_t row_stride;  // elements from one row to the next
  const void* weights;     // [outputs, inputs], without gaps; std::int8_t if there are scales
  const float* scales;     // [outputs], factors of each output's int8 weights; null if weights are elements
  const void* bias;        // [outputs], or null
  void* out;               // [row_count, outputs], without gaps
  std::size_t row_count;   // any number; the weights are read once for each 64 rows
  std::size_t inputs;      // 0 gives the bias
  std::size_t outputs;
};

// Whether this processor supports `skinny_gemm` for the element type. fp16 needs an x86-64 with F16C, AVX2 and FMA.
bool supports(Element element) noexcept;

// The name of the instructions, such as "AVX-512", that compute a product of these sizes without int8. REQUIRES: supports(element)
const char* instructions(Element element, std::size_t inputs, std::size_t outputs) noexcept;

// Computes the product with up to `threads` threads (see workers.h). Safe to call from any number of threads. Allocates row_count *
// inputs floats, and may throw std::bad_alloc. REQUIRES: supports(product.element), threads >= 1
void skinny_gemm(const SkinnyGemm& product, unsigned threads);

}  // namespace suffolk::kernels
