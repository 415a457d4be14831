// The loops of every attention backend except amx_attention.cc. A source file includes this header after tiles.h. Its class `Set`
// (see tiles.h) also has:
//
//   std::size_t kScoreRows      queries of a tile; its kScoreRows * kScoreKeys partial sums fit the registers
//   Vector spread(float)        the number in all lanes
//
// The plain loops are written so that the compiler can turn them into vector instructions. It never fuses a product and a sum, so
// the bits are always the same.
#pragma once

#include <bit>
#include <cmath>

#include "kernels/attention_backend.h"
#include "kernels/tiles.h"

namespace suffolk::kernels {
namespace {

constexpr std::size_t kScoreKeys = 4;
constexpr std::size_t kValueVectors = 4;  // vectors of a value that are summed together

// The vector at `from`. Only `left` numbers exist there; the other lanes are zeros.
template <class Lanes>
SUFFOLK_TARGET inline typename Lanes::Vector load_some(const typename Lanes::Value* from, std::size_t left) {
  if (left >= Lanes::kLanes) return Lanes::load(from);
  typename Lanes::Value some[Lanes::kLanes] = {};
  std::memcpy(some, from, left * sizeof(some[0]));
  return Lanes::load(some);
}

// The products of kRows queries with 4 keys, [kRows, 4], before scaling.
template <class Lanes, std::size_t kRows>
SUFFOLK_TARGET void multiply_keys(const float* queries, std::size_t stride, const void* const* keys, std::size_t width, float* products) {
  using Value = typename Lanes::Value;
  using Vector = typename Lanes::Vector;
  constexpr std::size_t kLanes = Lanes::kLanes, kSums = kRows * kScoreKeys;
  Vector sums[kRows][kScoreKeys];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kScoreKeys; ++k) sums[r][k] = Lanes::spread(0.0F);
  }
  const Value* at[kScoreKeys];
  for (std::size_t k = 0; k < kScoreKeys; ++k) at[k] = static_cast<const Value*>(keys[k]);
  const auto add = [&](std::size_t i, const Vector(&key)[kScoreKeys]) SUFFOLK_TARGET __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector query = Lanes::read(queries + r * stride + i);
#pragma GCC unroll 8
      for (std::size_t k = 0; k < kScoreKeys; ++k) sums[r][k] = Lanes::add_product(query, key[k], sums[r][k]);
    }
  };
  std::size_t i = 0;
  Vector key[kScoreKeys];
  for (; i + kLanes <= width; i += kLanes) {
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kScoreKeys; ++k) key[k] = Lanes::load(at[k] + i);
    add(i, key);
  }
  if (i < width) {
    for (std::size_t k = 0; k < kScoreKeys; ++k) key[k] = load_some<Lanes>(at[k] + i, width - i);
    add(i, key);
  }
  constexpr std::size_t kTotals = (kSums + Lanes::kTotals - 1) / Lanes::kTotals * Lanes::kTotals;
  alignas(64) float partial[kTotals * kLanes];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kScoreKeys; ++k) Lanes::write(partial + (r * kScoreKeys + k) * kLanes, sums[r][k]);
  }
  std::fill_n(partial + kSums * kLanes, (kTotals - kSums) * kLanes, 0.0F);
  for (std::size_t t = 0; t < kTotals; t += Lanes::kTotals) Lanes::total(partial + t * kLanes, products + t);
}

// The scores of kRows queries, from `row` on.
template <class Lanes, std::size_t kRows>
SUFFOLK_TARGET void score(const Piece& piece, std::size_t row) {
  const std::size_t stride = padded_width(piece.key_width);
  alignas(64) float products[16] = {};
  for (std::size_t j = piece.seen.begin; j < piece.seen.end; j += kScoreKeys) {
    multiply_keys<Lanes, kRows>(piece.queries + row * stride, stride, piece.keys + j, piece.key_width, products);
    for (float& product : products) product *= piece.scaling;
    const std::size_t keys = std::min(kScoreKeys, piece.seen.end - j);
    for (std::size_t r = 0; r < kRows; ++r) {
      float* to = piece.scores + (row + r) * kPiece + j;
      if (keys == kScoreKeys) {
        std::memcpy(to, products + r * kScoreKeys, kScoreKeys * sizeof(float));
      } else {
        std::copy_n(products + r * kScoreKeys, keys, to);
      }
    }
  }
}

