#include "core/sort.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/sort_run.h"

namespace suffolk {
namespace {

constexpr std::size_t kMaxGroups = 64;
constexpr std::size_t kGroupSuffixes = 1 << 14;  // least average size of a group: a small text is one group, sorted directly
constexpr std::size_t kScanBlock = 1 << 19;      // suffixes read at a time while inducing
constexpr std::size_t kAhead = 32;               // suffixes between the prefetch of a cache line and its use
constexpr std::uint64_t kDirectCost = 6;         // cost of sorting a suffix directly, in units of inducing one; only for progress

template <typename Token>
class Sorter {
 public:
  Sorter(std::span<const Token> tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads, std::span<std::uint32_t> positions,
         std::span<std::uint32_t> first_ranks, const Progress& progress)
      : text_(tokens, vocab_size, order_depth),
        tokens_(tokens),
        vocab_size_(vocab_size),
        threads_(threads),
        positions_(positions),
        first_ranks_(first_ranks),
        progress_(progress),
        counts_(threads, std::vector<std::uint32_t>(vocab_size)),
        direct_ranks_(vocab_size) {}

  void run() {
    count_tokens();
    cut_groups();
    place_direct();
    sort_direct();
    induce();
    restore_ties();
  }

 private:
  static constexpr Token kSeparator = Text<Token>::kSeparator;

  // Calls visit(position) for every suffix of a thread's part of the text.
  template <typename Visit>
  void each_suffix(unsigned thread, const Visit& visit) const {
    const std::size_t stretch = (tokens_.size() + threads_ - 1) / threads_;
    const std::size_t begin = std::min(tokens_.size(), thread * stretch), end = std::min(tokens_.size(), begin + stretch);
    for (std::size_t at = begin; at < end; ++at) {
      if (tokens_[at] != kSeparator) visit(at);
    }
  }

  // Whether the place of this suffix is induced from the suffix that begins a token later. REQUIRES: the token at `at` is no
  // separator.
  bool is_induced(std::size_t at) const { return tokens_[at + 1] < group_begin_[tokens_[at]]; }

  template <typename Run>
  void parallel(const Run& run) {
    run_parallel(threads_, work_, progress_, run);
  }

  void count_tokens() {
    parallel([&](unsigned thread) {
      auto& counts = counts_[thread];
      each_suffix(thread, [&](std::size_t at) {
        if (tokens_[at] >= vocab_size_) refuse_id(at);
        ++counts[tokens_[at]];
      });
    });
    std::uint32_t rank = 0;
    for (std::uint32_t token = 0; token < vocab_size_; ++token) {
      first_ranks_[token] = rank;
      for (const auto& counts : counts_) rank += counts[token];
    }
    first_ranks_[vocab_size_] = rank;
  }

  void refuse_id(std::size_t at) const {
    refuse("token id ", tokens_[at], " at position ", at, " is out of range; the vocabulary has ", vocab_size_,
           " ids: give the tokenizer that made the tokens, or a larger vocabulary");
  }

  // Groups are ranges of ids with about equally many suffixes. If order_depth is 1, there is one group and nothing is induced:
  // only the second token tells induced suffixes from direct ones.
  void cut_groups() {
    const std::size_t count = text_.order_depth < 2 ? 1 : std::clamp<std::size_t>(positions_.size() / kGroupSuffixes, 1, kMaxGroups);
    const std::size_t enough = positions_.size() / count + 1;
    group_begin_.resize(vocab_size_);
    groups_ = {0};
    for (std::uint32_t token = 0; token < vocab_size_; ++token) {
      if (first_ranks_[token] - first_ranks_[groups_.back()] >= enough) groups_.push_back(token);
      group_begin_[token] = groups_.back();
    }
    groups_.push_back(vocab_size_);
  }

