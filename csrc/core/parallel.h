// Runs one function on several threads, with progress and a common end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace suffolk {

// Told the share done (0..1) from the calling thread every tenth of a second; may throw, which ends the work and leaves
// through the function that was called.
using Progress = std::function<void(double)>;

// How far a piece of work is, shared by its threads. Workers return soon once `stop` is set.
struct Work {
  std::atomic<std::uint64_t> done = 0;
  std::uint64_t total = 0;
  std::atomic<bool> stop = false;
};

// Runs `run(thread)` for thread = 0..threads-1, each on its own thread, telling `progress` meanwhile. Returns when all have;
// rethrows what one of them or `progress` threw.
template <typename Run>
void run_parallel(unsigned threads, Work& work, const Progress& progress, const Run& run) {
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr failure;
  unsigned running = threads;
  std::vector<std::jthread> pool;
  for (unsigned thread = 0; thread < threads; ++thread) {
    pool.emplace_back([&, thread] {
      std::exception_ptr thrown;
      try {
        run(thread);
      } catch (...) {
        thrown = std::current_exception();
        work.stop = true;
      }
      const std::lock_guard lock(mutex);
      if (thrown && !failure) failure = thrown;
      --running;
      finished.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
    if (!progress || work.stop) continue;
    lock.unlock();
    std::exception_ptr refused;
    try {
      progress(work.total == 0 ? 1.0 : static_cast<double>(work.done.load()) / static_cast<double>(work.total));
    } catch (...) {
      refused = std::current_exception();
    }
    lock.lock();
    if (refused) {
      work.stop = true;
      failure = refused;
    }
  }
  lock.unlock();
  pool.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace suffolk
