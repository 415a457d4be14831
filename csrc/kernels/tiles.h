// The loops that most backends of skinny_gemm.h share. Before a source file includes this header, it defines SUFFOLK_TARGET, the
// instructions that its functions may use. It then passes `backend_of` a class `Set` that extends `Scalars`:
//
//   const char* kName                   the name, for messages
//   Vector                              kLanes fp32 numbers
//   std::size_t kLanes                  8 or 16
//   kTileOutputs                        an array: how many outputs a tile of 1, 2, ... rows has; divisors of kPanelOutputs
//   Vector read(const float*)           addresses need no alignment
//   void write(float*, Vector)
//   Vector load(const T*)               kLanes numbers, widened; T is float, BFloat16, std::int8_t and, where supported, Float16
//   Vector add_product(a, b, sum)       a * b + sum, the same in every tile
//   std::size_t kTotals                 a divisor of kPanelOutputs * kMostRows
//   void total(const float*, float*)    the sum of each of kTotals vectors, always added in the same order
//   float widen(T), void narrow(float, T&)
//   void prefetch(const std::byte*)
//
// Everything is in an anonymous namespace: each file compiles its functions with its own instructions.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/backend.h"
#include "kernels/elements.h"

namespace suffolk::kernels {
namespace {

constexpr std::size_t kPanelOutputs = 12;  // outputs whose weights are read together; a multiple of every tile's outputs
constexpr std::size_t kBlockInputs = 768;  // 6 rows of this many inputs take 18 KiB, and stay in the L1 cache
constexpr std::size_t kStreamedRows = 2;   // up to this many rows, inputs are not cut into blocks, as long streams are read faster
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kMostRows = 64;  // the most rows at a time: their partial sums and inputs fit the caches

// Conversions of single numbers that need no special instructions.
struct Scalars {
  static float widen(float value) { return value; }
  static float widen(BFloat16 value) { return kernels::widen(value); }
  static void narrow(float value, float& to) { to = value; }
  static void narrow(float value, BFloat16& to) { kernels::narrow(value, to); }
};

// A set of instructions with the types of one product. `Value` is the type of rows, bias and outputs. `Weight` is the type of
// weights.
template <class Instructions, class ValueType, class WeightType>
struct Typed : Instructions {
  using Set = Instructions;
  using Value = ValueType;
  using Weight = WeightType;
};

// The number of rows of the largest tile, whose partial sums fit the registers.
template <class Lanes>
constexpr std::size_t kTileRows = Lanes::kTileOutputs.size();

// Divides rows into tiles of nearly equal size. A tile has at most `most` rows.
struct RowTiles {
  std::size_t rows, most;
  std::size_t count = (rows + most - 1) / most;

  std::size_t begin(std::size_t tile) const { return rows * tile / count; }
  std::size_t size(std::size_t tile) const { return begin(tile + 1) - begin(tile); }
};

// The weights to prefetch while a tile is computed: `lines` cache lines of the next block, for each output.
struct Ahead {
  const std::byte* at = nullptr;
  std::size_t lines = 0;
};

// One block of inputs for one tile of rows.
template <class Lanes>
struct Strip {
  const typename Lanes::Weight* weights;  // weights of the first output
  std::size_t inputs;                     // distance from one output's weights to the next output's
  const float* packed;                    // inputs of the first row
  std::size_t steps;                      // number of whole steps of kLanes inputs
  std::size_t rest;                       // number of inputs after these steps, fewer than kLanes
  float* sums;                            // [outputs, row_count, kLanes], from the first output and row on
  std::size_t row_count;
  Ahead ahead;
};

// Adds a strip's products to kOutputs x kRows partial sums, which are kept in registers.
template <class Lanes, std::size_t kOutputs, std::size_t kRows>
SUFFOLK_TARGET void add_tile(const Strip<Lanes>& strip) {
  using Weight = typename Lanes::Weight;
  using Vector = typename Lanes::Vector;
  constexpr std::size_t kLanes = Lanes::kLanes;
  Vector sums[kOutputs][kRows];
#pragma GCC unroll 8
  for (std::size_t o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r) sums[o][r] = Lanes::read(strip.sums + (o * strip.row_count + r) * kLanes);
  }
  const auto add = [&sums](const Weight* weights, std::size_t inputs, const float* packed) SUFFOLK_TARGET __attribute__((always_inline)) {
    Vector weight[kOutputs];
#pragma GCC unroll 8
    for (std::size_t o = 0; o < kOutputs; ++o) weight[o] = Lanes::load(weights + o * inputs);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector x = Lanes::read(packed + r * kLanes);
#pragma GCC unroll 8
      for (std::size_t o = 0; o < kOutputs; ++o) sums[o][r] = Lanes::add_product(weight[o], x, sums[o][r]);
    }
  };
  const std::size_t lines = strip.ahead.lines, stretch = lines == 0 ? strip.steps : (strip.steps + lines - 1) / lines;
  for (std::size_t step = 0, line = 0; step < strip.steps; ++line) {
    if (line < lines) {
      for (std::size_t o = 0; o < kOutputs; ++o) Lanes::prefetch(strip.ahead.at + o * strip.inputs * sizeof(Weight) + line * kCacheLine);
    }
    const std::size_t end = std::min(strip.steps, step + stretch);
#pragma GCC unroll 2
    for (; step < end; ++step) add(strip.weights + step * kLanes, strip.inputs, strip.packed + step * kRows * kLanes);
  }
  if (strip.rest != 0) {  // padded with zeros, as the packed rows are
    Weight last[kOutputs][kLanes] = {};
    for (std::size_t o = 0; o < kOutputs; ++o) {
      std::memcpy(last[o], strip.weights + o * strip.inputs + strip.steps * kLanes, strip.rest * sizeof(Weight));
    }
    add(last[0], kLanes, strip.packed + strip.steps * kRows * kLanes);
  }
#pragma GCC unroll 8
  for (std::size_t o = 0; o < kOutputs; ++o) {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r) Lanes::write(strip.sums + (o * strip.row_count + r) * kLanes, sums[o][r]);
  }
}

