#include "kernels/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace suffolk::kernels {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// Zeros if the processor lacks the leaf.
Registers cpuid(unsigned leaf, unsigned subleaf = 0) noexcept {
  Registers found;
  __get_cpuid_count(leaf, subleaf, &found.a, &found.b, &found.c, &found.d);
  return found;
}

// XCR0: the registers that the operating system saves when it switches threads.
std::uint64_t saved_registers() noexcept {
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

template <class T>
bool all(T of, T in) noexcept {
  return (in & of) == of;
}

Processor ask() noexcept {
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xe6;
  constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24, kAvx512Bf16 = 1U << 5;
  const Registers basic = cpuid(1), extended = cpuid(7);
  const std::uint64_t saved = all<unsigned>(bit_OSXSAVE, basic.c) ? saved_registers() : 0;
  Processor found;
  found.avx2 = all(kYmm, saved) && all<unsigned>(bit_AVX | bit_FMA | bit_F16C, basic.c) && all<unsigned>(bit_AVX2, extended.b);
  found.avx512 = found.avx2 && all(kZmm, saved) && all<unsigned>(bit_AVX512F, extended.b);
  found.avx512_bf16 = found.avx512 && all<unsigned>(bit_AVX512BW, extended.b) && all(kAvx512Bf16, cpuid(7, 1).a);
  found.amx = found.avx512_bf16 && all(kAmxBf16 | kAmxTile, extended.d);
  return found;
}

#else

Processor ask() noexcept { return {}; }

#endif

// `found` without the sets better than the set that SUFFOLK_INSTRUCTIONS names.
Processor limited(Processor found) noexcept {
  const char* const named = std::getenv("SUFFOLK_INSTRUCTIONS");
  const std::string_view best = named == nullptr ? "" : named;
  bool* const sets[] = {&found.avx2, &found.avx512, &found.avx512_bf16, &found.amx};
  constexpr std::string_view kNames[] = {"none", "avx2", "avx512", "avx512-bf16"};
  for (std::size_t kept = 0; kept < std::size(kNames); ++kept) {
    if (best != kNames[kept]) continue;
    for (std::size_t set = kept; set < std::size(sets); ++set) *sets[set] = false;
  }
  return found;
}

}  // namespace

const Processor& processor() noexcept {
  static const Processor asked = limited(ask());
  return asked;
}

}  // namespace suffolk::kernels