// Replaces scores by exp(score - peak), to within 2 units in the last place; a result below e^-87 is replaced by e^-87.
SUFFOLK_TARGET inline void exponentials(float* scores, float peak) {
  constexpr float kLog2e = 1.44269504F, kShift = 12582912.0F;  // adding 1.5 * 2^23 rounds to a whole number
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  for (std::size_t i = 0; i < kPiece; ++i) {
    const float below = scores[i] - peak, x = below < -87.0F ? -87.0F : below;
    const float shifted = x * kLog2e + kShift, whole = shifted - kShift;
    const float r = (x - whole * kLn2High) - whole * kLn2Low;
    float sum = 1.9875691e-4F;  // Cephes' polynomial for (e^r - 1 - r) / r^2
    sum = sum * r + 1.3981999e-3F;
    sum = sum * r + 8.3334519e-3F;
    sum = sum * r + 4.1665796e-2F;
    sum = sum * r + 1.6666665e-1F;
    sum = sum * r + 5.0000000e-1F;
    const float power = sum * (r * r) + r + 1.0F;
    const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) << 23) + (127U << 23);
    scores[i] = power * std::bit_cast<float>(exponent);
  }
}

// 16 numbers, which the compiler keeps in one vector or in several.
using Line = float __attribute__((vector_size(kFloatsPerLine * sizeof(float))));

SUFFOLK_TARGET inline float largest(const float* scores) {
  Line most, next;
  std::memcpy(&most, scores, sizeof most);
  for (std::size_t i = kFloatsPerLine; i < kPiece; i += kFloatsPerLine) {
    std::memcpy(&next, scores + i, sizeof next);
    most = most < next ? next : most;
  }
  float peak = most[0];
  for (std::size_t lane = 1; lane < kFloatsPerLine; ++lane) peak = peak < most[lane] ? most[lane] : peak;
  return peak;
}

SUFFOLK_TARGET inline float total(const float* weights) {
  Line sums = {}, next;
  for (std::size_t i = 0; i < kPiece; i += kFloatsPerLine) {
    std::memcpy(&next, weights + i, sizeof next);
    sums += next;
  }
  float left[kFloatsPerLine];
  std::memcpy(left, &sums, sizeof left);
  for (std::size_t half = kFloatsPerLine / 2; half != 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) left[lane] += left[lane + half];
  }
  return left[0];
}

// Turns a query's scores into weights, and writes their peak and sum.
SUFFOLK_TARGET inline void weigh(const Piece& piece, std::size_t row) {
  float* scores = piece.scores + row * kPiece;
  const auto [begin, end] = piece.seen;
  if (piece.softcap != 0.0F) {
    for (std::size_t i = begin; i < end; ++i) scores[i] = std::tanh(scores[i] / piece.softcap) * piece.softcap;
  }
  std::fill(scores, scores + begin, scores[begin]);
  std::fill(scores + end, scores + kPiece, scores[begin]);
  const float peak = largest(scores);
  exponentials(scores, peak);
  std::fill(scores, scores + begin, 0.0F);
  std::fill(scores + end, scores + kPiece, 0.0F);
  piece.to.peaks[row] = peak;
  piece.to.sums[row] = total(scores);
}

// Computes kVectors vectors of the weighted values of kRows queries, from column `i` on.
template <class Lanes, std::size_t kRows, std::size_t kVectors>
SUFFOLK_TARGET void add_values(const Piece& piece, std::size_t row, std::size_t i) {
  using Value = typename Lanes::Value;
  using Vector = typename Lanes::Vector;
  constexpr std::size_t kLanes = Lanes::kLanes;
  const std::size_t left = piece.value_width - i;
  Vector sums[kRows][kVectors];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = Lanes::spread(0.0F);
  }
  for (std::size_t j = piece.seen.begin; j < piece.seen.end; ++j) {
    const Value* at = static_cast<const Value*>(piece.values[j]) + i;
    Vector value[kVectors];
    if constexpr (kVectors == 1) {
      value[0] = load_some<Lanes>(at, left);
    } else {
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) value[v] = Lanes::load(at + v * kLanes);
    }
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector weight = Lanes::spread(piece.scores[(row + r) * kPiece + j]);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = Lanes::add_product(weight, value[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) Lanes::write(piece.to.out + (row + r) * piece.to.width + i + v * kLanes, sums[r][v]);
  }
}

template <class Lanes, std::size_t kRows>
SUFFOLK_TARGET void attend_rows(const Piece& piece, std::size_t row) {
  score<Lanes, kRows>(piece, row);
  for (std::size_t r = 0; r < kRows; ++r) weigh(piece, row + r);
  std::size_t i = 0;
  for (; i + kValueVectors * Lanes::kLanes <= piece.value_width; i += kValueVectors * Lanes::kLanes) {
    add_values<Lanes, kRows, kValueVectors>(piece, row, i);
  }
  for (; i < piece.value_width; i += Lanes::kLanes) add_values<Lanes, kRows, 1>(piece, row, i);
}