  // Writes the direct suffixes into their buckets by rising position, after the induced ones, whose second tokens are lower.
  void place_direct() {
    std::vector<std::size_t> chains(threads_);
    parallel([&](unsigned thread) {
      std::size_t chain = 0, longest = 0, next = 0;
      each_suffix(thread, [&](std::size_t at) {
        const bool induced = is_induced(at);
        counts_[thread][tokens_[at]] -= induced ? 1 : 0;
        chain = induced ? chain + 1 : 0;
        longest = std::max(longest, chain);
        next = at + 1;
      });
      while (chain > 0 && tokens_[next] != kSeparator && is_induced(next)) ++chain, ++next;  // beyond this thread's part
      chains[thread] = std::max(longest, chain);
    });
    const std::size_t chain = *std::max_element(chains.begin(), chains.end());
    mark_depth_ = chain + 2 <= text_.order_depth ? text_.order_depth - static_cast<std::uint32_t>(chain) : 0;
    std::uint64_t direct = 0;
    for (std::uint32_t token = 0; token < vocab_size_; ++token) {
      std::uint32_t rank = first_ranks_[token + 1];
      for (const auto& counts : counts_) rank -= counts[token];
      direct_ranks_[token] = rank;
      direct += direct_size(token);
      for (auto& counts : counts_) rank += std::exchange(counts[token], rank);
    }
    const std::uint64_t scanned = first_ranks_[groups_[groups_.size() - 2]];  // read by `induce`: all groups but the last
    work_.total = direct * kDirectCost + scanned + positions_.size() - direct;
    parallel([&](unsigned thread) {
      // First gathered without a branch, because half of all branches would be mispredicted; then written to prefetched lines.
      std::array<std::uint32_t, 1024> gathered;
      std::size_t size = 0;
      auto& next = counts_[thread];
      const auto write = [&] {
        for (std::size_t i = 0; i < size; ++i) {
          if (i + kAhead < size) __builtin_prefetch(positions_.data() + next[tokens_[gathered[i + kAhead]]], 1);
          positions_[next[tokens_[gathered[i]]]++] = gathered[i];
        }
        size = 0;
      };
      each_suffix(thread, [&](std::size_t at) {
        gathered[size] = static_cast<std::uint32_t>(at);
        size += is_induced(at) ? 0 : 1;
        if (size == gathered.size()) write();
      });
      write();
    });
  }

  std::uint32_t direct_size(std::uint32_t token) const { return first_ranks_[token + 1] - direct_ranks_[token]; }

  // Threads take the heaviest buckets first, so that no thread is left with a heavy one at the end.
  void sort_direct() {
    std::vector<std::uint32_t> order(vocab_size_);
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return direct_size(a) > direct_size(b); });
    std::atomic<std::size_t> next = 0;
    const std::size_t limit = std::max<std::size_t>(4096, positions_.size() / (32 * std::max(2U, threads_)));
    parallel([&](unsigned) {
      RunSorter<Token> sorter(text_, mark_depth_, limit, work_.stop);
      for (std::size_t i = next++; i < order.size() && direct_size(order[i]) > 0 && !work_.stop; i = next++) {
        const auto bucket = positions_.subspan(direct_ranks_[order[i]], direct_size(order[i]));
        sorter.sort(bucket, 1);
        work_.done += bucket.size() * kDirectCost;
      }
    });
  }

  // Reads the groups in order. Each suffix places the suffix that begins one token earlier. Threads share blocks of suffixes.
  // First each thread counts the suffixes that it will place. Then all threads together compute the places. Then each thread
  // writes its suffixes in order.
  void induce() {
    std::vector<std::uint32_t> next(first_ranks_.begin(), first_ranks_.end() - 1);  // the next free rank of each bucket
    // The suffixes that a block will place, and their first tokens, gathered without a branch.
    std::vector<std::uint32_t> gathered(std::min(kScanBlock, positions_.size()));
    std::vector<Token> first_tokens(gathered.size());
    bool halted = false;
    std::barrier barrier(threads_, [&]() noexcept { halted = work_.stop; });
    parallel([&](unsigned thread) {
      auto& counts = counts_[thread];
      std::fill(counts.begin(), counts.end(), 0U);
      for (std::size_t group = 0; group + 2 < groups_.size(); ++group) {
        const std::uint32_t above = groups_[group + 1];  // ids from here on are placed by this group
        const auto share = [&](unsigned of) { return above + static_cast<std::uint32_t>(std::uint64_t{vocab_size_ - above} * of / threads_); };
        for (std::size_t block = first_ranks_[groups_[group]]; block < first_ranks_[above]; block += kScanBlock) {
          const std::size_t size = std::min<std::size_t>(kScanBlock, first_ranks_[above] - block);
          const std::size_t begin = size * thread / threads_, end = size * (thread + 1) / threads_;
          const auto ranks = positions_.subspan(block, size);
          std::size_t filled = begin;
          for (std::size_t i = begin; i < end; ++i) {
            if (i + kAhead < end) text_.prefetch((ranks[i + kAhead] & ~kMark) - 1, 0);
            const std::uint32_t position = ranks[i] & ~kMark;
            const Token token = position > 0 ? tokens_[position - 1] : kSeparator;
            const bool placed = token >= above && token != kSeparator;
            gathered[filled] = ranks[i] - 1;  // including its mark
            first_tokens[filled] = token;
            filled += placed ? 1 : 0;
            counts[placed ? token : 0] += placed ? 1 : 0;
          }
          barrier.arrive_and_wait();
          if (halted) return;
          for (std::uint32_t token = share(thread); token < share(thread + 1); ++token) {
            for (auto& of_thread : counts_) next[token] += std::exchange(of_thread[token], next[token]);
          }
          barrier.arrive_and_wait();
          for (std::size_t i = begin; i < filled; ++i) {
            if (i + kAhead < filled) __builtin_prefetch(positions_.data() + counts[first_tokens[i + kAhead]], 1);
            positions_[counts[first_tokens[i]]++] = gathered[i];
          }
          std::fill(counts.begin(), counts.end(), 0U);
          work_.done += end - begin;
          barrier.arrive_and_wait();  // the next block may hold suffixes that were just placed
        }
      }
    });
  }