// Adds a strip's products for any number of outputs.
template <class Lanes, std::size_t kOutputs, std::size_t kRows>
SUFFOLK_TARGET void add_outputs(Strip<Lanes> strip, std::size_t outputs) {
  const auto advance = [&strip](std::size_t by) {
    strip.weights += by * strip.inputs;
    strip.sums += by * strip.row_count * Lanes::kLanes;
    if (strip.ahead.lines != 0) strip.ahead.at += by * strip.inputs * sizeof(typename Lanes::Weight);
  };
  for (; outputs >= kOutputs; outputs -= kOutputs, advance(kOutputs)) add_tile<Lanes, kOutputs, kRows>(strip);
  for (; outputs > 0; --outputs, advance(1)) add_tile<Lanes, 1, kRows>(strip);
}

// Adds the products of a tile of `rows` rows, at most kRows.
template <class Lanes, std::size_t kRows = kTileRows<Lanes>>
SUFFOLK_TARGET void add_rows(const Strip<Lanes>& strip, std::size_t outputs, std::size_t rows) {
  static_assert(kPanelOutputs % Lanes::kTileOutputs[kRows - 1] == 0);
  if constexpr (kRows > 1) {
    if (rows < kRows) return add_rows<Lanes, kRows - 1>(strip, outputs, rows);
  }
  add_outputs<Lanes, Lanes::kTileOutputs[kRows - 1], kRows>(strip, outputs);
}

template <class Lanes>
std::size_t padded(std::size_t inputs) {
  return (inputs + Lanes::kLanes - 1) / Lanes::kLanes * Lanes::kLanes;
}

template <class Lanes>
std::size_t packed_size(std::size_t row_count, std::size_t inputs) {
  return row_count * padded<Lanes>(inputs);
}

// Packs tile after tile. A tile holds kLanes inputs of each of its rows, then the next kLanes inputs of each row, and so on.
template <class Lanes>
SUFFOLK_TARGET void pack(const SkinnyGemm& product, float* packed) {
  constexpr std::size_t kLanes = Lanes::kLanes;
  const auto* rows = static_cast<const typename Lanes::Value*>(product.rows);
  const RowTiles tiles{.rows = product.row_count, .most = kTileRows<Lanes>};
  for (std::size_t tile = 0; tile < tiles.count; ++tile) {
    for (std::size_t k = 0; k < product.inputs; k += kLanes) {
      for (std::size_t r = 0; r < tiles.size(tile); ++r, packed += kLanes) {
        const auto* from = rows + (tiles.begin(tile) + r) * product.row_stride + k;
        if (product.inputs - k >= kLanes) {
          Lanes::write(packed, Lanes::load(from));
        } else {
          for (std::size_t i = 0; i < kLanes; ++i) packed[i] = k + i < product.inputs ? Lanes::widen(from[i]) : 0.0F;
        }
      }
    }
  }
}

