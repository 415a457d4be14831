#include "kernels/skinny_gemm.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/workers.h"

namespace suffolk::kernels {
namespace {

constexpr std::size_t kPieces = 8;            // per thread, so that a delayed thread does not delay the others
constexpr std::size_t kLeastWork = 1U << 16;  // multiplications for which another thread is worth its start
constexpr std::size_t kAlignment = 64;        // alignment of packed rows: a vector in two cache lines takes twice as long to read

const Backend* best_backend(Element element, bool bytes, std::size_t inputs) noexcept {
  for (const Backend* backend : {avx512_pairs_backend(element, bytes, inputs), avx512_backend(element, bytes), avx2_backend(element, bytes)}) {
    if (backend != nullptr) return backend;
  }
  return portable_backend(element, bytes);
}

const Backend& best_backend(const SkinnyGemm& product) noexcept {
  const Backend* backend = amx_backend(product);
  return backend != nullptr ? *backend : *best_backend(product.element, product.scales != nullptr, product.inputs);
}

std::size_t element_bytes(Element element) noexcept { return element == Element::kFloat32 ? 4 : 2; }

void multiply_few(const Backend& backend, const SkinnyGemm& product, unsigned threads) {
  thread_local std::vector<float> kept;  // kept between calls, because a decoding step makes more than a hundred
  kept.resize(std::max(kept.size(), backend.packed_size(product.row_count, product.inputs) + kAlignment / sizeof(float)));
  void* aligned = kept.data();
  std::size_t space = kept.size() * sizeof(float);
  auto* const packed = static_cast<float*>(std::align(kAlignment, kAlignment, aligned, space));  // this thread's memory, which the others read
  backend.pack(product, packed);
  const std::size_t panels = (product.outputs + backend.panel - 1) / backend.panel;
  const std::size_t useful = std::max<std::size_t>(1, product.row_count * product.inputs * product.outputs / kLeastWork);
  const auto helpers = static_cast<unsigned>(std::min<std::size_t>(threads, useful));
  const std::size_t pieces = helpers == 1 ? 1 : std::min(panels, kPieces * helpers);
  share(pieces, helpers, [&](std::size_t piece) {
    const std::size_t begin = panels * piece / pieces * backend.panel, end = panels * (piece + 1) / pieces * backend.panel;
    backend.multiply(product, packed, begin, std::min(end, product.outputs));
  });
}

}  // namespace

const char* instructions(Element element, std::size_t inputs, std::size_t outputs) noexcept {
  SkinnyGemm product{};
  product.element = element;
  product.inputs = inputs;
  product.outputs = outputs;
  return best_backend(product).name;
}

bool supports(Element element) noexcept { return best_backend(element, false, 0) != nullptr; }

void skinny_gemm(const SkinnyGemm& product, unsigned threads) {
  const Backend& backend = best_backend(product);
  const std::size_t bytes = element_bytes(product.element), most = backend.most_rows(product.inputs);
  for (std::size_t row = 0; row < product.row_count; row += most) {
    SkinnyGemm few = product;
    few.rows = static_cast<const std::byte*>(product.rows) + row * product.row_stride * bytes;
    few.out = static_cast<std::byte*>(product.out) + row * product.outputs * bytes;
    few.row_count = std::min(most, product.row_count - row);
    multiply_few(backend, few, threads);
  }
}

}  // namespace suffolk::kernels
