// The product of skinny_gemm.h for one set of instructions and one element type, as a table of functions. skinny_gemm.cc chooses the
// table and divides the work.
#pragma once

#include <cstddef>

#include "kernels/skinny_gemm.h"

namespace suffolk::kernels {

struct Backend {
  const char* name;   // the name of the instructions, for messages
  std::size_t panel;  // outputs whose weights are read together

  // The largest row_count that `pack` and `multiply` accept.
  std::size_t (*most_rows)(std::size_t inputs);

  // Floats that `packed` must hold for `row_count` rows.
  std::size_t (*packed_size)(std::size_t row_count, std::size_t inputs);

  // Copies the product's rows to `packed` in the order in which `multiply` reads them.
  // REQUIRES: row_count <= most_rows(inputs); `packed` is 64-byte aligned
  void (*pack)(const SkinnyGemm& product, float* packed);

  // Computes the outputs [begin, end) of all rows.
  // REQUIRES: row_count <= most_rows(inputs); `begin` is a multiple of `panel`; `end` is a multiple of `panel`, or the number of
  // outputs
  void (*multiply)(const SkinnyGemm& product, const float* packed, std::size_t begin, std::size_t end);
};

// Null if the processor or the compiler's target lacks the instructions. The choice must not depend on the number of rows, because
// backends add in different orders. `bytes`: whether the weights are int8 with scales.
const Backend* portable_backend(Element element, bool bytes) noexcept;  // every processor of the architecture; no fp16
const Backend* amx_backend(const SkinnyGemm& product) noexcept;         // bf16, whole tiles of 32 inputs by 16 outputs; no int8 weights
#if defined(__x86_64__)
const Backend* avx2_backend(Element element, bool bytes) noexcept;                              // AVX2, FMA and F16C
const Backend* avx512_backend(Element element, bool bytes) noexcept;                            // AVX-512F, AVX2, FMA and F16C
const Backend* avx512_pairs_backend(Element element, bool bytes, std::size_t inputs) noexcept;  // also AVX-512 for bf16; even `inputs`; no int8
#else
inline const Backend* avx2_backend(Element, bool) noexcept { return nullptr; }
inline const Backend* avx512_backend(Element, bool) noexcept { return nullptr; }
inline const Backend* avx512_pairs_backend(Element, bool, std::size_t) noexcept { return nullptr; }
#endif

}  // namespace suffolk::kernels
