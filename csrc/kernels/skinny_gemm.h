// A linear layer for few rows: y[m, n] = sum over k of x[m, k] * w[n, k] (+ bias[n]), for the rows of a draft tree.
//
// Weights are read where they lie, once for up to 64 rows, so that a few rows cost little more than one. Sums are fp32 and
// rounded once, to the element type of all operands. Weights may also be int8, with a scale for each output, for a quarter or
// half of the memory traffic where results need not be exact.
//
// **A row's result is the same, bit for bit, whatever the other rows, their number, its place among them, and the number of
// threads.** Each (row, output) has n partial sums, 16 with AVX-512 and else 8; sum j adds the products of the inputs j, j + n,
// j + 2n, ... in that order, fused where the processor can, and a fixed tree adds the n. bf16 on a processor with tile matrix
// instructions (AMX), in whole tiles and without bytes, is added as these do, subnormal numbers taken for 0. So the bits depend on
// the processor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace suffolk::kernels {

enum class Element : std::uint8_t { kFloat32, kBFloat16, kFloat16 };

// One product. All pointers but `scales`, and `weights` beside it, are to elements of one type, at addresses that suit the type;
// nothing overlaps `out`.
struct SkinnyGemm {
  Element element;
  const void* rows;          // [row_count, inputs]
  std::size_t row_stride;    // elements from one row to the next
  const void* weights;       // [outputs, inputs], without gaps; std::int8_t if there are scales
  const float* scales;       // [outputs], by which the bytes of an output's weights are multiplied; null for weights that are elements
  const void* bias;          // [outputs], or null
  void* out;                 // [row_count, outputs], without gaps
  std::size_t row_count;     // any number; the weights are read once for each 64 rows
  std::size_t inputs;        // 0 gives the bias
  std::size_t outputs;
};

// Whether this processor supports `skinny_gemm` for the element type. fp16 needs an x86-64 with F16C, AVX2 and FMA.
bool supports(Element element) noexcept;

// Computes the product with up to `threads` threads (see workers.h). Safe to call from any number of threads. May throw
// std::bad_alloc, for row_count * inputs floats. REQUIRES: supports(product.element), threads >= 1
void skinny_gemm(const SkinnyGemm& product, unsigned threads);

}  // namespace suffolk::kernels
