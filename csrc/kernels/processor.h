// Instructions beyond the architecture's baseline that this processor has and the operating system allows. The processor itself is
// asked: __builtin_cpu_supports asks the compiler's library, and some of these libraries answer no to everything.
#pragma once

namespace suffolk::kernels {

struct Processor {
  bool avx2 = false;    // AVX2, FMA and F16C
  bool avx512 = false;  // these, and AVX-512F
  bool amx = false;     // these, AVX-512BW, and AVX-512 and AMX for bf16; Linux enables it only for processes that ask
};

// Always the same. Safe to call from any thread.
const Processor& processor() noexcept;

}  // namespace suffolk::kernels
