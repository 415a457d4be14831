// bf16 by tile matrix instructions (AMX). Up to 32 rows take only the time to read the weights.
#if defined(__x86_64__) && defined(__linux__) && (__has_include(<amxbf16intrin.h>) || __has_include(<amxintrin.h>))

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "kernels/amx_tiles.h"
#include "kernels/backend.h"
#include "kernels/elements.h"
#include "kernels/processor.h"

namespace suffolk::kernels {
namespace {

constexpr std::size_t kPanel = kPanelTiles * kTile;
constexpr std::size_t kCachedInputs = 1U << 19;  // inputs of packed rows: 1 MiB

std::size_t groups_of(std::size_t row_count) { return (row_count + kTile - 1) / kTile; }

std::size_t packed_size(std::size_t row_count, std::size_t inputs) { return groups_of(row_count) * inputs / kTileInputs * kTileFloats; }

// Packs groups of 16 rows one after the other.
SUFFOLK_TARGET void pack(const SkinnyGemm& product, float* packed) {
  const auto* rows = static_cast<const BFloat16*>(product.rows);
  for (std::size_t first = 0; first < product.row_count; first += kTile, packed += product.inputs / kTileInputs * kTileFloats) {
    const auto row = [&](std::size_t m) { return first + m < product.row_count ? rows + (first + m) * product.row_stride : nullptr; };
    pack_group(row, product.inputs, packed);
  }
}

// Rounds `rows` rows of one tile of sums, [16 outputs, 16 rows], and writes them to the product.
SUFFOLK_TARGET void finish(const SkinnyGemm& product, const float* sums, std::size_t output, std::size_t row, std::size_t rows) {
  const auto* bias = static_cast<const BFloat16*>(product.bias);
  auto* out = static_cast<BFloat16*>(product.out) + row * product.outputs + output;
  __m512i totals[kTile];
  for (std::size_t n = 0; n < kTile; ++n) totals[n] = _mm512_loadu_si512(sums + n * kTile);
  transpose(totals);
  __m512 added = _mm512_set1_ps(-0.0F);  // changes no number
  if (bias != nullptr) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bias + output));
    added = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  for (std::size_t m = 0; m < rows; ++m, out += product.outputs) { write_narrow(out, _mm512_add_ps(_mm512_castsi512_ps(totals[m]), added)); }
}

SUFFOLK_TARGET void multiply(const SkinnyGemm& product, const float* packed, std::size_t begin, std::size_t end) {
  configure_tiles();
  const std::size_t groups = groups_of(product.row_count), group_floats = product.inputs / 2 * kTile;
  alignas(64) float sums[4 * kTileFloats];
  const SumTiles tile_sums{.at = sums, .next_outputs = 2 * kTileFloats, .next_group = kTileFloats, .stride = kTile};
  for (std::size_t output = begin; output < end; output += kPanel) {
    const std::size_t tiles = std::min(kPanelTiles, (end - output) / kTile), after = output + kPanel;
    Panel panel{.weights = static_cast<const BFloat16*>(product.weights) + output * product.inputs,
                .next = nullptr,
                .inputs = product.inputs,
                .stride = product.inputs};
    if (after + tiles * kTile <= product.outputs) panel.next = panel.weights + kPanel * product.inputs;
    for (std::size_t group = 0; group < groups; group += 2) {
      const std::size_t pair = std::min<std::size_t>(2, groups - group);
      const auto multiply_tiles =
          tiles == 2 ? (pair == 2 ? multiply_panel<2, 2> : multiply_panel<2, 1>) : (pair == 2 ? multiply_panel<1, 2> : multiply_panel<1, 1>);
      multiply_tiles(panel, packed + group * group_floats, tile_sums);
      for (std::size_t tile = 0; tile < 2 * tiles; ++tile) {
        const std::size_t row = (group + tile % 2) * kTile;
        if (row < product.row_count)
          finish(product, sums + tile * kTileFloats, output + tile / 2 * kTile, row, std::min(kTile, product.row_count - row));
      }
      panel.next = nullptr;
    }
  }
  _tile_release();
}

// The number of packed rows that fit the L2 cache.
std::size_t most_rows(std::size_t inputs) { return std::clamp<std::size_t>(kCachedInputs / inputs / (2 * kTile) * (2 * kTile), 2 * kTile, 512); }

constexpr Backend kAmx = {.name = "AMX", .panel = kPanel, .most_rows = most_rows, .packed_size = packed_size, .pack = pack, .multiply = multiply};

}  // namespace

bool may_use_tiles() noexcept {
  constexpr long kAskFor = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: Linux enables tiles only for processes that ask
  static const bool can = processor().amx && ::syscall(SYS_arch_prctl, kAskFor, kTileData) == 0;
  return can;
}

const Backend* amx_backend(const SkinnyGemm& product) noexcept {
  const bool whole = product.inputs % kTileInputs == 0 && product.outputs % kTile == 0 && product.inputs != 0;
  return may_use_tiles() && whole && product.element == Element::kBFloat16 && product.scales == nullptr ? &kAmx : nullptr;
}

}  // namespace suffolk::kernels

#else

#include "kernels/backend.h"

namespace suffolk::kernels {
const Backend* amx_backend(const SkinnyGemm&) noexcept { return nullptr; }
}  // namespace suffolk::kernels

#endif
