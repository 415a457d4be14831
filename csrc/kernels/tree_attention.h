// Attention of the rows of draft trees and prompt chunks, over a KV cache whose rows are read in place.
//
// **The bits of a row's result do not depend on other rows, the tree, the division of the text into passes or the number of
// threads.** They depend only on the row's query, and on the keys and values of the tokens up to the row, in the order of their
// positions. Positions are cut into pieces at multiples of kPiece. In a piece, a score sums its products as `skinny_gemm.h` says,
// and weighted values are added in the order of positions. The pieces are merged in order, each with its own maximum. So the bits
// are the same, whether a token's key lies among the cached tokens or belongs to an ancestor anywhere in the tree.
//
// Sums are fp32, and are rounded once to the element type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/skinny_gemm.h"

namespace suffolk::kernels {

// The rows of one request in a pass. A row sees the tokens at all positions up to its own.
struct AttentionSpan {
  std::int64_t begin;   // its first row in the pass
  std::int64_t rows;    // number of rows
  std::int64_t first;   // cache row of position 0; the cached tokens lie in consecutive rows from here on
  std::int64_t cached;  // number of cached tokens before the span
  std::int64_t chain;   // 1: row i is at position cached + i, in cache row first + cached + i; 0: `ancestors` has the path of each row
};

// A layer's attention in one pass. Pointers to elements are aligned for their type. No operand overlaps `out`.
struct TreeAttention {
  Element element;
  const void* query;        // [rows, heads, key_width] with the strides below; a head's numbers lie together
  std::size_t row_stride;   // elements from one row to the next
  std::size_t head_stride;  // elements from one head to the next
  const void* keys;         // [cache rows, key_heads, key_width], without gaps
  const void* values;       // [cache rows, key_heads, value_width], without gaps
  void* out;                // [rows, heads, value_width], without gaps
  std::size_t heads;        // a multiple of key_heads
  std::size_t key_heads;
  std::size_t key_width, value_width;
  const AttentionSpan* spans;
  std::size_t span_count;
  const std::int64_t* offsets;    // [rows + 1], where each row's path begins in `ancestors`; unused for chains
  const std::int64_t* ancestors;  // for each row, the cache rows of its path after the cached tokens, in order of depth; the last is its own
  float scaling;                  // factor of the scores
  float softcap;                  // bound of the scores by tanh; 0 for none
  std::int64_t window;            // tokens that a row looks back, its own included; 0 for all
};

// The name of the instructions, such as "AVX-512", that compute attention with these widths. REQUIRES: supports(element)
const char* attention_instructions(Element element, std::size_t key_width, std::size_t value_width) noexcept;

// Computes the attention of all rows with up to `threads` threads (see workers.h). Safe to call from any number of threads. May
// throw std::bad_alloc. REQUIRES: supports(element), threads >= 1; every cache row that `layer` names exists
void attend(const TreeAttention& layer, unsigned threads);

}  // namespace suffolk::kernels
