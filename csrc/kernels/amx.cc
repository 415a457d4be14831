// bf16 by tile matrix instructions (AMX). Up to 32 rows take only the time to read the weights.
#if defined(__x86_64__) && defined(__linux__) && __has_include(<amxbf16intrin.h>)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

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

// Packs groups of 16 rows one after the other. A group consists of blocks of 32 inputs: [pair of inputs, row], padded with zero
// rows.
void pack(const SkinnyGemm& product, float* packed) {
  const auto* rows = static_cast<const BFloat16*>(product.rows);
  const std::size_t pairs = product.inputs / 2;
  std::fill_n(packed, packed_size(product.row_count, product.inputs), 0.0F);
  for (std::size_t m = 0; m < product.row_count; ++m) {
    float* to = packed + m / kTile * pairs * kTile + m % kTile;
    for (std::size_t pair = 0; pair < pairs; ++pair) std::memcpy(to + pair * kTile, rows + m * product.row_stride + 2 * pair, sizeof(float));
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

// Rounds `rows` rows of one tile of sums, [16 outputs, 16 rows], and writes them to the product.
SUFFOLK_TARGET void finish(const SkinnyGemm& product, const float* sums, std::size_t output, std::size_t row, std::size_t rows) {
  const auto* bias = static_cast<const BFloat16*>(product.bias);
  auto* out = static_cast<BFloat16*>(product.out) + row * product.outputs + output;
  for (std::size_t m = 0; m < rows; ++m, out += product.outputs) {
    for (std::size_t n = 0; n < kTile; ++n) {
      const float total = sums[n * kTile + m];
      narrow(bias == nullptr ? total : total + widen(bias[output + n]), out[n]);
    }
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