  // Induced suffixes are sorted by more than order_depth tokens. If two agree in order_depth tokens, they must be sorted by
  // position. All suffixes of this kind are marked. They were induced, over one or more steps, from direct suffixes
  // that agree in at least mark_depth_ tokens, but in fewer than order_depth. (Take two
  // suffixes that agree in order_depth tokens. As long as two of these tokens are left, each step is induced for both
  // suffixes or for none. If fewer may be left, all suffixes are marked.)
  void restore_ties() {
    std::atomic<std::uint32_t> next = 0;
    parallel([&](unsigned) {
      for (std::uint32_t token = next++; token < vocab_size_ && !work_.stop; token = next++) {
        const auto bucket = positions_.subspan(first_ranks_[token], first_ranks_[token + 1] - first_ranks_[token]);
        const auto induced = bucket.first(direct_ranks_[token] - first_ranks_[token]);
        for (std::size_t begin = 0, end = 0; end <= bucket.size(); ++end) {
          if (end + kAhead < induced.size() && (bucket[end + kAhead] & kMark) != 0) {
            for (const std::uint32_t depth : {0U, text_.order_depth / 2, text_.order_depth - 1}) text_.prefetch(bucket[end + kAhead] & ~kMark, depth);
          }
          if (end < bucket.size() && (bucket[end] & kMark) != 0) {
            bucket[end] &= ~kMark;
            continue;
          }
          if (begin < std::min(end, induced.size())) sort_ties(induced.subspan(begin, std::min(end, induced.size()) - begin));
          begin = end + 1;
        }
        work_.done += induced.size();
      }
    });
  }

  // Sorts runs of suffixes that agree in order_depth tokens by position. Suffixes that end earlier are in that order already.
  void sort_ties(std::span<std::uint32_t> ranks) const {
    for (std::size_t begin = 0; begin < ranks.size();) {
      std::size_t end = begin + 1;
      while (end < ranks.size() && text_.same(ranks[begin], ranks[end], 0, text_.order_depth)) ++end;
      if (end - begin > 1) std::sort(ranks.begin() + static_cast<std::ptrdiff_t>(begin), ranks.begin() + static_cast<std::ptrdiff_t>(end));
      begin = end;
    }
  }

  Text<Token> text_;
  std::span<const Token> tokens_;
  std::uint32_t vocab_size_;
  unsigned threads_;
  std::span<std::uint32_t> positions_;
  std::span<std::uint32_t> first_ranks_;
  const Progress& progress_;
  std::vector<std::vector<std::uint32_t>> counts_;  // [thread][id]: number of suffixes, or rank of the next one
  std::vector<std::uint32_t> direct_ranks_;         // [id]: rank of the bucket's first direct suffix
  std::vector<std::uint32_t> group_begin_;          // [id]: the first id of its group
  std::uint32_t mark_depth_ = 0;                    // see restore_ties
  std::vector<std::uint32_t> groups_;               // the first id of each group, and vocab_size
  Work work_;
};

}  // namespace

template <typename Token>
void sort_suffixes(std::span<const Token> tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads,
                   std::span<std::uint32_t> positions, std::span<std::uint32_t> first_ranks, const Progress& progress) {
  Sorter<Token>(tokens, vocab_size, order_depth, threads, positions, first_ranks, progress).run();
}

template void sort_suffixes<std::uint16_t>(std::span<const std::uint16_t>, std::uint32_t, std::uint32_t, unsigned, std::span<std::uint32_t>,
                                           std::span<std::uint32_t>, const Progress&);
template void sort_suffixes<std::uint32_t>(std::span<const std::uint32_t>, std::uint32_t, std::uint32_t, unsigned, std::span<std::uint32_t>,
                                           std::span<std::uint32_t>, const Progress&);

}  // namespace suffolk
