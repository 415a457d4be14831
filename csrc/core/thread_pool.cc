#include "core/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/error.h"

namespace suffolk {
namespace {

// One call of parallel_for. It is on the caller's stack: no helper may touch it after `helpers` is 0.
struct Job {
  const std::function<void(std::size_t)>& work;
  std::size_t count;
  std::size_t grain;
  std::atomic<std::size_t> next = 0;
  std::size_t helpers = 0;  // guarded by the state's mutex, like `error`
  std::exception_ptr error;

  // Takes pieces until there are none.
  std::exception_ptr run() noexcept {
    try {
      for (std::size_t begin; (begin = next.fetch_add(grain)) < count;) {
        for (std::size_t i = begin; i < std::min(begin + grain, count); ++i) work(i);
      }
      return nullptr;
    } catch (...) {
      next = count;
      return std::current_exception();
    }
  }
};

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;  // a job was added, or `stop` was set
  std::condition_variable left;  // the last helper left a job
  std::deque<Job*> jobs;         // jobs with pieces that no thread has taken
  unsigned started = 0;
  bool stop = false;

  void leave(Job& job, const std::exception_ptr& error) {
    if (error && !job.error) job.error = error;
    std::erase(jobs, &job);
  }

  void help() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return stop || !jobs.empty(); });
      if (stop) return;
      Job& job = *jobs.front();
      ++job.helpers;
      lock.unlock();
      const std::exception_ptr error = job.run();
      lock.lock();
      leave(job, error);
      if (--job.helpers == 0) left.notify_all();
    }
  }
};

ThreadPool::ThreadPool(unsigned threads) : threads_(threads), state_(std::make_shared<State>()) {}

ThreadPool::~ThreadPool() {
  if (owner_ == 0 || !owned()) return;  // no threads to end; in a forked child, the mutex may stay locked forever
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
}

void ThreadPool::parallel_for(std::size_t count, std::size_t grain, const std::function<void(std::size_t)>& work) {
  if (count <= grain || threads_ == 1 || !owned()) {
    for (std::size_t i = 0; i < count; ++i) work(i);
    return;
  }
  Job job{.work = work, .count = count, .grain = grain, .error = nullptr};
  {
    const std::lock_guard lock(state_->mutex);
    start(*state_);
    state_->jobs.push_back(&job);
  }
  const std::size_t others = std::min<std::size_t>((count - 1) / grain, threads_ - 1);
  for (std::size_t i = 0; i < others; ++i) state_->wake.notify_one();
  const std::exception_ptr error = job.run();
  std::unique_lock lock(state_->mutex);
  state_->leave(job, error);
  state_->left.wait(lock, [&job] { return job.helpers == 0; });
  if (job.error) std::rethrow_exception(job.error);
}

bool ThreadPool::owned() noexcept {
  pid_t owner = 0;
  const pid_t self = ::getpid();
  return owner_.compare_exchange_strong(owner, self) || owner == self;
}

void ThreadPool::start(State& state) const {
  for (; state.started + 1 < threads_; ++state.started) {
    try {
      std::thread([shared = state_] { shared->help(); }).detach();
    } catch (const std::system_error& error) {
      fail(Code::kResourceExhausted, "no thread to search with: ", error.what(),
           "; raise the limit of processes (ulimit -u), or open the datastore with threads=1");
    }
  }
}

}  // namespace suffolk
