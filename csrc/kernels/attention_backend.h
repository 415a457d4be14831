// The functions of one set of instructions for attention. tree_attention.cc divides the work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tree_attention.h"

namespace suffolk::kernels {

constexpr std::size_t kPiece = 64;          // positions whose scores share a maximum
constexpr std::size_t kPieceSlack = 16;     // pointers after a piece's keys that may be read; they repeat the last key
constexpr std::size_t kQuerySlack = 31;     // queries after the last one that may be read, and written in the scratch memory
constexpr std::size_t kFloatsPerLine = 16;  // widths of fp32 numbers are padded to whole cache lines

inline std::size_t padded_width(std::size_t width) { return (width + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine; }

// The weighted values of queries over some keys. Results over different keys can be merged.
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

// Queries and the keys of one piece. Pointers to keys and values are to elements.
struct Piece {
  const float* queries;  // [count + kQuerySlack, padded key width], as `read_query` writes them
  std::size_t count;
  const void* const* keys;    // [kPiece + kPieceSlack], the keys of `seen`; the last one is repeated after them
  const void* const* values;  // [kPiece]
  Seen seen;                  // the positions that any query sees; not empty
  const Seen* each;           // [count], the positions that each query sees; equal to `seen` unless the backend `separates`
  std::size_t key_width, value_width;
  float scaling, softcap;
  float* scores;  // [count + kQuerySlack, kPiece], scratch
  float* wide;    // [kPiece, padded key width + padded value width], scratch
  Sums to;        // of `count` queries
};

struct AttentionBackend {
  const char* name;  // the name of its instructions, for messages
  bool separates;    // whether the queries of a piece may see different positions

  // Before and after a thread's calls of `attend`; null if nothing is to be done.
  void (*start)();
  void (*stop)();

  // Copies a query of `width` elements to [padded width] floats.
  void (*read_query)(const void* from, std::size_t width, float* to);

  // Computes `to` of a piece.
  void (*attend)(const Piece& piece);

  // Merges `later` keys into `all`, for `count` queries. Both have their own peaks.
  void (*merge)(const Sums& all, const Sums& later, std::size_t count);

  // Divides `width` numbers by `sum` and rounds them to elements.
  void (*finish)(const float* from, float sum, std::size_t width, void* to);
};

// Null as for `portable_backend` and its siblings. The choice must not depend on the rows of a pass.
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