template <class Lanes, std::size_t kRows = Lanes::kScoreRows>
SUFFOLK_TARGET void attend_some(const Piece& piece, std::size_t row, std::size_t rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return attend_some<Lanes, kRows - 1>(piece, row, rows);
  }
  attend_rows<Lanes, kRows>(piece, row);
}

template <class Lanes>
SUFFOLK_TARGET void widen_row(const void* from, std::size_t width, float* to) {
  const auto* elements = static_cast<const typename Lanes::Value*>(from);
  for (std::size_t i = 0; i < width; i += Lanes::kLanes) Lanes::write(to + i, load_some<Lanes>(elements + i, width - i));
  for (std::size_t i = (width + Lanes::kLanes - 1) / Lanes::kLanes * Lanes::kLanes; i < padded_width(width); ++i) to[i] = 0.0F;
}

template <class Lanes>
SUFFOLK_TARGET void attend_all(const Piece& piece) {
  for (std::size_t row = 0; row < piece.count; row += Lanes::kScoreRows) {
    attend_some<Lanes>(piece, row, std::min(Lanes::kScoreRows, piece.count - row));
  }
}

// With many queries, keys and values of 16 bits are widened once for all queries. Widening is exact, so the bits are the same.
template <class Lanes>
SUFFOLK_TARGET void attend_piece(const Piece& piece) {
  using Value = typename Lanes::Value;
  if (std::is_same_v<Value, float> || piece.count <= 2 * Lanes::kScoreRows) return attend_all<Lanes>(piece);
  const std::size_t key_width = padded_width(piece.key_width), value_width = padded_width(piece.value_width);
  const void* keys[kPiece + kPieceSlack];
  const void* values[kPiece];
  float* to = piece.wide;
  for (std::size_t j = piece.seen.begin; j < piece.seen.end; ++j, to += key_width + value_width) {
    widen_row<Lanes>(piece.keys[j], piece.key_width, to);
    widen_row<Lanes>(piece.values[j], piece.value_width, to + key_width);
    keys[j] = to;
    values[j] = to + key_width;
  }
  std::fill_n(keys + piece.seen.end, kPieceSlack, keys[piece.seen.end - 1]);
  Piece wide = piece;
  wide.keys = keys;
  wide.values = values;
  attend_all<Typed<typename Lanes::Set, float, float>>(wide);
}

SUFFOLK_TARGET inline void merge_sums(const Sums& all, const Sums& later, std::size_t count) {
  for (std::size_t query = 0; query < count; ++query) {
    const Sums to = all.from(query), from = later.from(query);
    if (*from.sums == 0.0F) continue;
    if (*to.sums == 0.0F) {
      std::copy_n(from.out, to.width, to.out);
      *to.peaks = *from.peaks;
      *to.sums = *from.sums;
      continue;
    }
    const float peak = std::max(*to.peaks, *from.peaks);
    const float before = *to.peaks == peak ? 1.0F : std::exp(*to.peaks - peak), after = *from.peaks == peak ? 1.0F : std::exp(*from.peaks - peak);
    for (std::size_t i = 0; i < to.width; ++i) to.out[i] = to.out[i] * before + from.out[i] * after;
    *to.sums = *to.sums * before + *from.sums * after;
    *to.peaks = peak;
  }
}

template <class Lanes>
SUFFOLK_TARGET void finish_row(const float* from, float sum, std::size_t width, void* to) {
  auto* elements = static_cast<typename Lanes::Value*>(to);
  for (std::size_t i = 0; i < width; ++i) Lanes::narrow(from[i] / sum, elements[i]);
}

template <class Lanes>
constexpr AttentionBackend kAttention = {.name = Lanes::kName,
                                         .separates = false,
                                         .start = nullptr,
                                         .stop = nullptr,
                                         .read_query = widen_row<Lanes>,
                                         .attend = attend_piece<Lanes>,
                                         .merge = merge_sums,
                                         .finish = finish_row<Lanes>};

// The attention of a set of instructions; null for fp16 if the set cannot widen it.
template <class Set>
const AttentionBackend* attention_of(Element element) noexcept {
  if (element == Element::kFloat32) return &kAttention<Typed<Set, float, float>>;
  if (element == Element::kBFloat16) return &kAttention<Typed<Set, BFloat16, BFloat16>>;
  if constexpr (requires { Set::widen(Float16{}); }) return &kAttention<Typed<Set, Float16, Float16>>;
  return nullptr;
}

}  // namespace
}  // namespace suffolk::kernels
