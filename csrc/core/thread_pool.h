// A pool of threads that share the work of one call.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include <sys/types.h>

namespace suffolk {

// Up to `threads` threads, including the calling one, that work on independent pieces. The other threads start with the first call
// that has work for them, and end with the pool. Thread-safe: any number of threads may call one pool at the same time.
//
// The threads exist only in the process that first used the pool. In a child that is forked later, the calling thread does all
// of the work. A child that is forked before the first use starts its own threads.
class ThreadPool {
 public:
  // REQUIRES: threads >= 1
  explicit ThreadPool(unsigned threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  // Calls work(0) ... work(count - 1), each once, in any order, and returns when all are done. A thread takes `grain`
  // neighbours at a time; if count <= grain, no other thread is woken. If a call of `work` throws, no further calls begin and the
  // first exception is rethrown here. Throws kResourceExhausted if no thread can be started. REQUIRES: grain >= 1
  void parallel_for(std::size_t count, std::size_t grain, const std::function<void(std::size_t)>& work);

 private:
  struct State;

  bool owned() noexcept;
  void start(State& state) const;

  unsigned threads_;
  std::atomic<pid_t> owner_ = 0;
  std::shared_ptr<State> state_;  // shared with the threads, which end shortly after the pool
};

}  // namespace suffolk