// Adds up a panel's partial sums, [outputs, row_count, kLanes], and writes the product's outputs [begin, end), rounded.
template <class Lanes>
SUFFOLK_TARGET void finish(const SkinnyGemm& product, const float* sums, std::size_t begin, std::size_t end) {
  using Value = typename Lanes::Value;
  static_assert(kPanelOutputs * kMostRows % Lanes::kTotals == 0);
  float totals[kPanelOutputs * kMostRows];
  for (std::size_t i = 0; i < (end - begin) * product.row_count; i += Lanes::kTotals) Lanes::total(sums + i * Lanes::kLanes, totals + i);
  const auto* bias = static_cast<const Value*>(product.bias);
  auto* out = static_cast<Value*>(product.out);
  for (std::size_t m = 0; m < product.row_count; ++m) {  // a row's outputs lie together
    for (std::size_t n = begin; n < end; ++n) {
      float total = totals[(n - begin) * product.row_count + m];
      if constexpr (std::is_same_v<typename Lanes::Weight, std::int8_t>) total *= product.scales[n];
      Lanes::narrow(bias == nullptr ? total : total + Lanes::widen(bias[n]), out[m * product.outputs + n]);
    }
  }
}

template <class Lanes>
SUFFOLK_TARGET void multiply(const SkinnyGemm& product, const float* packed, std::size_t begin, std::size_t end) {
  using Weight = typename Lanes::Weight;
  constexpr std::size_t kLanes = Lanes::kLanes;
  const auto* weights = static_cast<const Weight*>(product.weights);
  const std::size_t inputs = product.inputs, all_steps = inputs / kLanes;
  const std::size_t blocks = product.row_count <= kStreamedRows || all_steps == 0 ? 1 : (inputs + kBlockInputs - 1) / kBlockInputs;
  const RowTiles tiles{.rows = product.row_count, .most = kTileRows<Lanes>};
  alignas(64) float sums[kPanelOutputs * kMostRows * kLanes];
  for (; begin < end; begin += kPanelOutputs) {
    const std::size_t outputs = std::min(end - begin, kPanelOutputs);
    std::fill_n(sums, (outputs * tiles.rows + Lanes::kTotals - 1) / Lanes::kTotals * Lanes::kTotals * kLanes, 0.0F);
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t first = all_steps * block / blocks, steps = all_steps * (block + 1) / blocks - first;
      const bool last = block + 1 == blocks;
      // While this block is computed, each tile prefetches its share of the next block. After the last block, this is a block of
      // the next panel.
      const std::size_t next_output = last ? begin + kPanelOutputs : begin, next_first = last ? 0 : first + steps;
      const bool more = next_output + outputs <= product.outputs;
      const std::size_t lines = more ? std::min(steps * kLanes, inputs - next_first * kLanes) * sizeof(Weight) / kCacheLine : 0;
      for (std::size_t tile = 0; tile < tiles.count; ++tile) {
        Strip<Lanes> strip{.weights = weights + begin * inputs + first * kLanes,
                           .inputs = inputs,
                           .packed = packed + tiles.begin(tile) * padded<Lanes>(inputs) + first * tiles.size(tile) * kLanes,
                           .steps = steps,
                           .rest = last ? inputs % kLanes : 0,
                           .sums = sums + tiles.begin(tile) * kLanes,
                           .row_count = tiles.rows,
                           .ahead = {}};
        const std::size_t line = lines * tile / tiles.count;
        strip.ahead.lines = lines * (tile + 1) / tiles.count - line;
        if (strip.ahead.lines != 0) {
          const Weight* next = weights + next_output * inputs + next_first * kLanes;
          strip.ahead.at = reinterpret_cast<const std::byte*>(next) + line * kCacheLine;
        }
        add_rows(strip, outputs, tiles.size(tile));
      }
    }
    finish<Lanes>(product, sums, begin, begin + outputs);
  }
}

inline std::size_t most_rows(std::size_t) { return kMostRows; }

template <class Lanes>
constexpr Backend kBackend = {.name = Lanes::kName,
                              .panel = kPanelOutputs,
                              .most_rows = most_rows,
                              .packed_size = packed_size<Lanes>,
                              .pack = pack<Lanes>,
                              .multiply = multiply<Lanes>};

template <class Set, class Value>
const Backend* backend_for(bool bytes) noexcept {
  return bytes ? &kBackend<Typed<Set, Value, std::int8_t>> : &kBackend<Typed<Set, Value, Value>>;
}

// The backend of a set of instructions; null for fp16 if the set cannot widen it.
template <class Set>
const Backend* backend_of(Element element, bool bytes) noexcept {
  if (element == Element::kFloat32) return backend_for<Set, float>(bytes);
  if (element == Element::kBFloat16) return backend_for<Set, BFloat16>(bytes);
  if constexpr (requires { Set::widen(Float16{}); }) return backend_for<Set, Float16>(bytes);
  return nullptr;
}

}  // namespace
}  // namespace suffolk::kernels
