// Attention in bf16 by tile matrix instructions (AMX). Weights are rounded to bf16 before they multiply values; their sum is not.
// 16 queries take as long as one.
#if defined(__x86_64__) && defined(__linux__) && (__has_include(<amxbf16intrin.h>) || __has_include(<amxintrin.h>))

#include <algorithm>
#include <cmath>

#include "kernels/amx_tiles.h"
#include "kernels/attention_backend.h"
#include "kernels/attention_tiles.h"

namespace suffolk::kernels {
namespace {

constexpr std::size_t kRows = 2 * kTile;  // queries whose products are computed together
constexpr std::size_t kPieceBlocks = kPiece / kTileInputs;

const BFloat16* element(const void* const* rows, const Seen& seen, std::size_t position) {
  return position >= seen.begin && position < seen.end ? static_cast<const BFloat16*>(rows[position]) : nullptr;
}

// Packs the keys of a piece as rows, in groups of 16. Groups that no row sees are left as they are.
SUFFOLK_TARGET void pack_keys(const Piece& piece, float* packed) {
  for (std::size_t first = piece.seen.begin / kTile * kTile; first < piece.seen.end; first += kTile) {
    pack_group([&](std::size_t m) { return element(piece.keys, piece.seen, first + m); }, piece.key_width, packed + first * piece.key_width / 2);
  }
}

// Packs the values of a piece, in groups of 16 numbers of each value: [block of 32 positions, pair of positions, number]. Values that
// no row sees become zeros. Returns whether all numbers are finite.
SUFFOLK_TARGET bool pack_values(const Piece& piece, float* packed) {
  alignas(64) static constexpr std::uint16_t kFirst[] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i first = _mm512_load_si512(kFirst), second = _mm512_add_epi16(first, _mm512_set1_epi16(kTile));
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 special = 0;
  for (std::size_t pair = 0; pair < kPiece / 2; ++pair) {
    const BFloat16 *even = element(piece.values, piece.seen, 2 * pair), *odd = element(piece.values, piece.seen, 2 * pair + 1);
    float* to = packed + pair * kTile;
    for (std::size_t i = 0; i < piece.value_width; i += kTileInputs, to += 2 * kPieceBlocks * kTileFloats) {
      const __m512i low = even != nullptr ? _mm512_loadu_si512(even + i) : _mm512_setzero_si512();
      const __m512i high = odd != nullptr ? _mm512_loadu_si512(odd + i) : _mm512_setzero_si512();
      special |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(low, exponent), exponent);
      special |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(high, exponent), exponent);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(low, first, high));
      _mm512_storeu_si512(to + kPieceBlocks * kTileFloats, _mm512_permutex2var_epi16(low, second, high));
    }
  }
  return special == 0;
}

// exp(x) to within 2 units in the last place, for x in [-87, 0].
SUFFOLK_TARGET inline __m512 exponential(__m512 x) {
  const __m512 whole = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 part = _mm512_fnmadd_ps(whole, _mm512_set1_ps(-2.12194440e-4F), _mm512_fnmadd_ps(whole, _mm512_set1_ps(0.693359375F), x));
  __m512 sum = _mm512_set1_ps(1.9875691e-4F);  // Cephes' polynomial for (e^r - 1 - r) / r^2
  for (const float next : {1.3981999e-3F, 8.3334519e-3F, 4.1665796e-2F, 1.6666665e-1F, 5.0000000e-1F}) {
    sum = _mm512_fmadd_ps(sum, part, _mm512_set1_ps(next));
  }
  const __m512 power = _mm512_add_ps(_mm512_fmadd_ps(sum, _mm512_mul_ps(part, part), part), _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(power, whole);
}

// Turns the products of a query with the keys, [kPiece] floats, into bf16 weights. The weights take the first half of this memory.
SUFFOLK_TARGET void weigh_query(const Piece& piece, std::size_t row, float* scores) {
  constexpr std::size_t kVectors = kPiece / kTile;
  const Seen seen = piece.each[row];
  const std::uint64_t below_end = seen.end == kPiece ? ~std::uint64_t{0} : (std::uint64_t{1} << seen.end) - 1;
  const std::uint64_t visible = seen.begin < seen.end ? below_end >> seen.begin << seen.begin : 0;
  if (piece.softcap != 0.0F) {
    for (std::size_t i = seen.begin; i < seen.end; ++i) scores[i] = std::tanh(scores[i] * piece.scaling / piece.softcap) * piece.softcap;
  }
  const __m512 scaling = _mm512_set1_ps(piece.softcap != 0.0F ? 1.0F : piece.scaling);
  __m512 all[kVectors], most = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    all[v] = _mm512_mul_ps(_mm512_loadu_ps(scores + v * kTile), scaling);
    most = _mm512_mask_max_ps(most, static_cast<__mmask16>(visible >> v * kTile), most, all[v]);
  }
  const float peak = _mm512_reduce_max_ps(most);
#pragma GCC unroll 4
  for (std::size_t v = 0; v < kVectors; ++v) {
    const __m512 below = _mm512_max_ps(_mm512_set1_ps(-87.0F), _mm512_sub_ps(all[v], _mm512_set1_ps(peak)));  // keeps NaNs
    const __m512 weight = _mm512_maskz_mov_ps(static_cast<__mmask16>(visible >> v * kTile), exponential(below));
    sum = _mm512_add_ps(sum, weight);
    write_narrow(scores + v * kTile / 2, weight);
  }
  piece.to.peaks[row] = peak;
  piece.to.sums[row] = _mm512_reduce_add_ps(sum);
}

