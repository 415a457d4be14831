// Divides the pieces of a kernel among threads.
#pragma once

#include <cstddef>
#include <functional>

namespace suffolk::kernels {

// Calls work(0) ... work(count - 1), each once, in any order, on up to `threads` threads, including the caller's. Returns when
// all are done. `work` must not throw. Throws kResourceExhausted if no thread can be started.
//
// If the process has loaded an OpenMP runtime, as torch does, the threads of OpenMP are used. A decoding step alternates between
// torch's operators and these kernels more than a hundred times. Idle OpenMP threads spin, so a second pool would compete with them
// for the cores. Without OpenMP, a ThreadPool is used. In a forked child, OpenMP and the ThreadPool have no threads, and the caller
// does all the work.
void share(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work);

}  // namespace suffolk::kernels
