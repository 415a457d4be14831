// Runs one function on several threads, with progress and a common end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"

namespace suffolk {

// Called with the share done (0..1) from the calling thread, at the start of each part and every tenth of a second. If it throws, the
// work ends and the called function throws the same.
using Progress = std::function<void(double)>;

// How far a piece of work is, shared by its threads. Workers return soon once `stop` is set.
struct Work {
  std::atomic<std::uint64_t> done = 0;
  std::uint64_t total = 0;
  std::atomic<bool> stop = false;
};

// Throws kResourceExhausted for a thread that the system refuses.
[[noreturn]] inline void fail_thread(const std::system_error& error) {
  fail(Code::kResourceExhausted, "no further thread can be started: ", error.what(),
       "; give fewer --threads, or raise the limit of processes (ulimit -u)");
}

// Runs `run(thread)` for thread = 0..threads-1, each on its own thread, and calls `progress` meanwhile. Returns when all have
// returned; rethrows the first exception of a thread or of `progress`. No thread runs before all are started, so they may wait for
// each other. If one cannot be started, none runs and kResourceExhausted is thrown.
template <typename Run>
void run_parallel(unsigned threads, Work& work, const Progress& progress, const Run& run) {
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr failure;
  unsigned running = threads;
  bool complete = false;
  std::vector<std::jthread> pool;
  std::unique_lock lock(mutex);  // holds the threads back until all are there; let go, if one is not, before the others are joined
  const auto begin = [&](unsigned thread) {
    pool.emplace_back([&, thread] {
      {
        const std::lock_guard wait(mutex);
        if (!complete) return;
      }
      std::exception_ptr thrown;
      try {
        run(thread);
      } catch (...) {
        thrown = std::current_exception();
        work.stop = true;
      }
      const std::lock_guard end(mutex);
      if (thrown && !failure) failure = thrown;
      --running;
      finished.notify_one();
    });
  };
  try {
    for (unsigned thread = 0; thread < threads; ++thread) begin(thread);
  } catch (const std::system_error& error) {
    fail_thread(error);
  }
  complete = true;
  do {
    if (!progress || work.stop) continue;
    lock.unlock();
    std::exception_ptr refused;
    try {
      progress(work.total == 0 ? 0.0 : static_cast<double>(work.done.load()) / static_cast<double>(work.total));
    } catch (...) {
      refused = std::current_exception();
    }
    lock.lock();
    if (refused) {
      work.stop = true;
      failure = refused;
    }
  } while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; }));
  lock.unlock();
  pool.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace suffolk
