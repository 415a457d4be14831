// bf16 by AVX-512's products of pairs: an instruction adds two products to each of 16 sums, and nothing is widened.
#if defined(__x86_64__)

#define SUFFOLK_TARGET __attribute__((target("avx512f,avx512bw,avx512bf16,avx2,fma,f16c")))
#include "kernels/avx512_set.h"

#include "kernels/processor.h"

namespace suffolk::kernels {
namespace {

// Two inputs of a row, or their weights. They take the place of one number of fp32 in the loops of tiles.h.
struct Pair {
  BFloat16 first, second;
};

struct Pairs : Avx512 {
  static constexpr const char* kName = "AVX-512 BF16";
  SUFFOLK_INLINE Vector load(const Pair* from) { return _mm512_loadu_ps(from); }
  SUFFOLK_INLINE Vector add_product(Vector a, Vector b, Vector sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};
using Lanes = Typed<Pairs, BFloat16, Pair>;

std::size_t packed_pairs(std::size_t row_count, std::size_t inputs) { return packed_size<Lanes>(row_count, inputs / 2); }

// As `pack`, with pairs.
SUFFOLK_TARGET void pack_all(const SkinnyGemm& product, float* packed) {
  const auto* rows = static_cast<const BFloat16*>(product.rows);
  const RowTiles tiles{.rows = product.row_count, .most = kTileRows<Lanes>};
  for (std::size_t tile = 0; tile < tiles.count; ++tile) {
    for (std::size_t k = 0; k < product.inputs; k += 2 * Lanes::kLanes) {
      const std::size_t left = std::min(2 * Lanes::kLanes, product.inputs - k);
      for (std::size_t r = 0; r < tiles.size(tile); ++r, packed += Lanes::kLanes) {
        if (left < 2 * Lanes::kLanes) std::fill_n(packed, Lanes::kLanes, 0.0F);
        std::memcpy(packed, rows + (tiles.begin(tile) + r) * product.row_stride + k, left * sizeof(BFloat16));
      }
    }
  }
}

SUFFOLK_TARGET void multiply_pairs(const SkinnyGemm& product, const float* packed, std::size_t begin, std::size_t end) {
  SkinnyGemm pairs = product;
  pairs.inputs /= 2;
  multiply<Lanes>(pairs, packed, begin, end);
}

constexpr Backend kPairs = {
    .name = Pairs::kName, .panel = kPanelOutputs, .most_rows = most_rows, .packed_size = packed_pairs, .pack = pack_all, .multiply = multiply_pairs};

}  // namespace

const Backend* avx512_pairs_backend(Element element, bool bytes, std::size_t inputs) noexcept {
  return processor().avx512_bf16 && element == Element::kBFloat16 && !bytes && inputs % 2 == 0 ? &kPairs : nullptr;
}

}  // namespace suffolk::kernels

#endif
