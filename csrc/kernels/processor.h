// The instruction sets beyond the architecture's baseline that this processor has and the operating system allows. The code uses
// the cpuid instruction. __builtin_cpu_supports would ask the compiler's library, and some of these libraries always answer no.
#pragma once

namespace suffolk::kernels {

struct Processor {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // all of the above, and AVX-512F
  bool avx512_bf16 = false;  // all of the above, AVX-512BW, and AVX-512 for bf16
  bool amx = false;          // all of the above, and AMX for bf16; Linux enables AMX only for processes that ask
};

// The result is always the same. Safe to call from any thread. For tests, the variable SUFFOLK_INSTRUCTIONS of the process names
// the best set that may be used: none, avx2, avx512, avx512-bf16 or amx. Any other value changes nothing.
const Processor& processor() noexcept;

}  // namespace suffolk::kernels
