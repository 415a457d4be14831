// Threads that share the work of one call.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include <sys/types.h>

namespace suffolk {

// Up to `threads` threads for work that falls into independent pieces, the calling thread included. The others are started
// by the first call that has work for them, and end with the pool. Any number of threads may use one pool at a time.
//
// The pool belongs to the process that first used it: in a child forked later its threads do not exist, and the calling
// thread does all of the work. A child forked before the first use has its own.
class ThreadPool {
 public:
  // REQUIRES: threads >= 1
  explicit ThreadPool(unsigned threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  // Calls work(0) ... work(count - 1), each once, in any order, `grain` neighbours at a time by one thread; returns when all
  // are done. No other thread is woken for count <= grain. If a call throws, the work ends and the first exception is
  // rethrown here. Throws kResourceExhausted when the system gives no thread. REQUIRES: grain >= 1
  void parallel_for(std::size_t count, std::size_t grain, const std::function<void(std::size_t)>& work);

 private:
  struct State;

  bool owned() noexcept;
  void start(State& state) const;

  unsigned threads_;
  std::atomic<pid_t> owner_ = 0;
  std::shared_ptr<State> state_;  // shared with the threads, which outlive the pool for a moment
};

}  // namespace suffolk
