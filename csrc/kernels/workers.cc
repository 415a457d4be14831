#include "kernels/workers.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "core/thread_pool.h"

namespace suffolk::kernels {
namespace {

// The entry point of libgomp for `#pragma omp parallel`; the runtimes of LLVM and Intel have it too.
using Parallel = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);

const pid_t kLoadedBy = ::getpid();

struct Pieces {
  std::size_t count;
  const std::function<void(std::size_t)>& work;
  std::atomic<std::size_t> next = 0;

  void take_all() {
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(i);
  }
};

Parallel find_parallel() noexcept { return reinterpret_cast<Parallel>(::dlsym(RTLD_DEFAULT, "GOMP_parallel")); }

ThreadPool& pool() {
  static ThreadPool threads(std::max(1U, std::thread::hardware_concurrency()));
  return threads;
}

}  // namespace

void share(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work) {
  static const Parallel parallel = find_parallel();
  Pieces pieces{.count = count, .work = work};
  threads = static_cast<unsigned>(std::min<std::size_t>(threads, count));
  if (threads <= 1 || ::getpid() != kLoadedBy) {
    pieces.take_all();
  } else if (parallel != nullptr) {
    parallel([](void* data) { static_cast<Pieces*>(data)->take_all(); }, &pieces, threads, 0);
  } else {
    pool().parallel_for(threads, 1, [&pieces](std::size_t) { pieces.take_all(); });
  }
}

}  // namespace suffolk::kernels
