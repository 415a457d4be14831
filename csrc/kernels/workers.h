// Divides the pieces of a kernel among threads.
#pragma once

#include <cstddef>
#include <functional>

namespace suffolk::kernels {

// Calls work(0) ... work(count - 1), each once, in any order, on up to `threads` threads, the caller's included; returns when
// all are done. `work` must not throw. Throws kResourceExhausted when the system gives no thread.
//
// The threads are those of the OpenMP runtime that the process has loaded, as torch does, if there is one. A decoding step changes
// between torch's operators and these some hundred times; idle OpenMP workers spin, and a second pool would compete with them for
// the cores. Otherwise a ThreadPool is used. A forked child has neither, and the caller does all the work.
void share(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work);

}  // namespace suffolk::kernels
