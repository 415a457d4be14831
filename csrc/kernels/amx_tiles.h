// Tile matrix instructions (AMX) for bf16: the functions that amx.cc and amx_attention.cc share. GCC declares the instructions in
// amxbf16intrin.h, clang in amxintrin.h.
#pragma once

#define SUFFOLK_TARGET __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512bf16")))

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // false warnings of GCC 12 about its own header (bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elements.h"

namespace suffolk::kernels {

// Whether this process may use tiles. Asks the operating system once.
bool may_use_tiles() noexcept;

namespace {

constexpr std::size_t kTile = 16;  // outputs, rows, or pairs of inputs in a tile
constexpr std::size_t kTileInputs = 32;
constexpr std::size_t kTileFloats = kTile * kTile;
constexpr std::size_t kPanelTiles = 2;  // tiles of outputs that are read together
constexpr std::size_t kAhead = 8;       // blocks of inputs between a prefetch and its use

// The configuration of the 8 tile registers: 16 rows of 64 bytes each.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes kTileShapes;  // in memory: compilers do not see that the instruction reads all of it

SUFFOLK_TARGET inline void configure_tiles() { _tile_loadconfig(&kTileShapes); }

// Writes 16 numbers, rounded to the nearest bf16, ties to even. A NaN stays a NaN; subnormal numbers become 0.
SUFFOLK_TARGET inline void write_narrow(void* to, __m512 numbers) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)));
}

// Transposes 16 x 16 numbers of 32 bits.
SUFFOLK_TARGET inline __attribute__((always_inline)) void transpose(__m512i (&rows)[kTile]) {
  __m512i pairs[kTile], fours[kTile], eights[kTile];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kTile; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kTile; i += 4) {  // fours[i..i+3]: columns 0..3 of each quarter, for 4 rows
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 4; ++i) {
    eights[i] = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0x88);  // quarters 0 and 2, for 8 rows
    eights[i + 4] = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0xdd);
    eights[i + 8] = _mm512_shuffle_i32x4(fours[i + 8], fours[i + 12], 0x88);
    eights[i + 12] = _mm512_shuffle_i32x4(fours[i + 8], fours[i + 12], 0xdd);
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 8; ++i) {  // i % 4 is the column, i / 4 the odd quarters
    const std::size_t column = i / 4 * 4 + i % 4;
    rows[column] = _mm512_shuffle_i32x4(eights[i], eights[i + 8], 0x88);
    rows[column + 8] = _mm512_shuffle_i32x4(eights[i], eights[i + 8], 0xdd);
  }
}

// Packs up to 16 rows, the second operand of a product. Each block of 32 inputs has the shape [pair of inputs, row]. `row(m)` gives
// the m-th row, or null if it is missing. A missing row is packed as zeros.
template <class Row>
SUFFOLK_TARGET inline __attribute__((always_inline)) void pack_group(const Row& row, std::size_t inputs, float* packed) {
  for (std::size_t k = 0; k < inputs; k += kTileInputs, packed += kTileFloats) {
    __m512i block[kTile];
    for (std::size_t m = 0; m < kTile; ++m) {
      const BFloat16* from = row(m);
      block[m] = from != nullptr ? _mm512_loadu_si512(from + k) : _mm512_setzero_si512();
    }
    transpose(block);
    for (std::size_t pair = 0; pair < kTile; ++pair) _mm512_storeu_si512(packed + pair * kTile, block[pair]);
  }
}

// The first operand of a product (one panel of weights), and the panel that is read next.
struct Panel {
  const BFloat16* weights;
  const BFloat16* next;  // the next panel, with the same number of outputs; null if it does not exist or is already prefetched
  std::size_t inputs;
  std::size_t stride;  // elements from one output's weights to the next output's

  void fetch(std::size_t block, std::size_t outputs) const {
    const std::size_t blocks = inputs / kTileInputs, later = block + kAhead;
    if (later >= blocks && (next == nullptr || later - blocks >= blocks)) return;
    const BFloat16* from = later < blocks ? weights + later * kTileInputs : next + (later - blocks) * kTileInputs;
    for (std::size_t o = 0; o < outputs; ++o) __builtin_prefetch(from + o * stride);
  }
};

// Where the sums of a panel and two groups go: up to 2 x 2 tiles of [16 outputs, 16 rows].
struct SumTiles {
  float* at;
  std::size_t next_outputs, next_group;  // floats from a tile to the tile of the next 16 outputs, and to the tile of the next group
  std::size_t stride;                    // floats from one output to the next in a tile
};

// Writes the sums of kOutputTiles x kGroups tiles. `packed` begins at the first group.
template <std::size_t kOutputTiles, std::size_t kGroups>
SUFFOLK_TARGET void multiply_panel(const Panel& panel, const float* packed, const SumTiles& sums) {
  const std::size_t blocks = panel.inputs / kTileInputs;
  const auto bytes = static_cast<long>(panel.stride * sizeof(BFloat16)), sum_bytes = static_cast<long>(sums.stride * sizeof(float));
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::size_t block = 0; block < blocks; ++block) {
    panel.fetch(block, kOutputTiles * kTile);
    const BFloat16* weights = panel.weights + block * kTileInputs;
    const float* rows = packed + block * kTileFloats;
    _tile_loadd(4, weights, bytes);
    _tile_loadd(6, rows, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kGroups == 2) {
      _tile_loadd(7, rows + blocks * kTileFloats, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kOutputTiles == 2) {
      _tile_loadd(5, weights + kTile * panel.stride, bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kGroups == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums.at, sum_bytes);
  if constexpr (kGroups == 2) _tile_stored(1, sums.at + sums.next_group, sum_bytes);
  if constexpr (kOutputTiles == 2) {
    _tile_stored(2, sums.at + sums.next_outputs, sum_bytes);
    if constexpr (kGroups == 2) _tile_stored(3, sums.at + sums.next_outputs + sums.next_group, sum_bytes);
  }
}

}  // namespace
}  // namespace suffolk::kernels
