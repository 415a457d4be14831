// The class `Avx512`: the AVX-512 instructions in the form that tiles.h and attention_tiles.h describe. A source file includes this
// header after those two.
#pragma once

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // false warnings of GCC 12 about its own header (bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "kernels/tiles.h"

#define SUFFOLK_INLINE SUFFOLK_TARGET __attribute__((always_inline)) static inline

namespace suffolk::kernels {
namespace {

SUFFOLK_INLINE __m256i read_halves(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

struct Avx512 : Scalars {
  static constexpr const char* kName = "AVX-512";
  using Vector = __m512;
  static constexpr std::size_t kLanes = 16;
  static constexpr std::array<std::size_t, 8> kTileOutputs = {4, 4, 4, 4, 4, 4, 3, 3};  // up to 24 of the 32 registers
  static constexpr std::size_t kScoreRows = 4;

  SUFFOLK_INLINE Vector read(const float* from) { return _mm512_loadu_ps(from); }
  SUFFOLK_INLINE void write(float* to, Vector from) { _mm512_storeu_ps(to, from); }
  SUFFOLK_INLINE Vector spread(float value) { return _mm512_set1_ps(value); }
  SUFFOLK_INLINE Vector add_product(Vector a, Vector b, Vector sum) { return _mm512_fmadd_ps(a, b, sum); }
  SUFFOLK_INLINE Vector load(const float* from) { return read(from); }
  SUFFOLK_INLINE Vector load(const BFloat16* from) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(read_halves(from)), 16)); }
  SUFFOLK_INLINE Vector load(const Float16* from) { return _mm512_cvtph_ps(read_halves(from)); }
  SUFFOLK_INLINE Vector load(const std::int8_t* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  using Scalars::narrow, Scalars::widen;
  SUFFOLK_INLINE float widen(Float16 value) { return _cvtsh_ss(value.bits); }
  SUFFOLK_INLINE void narrow(float value, Float16& to) { to.bits = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
  SUFFOLK_INLINE void prefetch(const std::byte* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0); }

  static constexpr std::size_t kTotals = 16;
  SUFFOLK_INLINE void total(const float* sums, float* totals) {
    Vector eight[8], four[4], two[2];  // partial sums: first two quarters of each vector, then one quarter
    for (std::size_t i = 0; i < 8; ++i) {
      const Vector a = read(sums + i * kLanes), b = read(sums + (i + 8) * kLanes);
      eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const Vector a = eight[i], b = eight[i + 4];
      four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const Vector a = four[2 * i], b = four[2 * i + 1];
      two[i] = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
    const Vector all = _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x44), _mm512_shuffle_ps(two[0], two[1], 0xee));
    write(totals, _mm512_shuffle_f32x4(all, all, 0xd8));  // the quarters of `all` begin with the sums 0, 8, 4 and 12
  }
};

}  // namespace
}  // namespace suffolk::kernels
