// bf16 by tile matrix instructions (AMX). Up to 32 rows take only the time to read the weights.
// GCC has the instructions in amxbf16intrin.h, clang in amxintrin.h.
#if defined(__x86_64__) && defined(__linux__) && (__has_include(<amxbf16intrin.h>) || __has_include(<amxintrin.h>))

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // false warnings of GCC 12 about its own header (bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/elements.h"
#include "kernels/processor.h"

#define SUFFOLK_TARGET __attribute__((target("amx-tile,amx-bf16,avx512f")))

namespace suffolk::kernels {
namespace {

constexpr std::size_t kTile = 16;  // outputs, rows, or pairs of inputs in a tile
constexpr std::size_t kTileInputs = 32;
constexpr std::size_t kTileFloats = kTile * kTile;
constexpr std::size_t kPanelTiles = 2;  // tiles of outputs that are read together
constexpr std::size_t kPanel = kPanelTiles * kTile;
constexpr std::size_t kAhead = 8;  // blocks of inputs between a prefetch and its use

// The configuration of the 8 tile registers: 16 rows of 64 bytes each.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

std::size_t groups_of(std::size_t row_count) { return (row_count + kTile - 1) / kTile; }

std::size_t packed_size(std::size_t row_count, std::size_t inputs) { return groups_of(row_count) * inputs / kTileInputs * kTileFloats; }

// Transposes 16 x 16 numbers of 32 bits.
SUFFOLK_TARGET inline __attribute__((always_inline)) void transpose(__m512i (&rows)[kTile]) {
  __m512i pairs[kTile], fours[kTile], eights[kTile];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kTile; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kTile; i += 4) {  // columns 0, 1, 2, 3 of each quarter, of 4 rows
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 4; ++i) {
    eights[i] = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0x88);  // quarters 0 and 2, of 8 rows
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

// Packs groups of 16 rows one after the other. A group consists of blocks of 32 inputs: [pair of inputs, row], padded with zero
// rows.
SUFFOLK_TARGET void pack(const SkinnyGemm& product, float* packed) {
  const auto* rows = static_cast<const BFloat16*>(product.rows);
  for (std::size_t first = 0; first < product.row_count; first += kTile) {
    const std::size_t count = std::min(kTile, product.row_count - first);
    for (std::size_t k = 0; k < product.inputs; k += kTileInputs, packed += kTileFloats) {
      __m512i block[kTile];
      for (std::size_t m = 0; m < kTile; ++m) {
        block[m] = m < count ? _mm512_loadu_si512(rows + (first + m) * product.row_stride + k) : _mm512_setzero_si512();
      }
      transpose(block);
      for (std::size_t pair = 0; pair < kTile; ++pair) _mm512_storeu_si512(packed + pair * kTile, block[pair]);
    }
  }
}

// One panel of weights, and the panel that is read next.
struct Panel {
  const BFloat16* weights;
  const BFloat16* next;  // the next panel, of as many outputs; null if there is none, or it is already prefetched
  std::size_t inputs;

