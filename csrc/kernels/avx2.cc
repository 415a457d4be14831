#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/processor.h"

#define SUFFOLK_TARGET __attribute__((target("avx2,fma,f16c")))
#include "kernels/attention_tiles.h"
#include "kernels/tiles.h"

#define SUFFOLK_INLINE SUFFOLK_TARGET __attribute__((always_inline)) static inline

namespace suffolk::kernels {
namespace {

SUFFOLK_INLINE __m128i read_halves(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

struct Avx2 : Scalars {
  static constexpr const char* kName = "AVX2";
  using Vector = __m256;
  static constexpr std::size_t kLanes = 8;
  static constexpr std::array<std::size_t, 6> kTileOutputs = {4, 4, 3, 3, 2, 2};  // measured fastest with 16 registers
  static constexpr std::size_t kScoreRows = 2;

  SUFFOLK_INLINE Vector read(const float* from) { return _mm256_loadu_ps(from); }
  SUFFOLK_INLINE void write(float* to, Vector from) { _mm256_storeu_ps(to, from); }
  SUFFOLK_INLINE Vector spread(float value) { return _mm256_set1_ps(value); }
  SUFFOLK_INLINE Vector add_product(Vector a, Vector b, Vector sum) { return _mm256_fmadd_ps(a, b, sum); }
  SUFFOLK_INLINE Vector load(const float* from) { return read(from); }
  SUFFOLK_INLINE Vector load(const BFloat16* from) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(read_halves(from)), 16)); }
  SUFFOLK_INLINE Vector load(const Float16* from) { return _mm256_cvtph_ps(read_halves(from)); }
  SUFFOLK_INLINE Vector load(const std::int8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
  using Scalars::narrow, Scalars::widen;
  SUFFOLK_INLINE float widen(Float16 value) { return _cvtsh_ss(value.bits); }
  SUFFOLK_INLINE void narrow(float value, Float16& to) { to.bits = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
  SUFFOLK_INLINE void prefetch(const std::byte* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0); }

  static constexpr std::size_t kTotals = 8;
  SUFFOLK_INLINE void total(const float* sums, float* totals) {
    Vector pairs[4], fours[2];
    for (std::size_t i = 0; i < 4; ++i) pairs[i] = _mm256_hadd_ps(read(sums + 2 * i * kLanes), read(sums + (2 * i + 1) * kLanes));
    for (std::size_t i = 0; i < 2; ++i) fours[i] = _mm256_hadd_ps(pairs[2 * i], pairs[2 * i + 1]);  // of each half of 4 vectors
    write(totals, _mm256_add_ps(_mm256_permute2f128_ps(fours[0], fours[1], 0x20), _mm256_permute2f128_ps(fours[0], fours[1], 0x31)));
  }
};

}  // namespace

const Backend* avx2_backend(Element element, bool bytes) noexcept { return processor().avx2 ? backend_of<Avx2>(element, bytes) : nullptr; }

const AttentionBackend* avx2_attention(Element element) noexcept { return processor().avx2 ? attention_of<Avx2>(element) : nullptr; }

}  // namespace suffolk::kernels

#endif
