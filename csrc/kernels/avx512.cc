#if defined(__x86_64__)

#define SUFFOLK_TARGET __attribute__((target("avx512f,avx2,fma,f16c")))
#include "kernels/avx512_set.h"

#include "kernels/attention_tiles.h"
#include "kernels/processor.h"

namespace suffolk::kernels {

const Backend* avx512_backend(Element element, bool bytes) noexcept { return processor().avx512 ? backend_of<Avx512>(element, bytes) : nullptr; }

const AttentionBackend* avx512_attention(Element element) noexcept { return processor().avx512 ? attention_of<Avx512>(element) : nullptr; }

}  // namespace suffolk::kernels

#endif
