// Attention for one set of instructions, as a table of functions. tree_attention.cc chooses the table and divides the work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tree_attention.h"

namespace suffolk::kernels {

constexpr std::size_t kPiece = 64;          // positions of a piece: the scores of a piece share one maximum
constexpr std::size_t kPieceSlack = 16;     // further pointers after the keys of a piece, which may be read; they repeat the last key
constexpr std::size_t kQuerySlack = 31;     // rows after the last query that may be read; in scratch memory they may also be written
constexpr std::size_t kFloatsPerLine = 16;  // widths of fp32 numbers are padded to whole cache lines

inline std::size_t padded_width(std::size_t width) { return (width + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine; }

// The results of several queries over some of the keys. The results over other keys can be merged into them.
struct Sums {
  float* out;    // [queries, width]: the weighted sum of the values
  float* peaks;  // [queries]: the largest score
  float* sums;   // [queries]: the sum of the weights exp(score - peak); 0 if there are no keys
  std::size_t width;

  Sums from(std::size_t query) const { return {.out = out + query * width, .peaks = peaks + query, .sums = sums + query, .width = width}; }
};

// The positions [begin, end) of a piece.
struct Seen {
  std::uint32_t begin, end;
  bool operator==(const Seen&) const = default;
};

// Several queries, and the keys and values of one piece. The pointers to keys and values point to elements.
struct Piece {
  const float* queries;  // [count + kQuerySlack, padded key width], as `read_query` writes them
  std::size_t count;
  const void* const* keys;    // [kPiece + kPieceSlack], the keys at the positions `seen`, then copies of the last pointer
  const void* const* values;  // [kPiece]
  Seen seen;                  // the positions that at least one query sees; not empty
  const Seen* each;           // [count], the positions that each query sees; all equal `seen` unless the backend's `separates` is true
  std::size_t key_width, value_width;
  float scaling, softcap;
  float* scores;  // [count + kQuerySlack, kPiece], scratch
  float* wide;    // [kPiece, padded key width + padded value width], scratch
  Sums to;        // the results of the `count` queries
};

struct AttentionBackend {
  const char* name;  // the name of the instructions, for messages
  bool separates;    // whether the queries of a piece may see different positions

  // A thread calls `start` before its first call of `attend`, and `stop` after its last. Null if the backend needs no such call.
  void (*start)();
  void (*stop)();

  // Copies a query of `width` elements to [padded width] floats.
  void (*read_query)(const void* from, std::size_t width, float* to);

  // Computes the results of a piece, and writes them to `piece.to`.
  void (*attend)(const Piece& piece);

  // Merges the results over later keys into `all`, for `count` queries. The two results may have different peaks.
  void (*merge)(const Sums& all, const Sums& later, std::size_t count);

  // Divides `width` numbers by `sum` and rounds them to elements.
  void (*finish)(const float* from, float sum, std::size_t width, void* to);
};

// Each function returns null if the processor or the compiler's target lacks the instructions. The choice must not depend on the
// number of rows, because backends add in different orders.
const AttentionBackend* portable_attention(Element element) noexcept;
const AttentionBackend* amx_attention(Element element, std::size_t key_width, std::size_t value_width) noexcept;  // bf16, whole tiles
#if defined(__x86_64__)
const AttentionBackend* avx2_attention(Element element) noexcept;
const AttentionBackend* avx512_attention(Element element) noexcept;
#else
inline const AttentionBackend* avx2_attention(Element) noexcept { return nullptr; }
inline const AttentionBackend* avx512_attention(Element) noexcept { return nullptr; }
#endif

}  // namespace suffolk::kernels
