// Runs one function on several threads, with progress and early stop.
#pragma once

#include <algorithm>
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

#ifdef __linux__
#include <sched.h>
#endif

#include "core/error.h"

namespace suffolk {

// A function that receives the share of the work that is done, 0..1. It is called in the thread that asked for the work: at the
// start of each part, and every tenth of a second. If it throws, the work ends with this exception.
using Progress = std::function<void(double)>;

// The progress of a piece of work, shared by its threads. The threads return soon after `stop` is set.
struct Work {
  std::atomic<std::uint64_t> done = 0;
  std::uint64_t total = 0;
  std::atomic<bool> stop = false;
};

// The number of cores that the calling thread, and the threads that it starts, may run on. A process may be bound to fewer cores
// than the machine has, and hardware_concurrency counts all of them. More threads than cores would only wait for each other.
inline unsigned usable_cores() {
#ifdef __linux__
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) == 0) return static_cast<unsigned>(std::max(1, CPU_COUNT(&cores)));
#endif
  return std::max(1U, std::thread::hardware_concurrency());  // also on a machine with more cores than fit in a cpu_set_t
}

// The number of threads to use: `wanted`, or if it is 0, one for each core that the calling thread may run on.
inline unsigned thread_count(unsigned wanted) { return wanted != 0 ? wanted : usable_cores(); }

// Throws kResourceExhausted for a thread that the system refuses.
[[noreturn]] inline void fail_thread(const std::system_error& error) {
  fail(Code::kResourceExhausted, "no further thread can be started: ", error.what(),
       "; give fewer --threads, or raise the limit of processes (ulimit -u)");
}

// Calls `run(thread)` for thread = 0..threads-1, each on its own thread, and `progress` in the calling thread. When all calls have
// ended, returns, or rethrows the first exception of a thread or of `progress`. No call of `run` begins before all threads are
// started, so the calls may wait for each other. If a thread cannot be started, `run` is not called and kResourceExhausted is
// thrown.
template <typename Run>
void run_parallel(unsigned threads, Work& work, const Progress& progress, const Run& run) {
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr failure;
  unsigned running = threads;
  bool complete = false;
  std::vector<std::jthread> pool;
  std::unique_lock lock(mutex);  // threads wait for this lock until all are started; after an error it is released before the threads are joined
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
  } catch (const std::system_error& error) { fail_thread(error); }
  complete = true;
  do {
    if (!progress || work.stop) continue;
    lock.unlock();
    std::exception_ptr refused;
    try {
      progress(work.total == 0 ? 0.0 : static_cast<double>(work.done.load()) / static_cast<double>(work.total));
    } catch (...) { refused = std::current_exception(); }
    lock.lock();
    if (refused) {
      work.stop = true;
      failure = refused;
    }
  } while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; }));
  lock.unlock();
  pool.clear();  // joins the threads
  if (failure) std::rethrow_exception(failure);
}

}  // namespace suffolk