  void fetch(std::size_t block, std::size_t outputs) const {
    const std::size_t blocks = inputs / kTileInputs, later = block + kAhead;
    if (later >= blocks && (next == nullptr || later - blocks >= blocks)) return;
    const BFloat16* from = later < blocks ? weights + later * kTileInputs : next + (later - blocks) * kTileInputs;
    for (std::size_t o = 0; o < outputs; ++o) __builtin_prefetch(from + o * inputs);
  }
};

// Writes sums[output tile, row group], a tile [16 outputs, 16 rows] each, for kOutputTiles x kGroups tiles. `packed` begins at the
// first group.
template <std::size_t kOutputTiles, std::size_t kGroups>
SUFFOLK_TARGET void multiply_panel(const Panel& panel, const float* packed, float* sums) {
  const std::size_t blocks = panel.inputs / kTileInputs;
  const auto bytes = static_cast<long>(panel.inputs * sizeof(BFloat16));
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
      _tile_loadd(5, weights + kTile * panel.inputs, bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kGroups == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + kTileFloats, 64);
  _tile_stored(2, sums + 2 * kTileFloats, 64);
  _tile_stored(3, sums + 3 * kTileFloats, 64);
}

// 16 numbers rounded as `narrow` does.
SUFFOLK_TARGET inline __m256i narrow_all(__m512i bits) {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __m512 values = _mm512_castsi512_ps(bits);
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
}

// Rounds `rows` rows of one tile of sums, [16 outputs, 16 rows], and writes them to the product.
SUFFOLK_TARGET void finish(const SkinnyGemm& product, const float* sums, std::size_t output, std::size_t row, std::size_t rows) {
  const auto* bias = static_cast<const BFloat16*>(product.bias);
  auto* out = static_cast<BFloat16*>(product.out) + row * product.outputs + output;
  __m512i totals[kTile];
  for (std::size_t n = 0; n < kTile; ++n) totals[n] = _mm512_loadu_si512(sums + n * kTile);
  transpose(totals);
  __m512 added = _mm512_setzero_ps();
  if (bias != nullptr) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bias + output));
    added = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  for (std::size_t m = 0; m < rows; ++m, out += product.outputs) {
    __m512i total = totals[m];
    if (bias != nullptr) total = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(total), added));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), narrow_all(total));
  }
}

SUFFOLK_TARGET void multiply(const SkinnyGemm& product, const float* packed, std::size_t begin, std::size_t end) {
  const TileShapes shapes;
  _tile_loadconfig(&shapes);
  const std::size_t groups = groups_of(product.row_count), group_floats = product.inputs / 2 * kTile;
  alignas(64) float sums[4 * kTileFloats];
  for (std::size_t output = begin; output < end; output += kPanel) {
    const std::size_t tiles = std::min(kPanelTiles, (end - output) / kTile), after = output + kPanel;
    Panel panel{.weights = static_cast<const BFloat16*>(product.weights) + output * product.inputs, .next = nullptr, .inputs = product.inputs};
    if (after + tiles * kTile <= product.outputs) panel.next = panel.weights + kPanel * product.inputs;
    for (std::size_t group = 0; group < groups; group += 2) {
      const std::size_t pair = std::min<std::size_t>(2, groups - group);
      const auto multiply_tiles = tiles == 2 ? (pair == 2 ? multiply_panel<2, 2> : multiply_panel<2, 1>) : (pair == 2 ? multiply_panel<1, 2> : multiply_panel<1, 1>);
      multiply_tiles(panel, packed + group * group_floats, sums);
      for (std::size_t tile = 0; tile < 2 * tiles; ++tile) {
        const std::size_t row = (group + tile % 2) * kTile;
        if (row < product.row_count) finish(product, sums + tile * kTileFloats, output + tile / 2 * kTile, row, std::min(kTile, product.row_count - row));
      }
      panel.next = nullptr;
    }
  }
  _tile_release();
}

bool may_use_tiles() noexcept {
  constexpr long kAskFor = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: Linux enables tiles only for processes that ask
  return processor().amx && ::syscall(SYS_arch_prctl, kAskFor, kTileData) == 0;
}

constexpr Backend kAmx = {.panel = kPanel, .packed_size = packed_size, .pack = pack, .multiply = multiply};

}  // namespace

const Backend* amx_backend(const SkinnyGemm& product) noexcept {
  static const bool can = may_use_tiles();
  const bool whole = product.inputs % kTileInputs == 0 && product.outputs % kTile == 0 && product.inputs != 0;
  return can && whole && product.element == Element::kBFloat16 && product.scales == nullptr ? &kAmx : nullptr;
}

}  // namespace suffolk::kernels

#else

#include "kernels/backend.h"

namespace suffolk::kernels {
const Backend* amx_backend(const SkinnyGemm&) noexcept { return nullptr; }
}  // namespace suffolk::kernels

#endif
