#include "core/sort.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace suffolk {
namespace {

// Below this many suffixes a direct comparison beats loading keys.
constexpr std::size_t kSmallRun = 12;

// Runs `work(thread)` on `threads` threads, telling `progress` of `done` / `total` meanwhile. Rethrows what a worker or
// `progress` threw, after all have stopped; workers are expected to return soon once `stop` is set.
template <typename Work>
void run_parallel(unsigned threads, const Work& work, const Progress& progress, const std::atomic<std::uint64_t>& done,
                  std::uint64_t total, std::atomic<bool>& stop) {
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr failure;
  unsigned running = threads;
  std::vector<std::jthread> pool;
  const auto fail = [&] {
    stop = true;
    if (!failure) failure = std::current_exception();
  };
  for (unsigned thread = 0; thread < threads; ++thread) {
    pool.emplace_back([&, thread] {
      try {
        work(thread);
      } catch (...) {
        const std::lock_guard lock(mutex);
        fail();
      }
      const std::lock_guard lock(mutex);
      --running;
      finished.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
    if (!progress || stop) continue;
    lock.unlock();
    std::exception_ptr refused;
    try {
      progress(total == 0 ? 1.0 : static_cast<double>(done.load()) / static_cast<double>(total));
    } catch (...) {
      refused = std::current_exception();
    }
    lock.lock();
    if (refused) {
      stop = true;
      failure = refused;
    }
  }
  lock.unlock();
  pool.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

template <typename Token>
class Sorter {
 public:
  Sorter(std::span<const Token> tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads,
         std::span<std::uint32_t> positions, std::span<std::uint32_t> first_ranks, const Progress& progress)
      : tokens_(tokens),
        vocab_size_(vocab_size),
        order_depth_(order_depth),
        threads_(threads),
        positions_(positions),
        first_ranks_(first_ranks),
        progress_(progress) {}

  void run() {
    fill_buckets();
    sort_buckets();
  }

 private:
  static constexpr Token kSeparator = std::numeric_limits<Token>::max();
  static constexpr std::uint32_t kKeyTokens = 8 / sizeof(Token);  // tokens in an 8-byte key
  static constexpr unsigned kTokenBits = 8 * sizeof(Token);

  struct Keyed {
    std::uint64_t key;
    std::uint32_t position;
    bool operator<(const Keyed& other) const { return key != other.key ? key < other.key : position < other.position; }
  };

  // Counting sort by first token; within a bucket the positions rise. Each thread takes one stretch of the text.
  void fill_buckets() {
    const std::size_t stretch = (tokens_.size() + threads_ - 1) / threads_;
    std::vector<std::vector<std::uint32_t>> counts(threads_);
    const auto each_token = [&](unsigned thread, const auto& visit) {
      const std::size_t begin = std::min(tokens_.size(), thread * stretch), end = std::min(tokens_.size(), begin + stretch);
      for (std::size_t at = begin; at < end; ++at) {
        if (tokens_[at] != kSeparator) visit(at);
      }
    };
    const auto count = [&](unsigned thread) {
      counts[thread].assign(vocab_size_, 0);
      each_token(thread, [&](std::size_t at) {
        if (tokens_[at] >= vocab_size_) refuse(at);
        ++counts[thread][tokens_[at]];
      });
    };
    run_parallel(threads_, count, progress_, done_, positions_.size(), stop_);
    std::uint32_t rank = 0;
    for (std::uint32_t token = 0; token < vocab_size_; ++token) {
      first_ranks_[token] = rank;
      for (auto& of_thread : counts) rank += std::exchange(of_thread[token], rank);
    }
    first_ranks_[vocab_size_] = rank;
    const auto scatter = [&](unsigned thread) {
      each_token(thread, [&](std::size_t at) { positions_[counts[thread][tokens_[at]]++] = static_cast<std::uint32_t>(at); });
    };
    run_parallel(threads_, scatter, progress_, done_, positions_.size(), stop_);
  }

  void refuse(std::size_t at) const {
    throw Error(Code::kInvalidArgument, "token id " + std::to_string(tokens_[at]) + " at position " + std::to_string(at) +
                                            " is out of range; the vocabulary has " + std::to_string(vocab_size_) +
                                            " ids: give the tokenizer that made the tokens, or a larger vocabulary");
  }

  // Buckets go to the threads heaviest first, so that none is left alone with a heavy one at the end.
  void sort_buckets() {
    std::vector<std::uint32_t> order(vocab_size_);
    std::iota(order.begin(), order.end(), 0U);
    const auto size = [&](std::uint32_t token) { return first_ranks_[token + 1] - first_ranks_[token]; };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return size(a) > size(b); });
    std::atomic<std::size_t> next = 0;
    const auto work = [&](unsigned) {
      std::vector<Keyed> scratch;
      for (std::size_t i = next++; i < order.size() && size(order[i]) > 0 && !stop_; i = next++) {
        const auto bucket = positions_.subspan(first_ranks_[order[i]], size(order[i]));
        scratch.resize(std::max(scratch.size(), bucket.size()));
        sort_run(bucket, 1, scratch.data());
        done_ += bucket.size();
      }
    };
    run_parallel(threads_, work, progress_, done_, positions_.size(), stop_);
  }

  // Sorts a run of suffixes that agree in their first `depth` tokens, none of which ends there. Positions rise on entry, and
  // among equals also on return.
  void sort_run(std::span<std::uint32_t> run, std::uint32_t depth, Keyed* scratch) {
    if (run.size() < 2 || depth >= order_depth_ || stop_) return;
    if (run.size() <= kSmallRun) {
      insertion_sort(run, depth);
      return;
    }
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (i + 8 < run.size()) __builtin_prefetch(&tokens_[std::min<std::size_t>(run[i + 8] + depth, tokens_.size() - 1)]);
      scratch[i] = {key(run[i], depth), run[i]};
    }
    std::sort(scratch, scratch + run.size());
    // The keys are needed no more once the runs of equals are known; a deeper call writes over the scratch of its own run only.
    for (std::size_t begin = 0; begin < run.size();) {
      std::size_t end = begin;
      while (end < run.size() && scratch[end].key == scratch[begin].key) {
        run[end] = scratch[end].position;
        ++end;
      }
      const bool ended = static_cast<Token>(scratch[begin].key) == kSeparator;
      if (!ended) sort_run(run.subspan(begin, end - begin), depth + kKeyTokens, scratch + begin);
      begin = end;
    }
  }

  // The next tokens as one number that sorts like them. Behind a document's end all is separator, so the last token tells
  // whether the document has ended; beyond order_depth all is zero.
  std::uint64_t key(std::uint32_t position, std::uint32_t depth) const {
    std::uint64_t value = 0;
    const Token* at = tokens_.data() + position + depth;
    const std::uint32_t known = std::min(kKeyTokens, order_depth_ - depth);
    for (std::uint32_t i = 0; i < kKeyTokens; ++i) {
      const Token token = i < known ? *at : Token{0};
      value = value << kTokenBits | token;
      if (token != kSeparator) ++at;
    }
    return value;
  }

  void insertion_sort(std::span<std::uint32_t> run, std::uint32_t depth) {
    for (std::size_t i = 1; i < run.size(); ++i) {
      const std::uint32_t position = run[i];
      std::size_t to = i;
      for (; to > 0 && precedes(position, run[to - 1], depth); --to) run[to] = run[to - 1];
      run[to] = position;
    }
  }

  bool precedes(std::uint32_t a, std::uint32_t b, std::uint32_t depth) const {
    for (; depth < order_depth_; ++depth) {
      const Token x = tokens_[a + depth], y = tokens_[b + depth];
      if (x != y) return x < y;
      if (x == kSeparator) break;
    }
    return false;  // equal: the earlier position stays in front
  }

  std::span<const Token> tokens_;
  std::uint32_t vocab_size_;
  std::uint32_t order_depth_;
  unsigned threads_;
  std::span<std::uint32_t> positions_;
  std::span<std::uint32_t> first_ranks_;
  const Progress& progress_;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> stop_ = false;
};

}  // namespace

template <typename Token>
void sort_suffixes(std::span<const Token> tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads,
                   std::span<std::uint32_t> positions, std::span<std::uint32_t> first_ranks, const Progress& progress) {
  Sorter<Token>(tokens, vocab_size, order_depth, threads, positions, first_ranks, progress).run();
}

template void sort_suffixes<std::uint16_t>(std::span<const std::uint16_t>, std::uint32_t, std::uint32_t, unsigned,
                                           std::span<std::uint32_t>, std::span<std::uint32_t>, const Progress&);
template void sort_suffixes<std::uint32_t>(std::span<const std::uint32_t>, std::uint32_t, std::uint32_t, unsigned,
                                           std::span<std::uint32_t>, std::span<std::uint32_t>, const Progress&);

}  // namespace suffolk
