// The functions of one set of instructions for attention. tree_attention.cc divides the work.
#pragma once

#include <cstddef>

#include "kernels/tree_attention.h"

namespace suffolk::kernels {

constexpr std::size_t kPiece = 64;         // positions whose scores share a maximum
constexpr std::size_t kPieceSlack = 16;    // pointers after a piece's keys that may be read; they repeat the last key
constexpr std::size_t kFloatsPerLine = 16; // widths of fp32 numbers are padded to whole cache lines

// Queries that see the same keys of one piece. Pointers to keys and values are to elements.
struct Piece {
  const float* queries;       // [count, padded key width], padded with zeros
  std::size_t count;
  const void* const* keys;    // [kPiece + kPieceSlack], from `begin` to `end` and repeated after it
  const void* const* values;  // [kPiece]
  std::size_t begin, end;     // the positions in the piece that the queries see, begin < end
  std::size_t key_width, value_width;
  float scaling, softcap;
  float* scores;              // [count, kPiece], scratch
  float* wide;                // [kPiece, padded key width + padded value width], scratch
  float* out;                 // [count, padded value width]: the weighted sum of the values
  float* peaks;               // [count]: the largest score
  float* sums;                // [count]: the sum of the weights exp(score - peak)
};

struct AttentionBackend {
  // Widens `width` elements, and pads them with zeros to whole cache lines.
  void (*widen)(const void* from, std::size_t width, float* to);

  // Computes `out`, `peaks` and `sums` of a piece.
  void (*attend)(const Piece& piece);

  // Divides `width` numbers by `sum` and rounds them to elements.
  void (*finish)(const float* from, float sum, std::size_t width, void* to);
};

// Null as for `portable_backend` and its siblings.
const AttentionBackend* portable_attention(Element element) noexcept;
#if defined(__x86_64__)
const AttentionBackend* avx2_attention(Element element) noexcept;
const AttentionBackend* avx512_attention(Element element) noexcept;
#else
inline const AttentionBackend* avx2_attention(Element) noexcept { return nullptr; }
inline const AttentionBackend* avx512_attention(Element) noexcept { return nullptr; }
#endif

}  // namespace suffolk::kernels