// Computes the queries [row, row + rows) of a piece with packed keys and values. `out` is scratch memory for kRows values.
SUFFOLK_TARGET void attend_rows(const Piece& piece, std::size_t row, std::size_t rows, const float* keys, const float* values, float* out) {
  const std::size_t stride = padded_width(piece.key_width), width = piece.to.width;
  const auto multiply = rows > kTile ? multiply_panel<2, 2> : multiply_panel<1, 2>;
  const Panel queries{
      .weights = reinterpret_cast<const BFloat16*>(piece.queries + row * stride), .next = nullptr, .inputs = piece.key_width, .stride = 2 * stride};
  for (std::size_t first = piece.seen.begin / (2 * kTile) * 2 * kTile; first < piece.seen.end; first += 2 * kTile) {
    multiply(queries, keys + first * piece.key_width / 2,
             {.at = piece.scores + first, .next_outputs = kTile * kPiece, .next_group = kTile, .stride = kPiece});
  }
  for (std::size_t r = 0; r < rows; ++r) weigh_query(piece, row + r, piece.scores + r * kPiece);
  const Panel weights{.weights = reinterpret_cast<const BFloat16*>(piece.scores), .next = nullptr, .inputs = kPiece, .stride = 2 * kPiece};
  float* to = rows == kRows ? piece.to.out + row * width : out;
  for (std::size_t i = 0; i < piece.value_width; i += kTileInputs) {
    multiply(weights, values + i * kPiece / 2, {.at = to + i, .next_outputs = kTile * width, .next_group = kTile, .stride = width});
  }
  if (to == out) std::copy_n(out, rows * width, piece.to.out + row * width);
}

// A weight of 0 does not hide an infinite or NaN value. So if there is one, each query is computed alone, over its own
// keys.
SUFFOLK_TARGET void attend_piece(const Piece& piece) {
  float* const keys = piece.wide;
  float* const values = keys + kPiece * piece.key_width / 2;
  float* const out = values + kPiece * piece.value_width / 2;
  pack_keys(piece, keys);
  if (!pack_values(piece, values) && piece.count > 1) {
    for (std::size_t row = 0; row < piece.count; ++row) {
      Piece one = piece;
      one.queries += row * padded_width(piece.key_width);
      one.count = 1;
      one.each += row;
      one.seen = *one.each;
      one.to = piece.to.from(row);
      if (one.seen.begin < one.seen.end) attend_piece(one);
    }
    return;
  }
  for (std::size_t row = 0; row < piece.count; row += kRows) attend_rows(piece, row, std::min(kRows, piece.count - row), keys, values, out);
}

// As `merge_sums`. Shares below e^-87 are e^-87.
SUFFOLK_TARGET void merge_vectors(const Sums& all, const Sums& later, std::size_t count) {
  const __m512 least = _mm512_set1_ps(-87.0F);
  for (std::size_t first = 0; first < count; first += kTile) {
    const std::size_t queries = std::min(kTile, count - first);
    const auto some = static_cast<__mmask16>((1U << queries) - 1);
    const Sums to = all.from(first), from = later.from(first);
    const __m512 before = _mm512_maskz_loadu_ps(some, to.peaks), after = _mm512_maskz_loadu_ps(some, from.peaks);
    const __m512 peak = _mm512_max_ps(before, after);
    alignas(64) float shares[2][kTile];
    _mm512_store_ps(shares[0], exponential(_mm512_max_ps(least, _mm512_sub_ps(before, peak))));
    _mm512_store_ps(shares[1], exponential(_mm512_max_ps(least, _mm512_sub_ps(after, peak))));
    for (std::size_t query = 0; query < queries; ++query) {
      float *const out = to.from(query).out, *const add = from.from(query).out;
      if (from.sums[query] == 0.0F) continue;
      if (to.sums[query] == 0.0F) {
        std::copy_n(add, to.width, out);
        to.peaks[query] = from.peaks[query];
        to.sums[query] = from.sums[query];
        continue;
      }
      const __m512 share = _mm512_set1_ps(shares[0][query]), added = _mm512_set1_ps(shares[1][query]);
      for (std::size_t i = 0; i < to.width; i += kTile) {
        _mm512_storeu_ps(out + i, _mm512_fmadd_ps(_mm512_loadu_ps(add + i), added, _mm512_mul_ps(_mm512_loadu_ps(out + i), share)));
      }
      to.sums[query] = to.sums[query] * shares[0][query] + from.sums[query] * shares[1][query];
      to.peaks[query] = std::max(to.peaks[query], from.peaks[query]);
    }
  }
}

SUFFOLK_TARGET void release_tiles() { _tile_release(); }

void copy_query(const void* from, std::size_t width, float* to) { std::memcpy(to, from, width * sizeof(BFloat16)); }

struct Plain : Scalars {};

constexpr AttentionBackend kAmx = {.name = "AMX",
                                   .separates = true,
                                   .start = configure_tiles,
                                   .stop = release_tiles,
                                   .read_query = copy_query,
                                   .attend = attend_piece,
                                   .merge = merge_vectors,
                                   .finish = finish_row<Typed<Plain, BFloat16, BFloat16>>};

}  // namespace

const AttentionBackend* amx_attention(Element element, std::size_t key_width, std::size_t value_width) noexcept {
  const bool whole = key_width % kTileInputs == 0 && value_width % kTileInputs == 0 && key_width != 0;
  return may_use_tiles() && whole && element == Element::kBFloat16 ? &kAmx : nullptr;
}

}  // namespace suffolk::kernels

#else

#include "kernels/attention_backend.h"

namespace suffolk::kernels {
const AttentionBackend* amx_attention(Element, std::size_t, std::size_t) noexcept { return nullptr; }
}  // namespace suffolk::kernels

#endif
