// Sorts a run of suffixes, whose first tokens are equal, by direct comparison, many tokens at a time as one number.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/suffixes.h"

namespace suffolk {

// The text of a sort: ids below vocab_size, and a separator (the largest value of Token) after every document.
template <typename Token>  // uint16_t or uint32_t
struct Text {
  static constexpr Token kSeparator = std::numeric_limits<Token>::max();

  std::span<const Token> tokens;
  std::uint32_t order_depth;
  unsigned token_bits;  // enough bits for every id and for the value that marks the end
  unsigned key_tokens;  // tokens in one key

  Text(std::span<const Token> tokens_, std::uint32_t vocab_size, std::uint32_t order_depth_)
      : tokens(tokens_),
        order_depth(order_depth_),
        token_bits(sizeof(Token) == 2 ? 16U : static_cast<unsigned>(std::bit_width(vocab_size))),
        key_tokens(64U / token_bits) {}

  // The `key_tokens` tokens from `depth` on, as one number with the same order. After a document's end all bits are set; beyond
  // order_depth all bits are zero. REQUIRES: the suffix does not end before `depth`, and depth < order_depth.
  std::uint64_t key(std::uint32_t position, std::uint32_t depth) const noexcept {
    const std::size_t at = std::size_t{position} + depth;
    std::uint64_t value = 0;
    if constexpr (sizeof(Token) == 2 && std::endian::native == std::endian::little) {
      if (at + 4 <= tokens.size()) return cut(four_tokens(std::as_bytes(tokens).data() + at * sizeof(Token)), depth);
    }
    const std::uint64_t end = (std::uint64_t{1} << token_bits) - 1;
    bool ended = false;
    for (unsigned i = 0; i < key_tokens; ++i) {
      ended = ended || tokens[at + i] == kSeparator;  // the last token is a separator, so this never reads past the end
      value = value << token_bits | (ended ? end : tokens[at + i]);
    }
    return cut(value, depth);
  }

  // Whether two suffixes agree in the `key_tokens` tokens from `depth` on, and do not end within them. Ignores order_depth.
  bool agree(std::uint32_t a, std::uint32_t b, std::uint32_t depth) const noexcept {
    const std::size_t i = std::size_t{a} + depth, j = std::size_t{b} + depth;
    if (std::max(i, j) + key_tokens > tokens.size()) return false;
    if constexpr (sizeof(Token) == 2) {
      std::uint64_t x, y;
      std::memcpy(&x, tokens.data() + i, sizeof(x));
      std::memcpy(&y, tokens.data() + j, sizeof(y));
      return x == y && first_separator(x) == 0;
    }
    for (unsigned k = 0; k < key_tokens; ++k) {
      if (tokens[i + k] != tokens[j + k] || tokens[i + k] == kSeparator) return false;
    }
    return true;
  }

  // The depth up to which the suffix surely does not end: `depth` plus a number of whole keys. Exceeds order_depth by less than one
  // key.
  std::uint32_t unended(std::uint32_t position, std::uint32_t depth) const noexcept {
    while (depth < order_depth && agree(position, position, depth)) depth += key_tokens;
    return depth;
  }

  // Whether two suffixes have the same tokens from depth `begin` to depth `end`; false if the text ends before. Fast for long
  // repeats.
  bool same(std::uint32_t a, std::uint32_t b, std::uint32_t begin, std::uint32_t end) const noexcept {
    if (std::size_t{std::max(a, b)} + end > tokens.size()) return false;
    return std::memcmp(tokens.data() + a + begin, tokens.data() + b + begin, (end - begin) * sizeof(Token)) == 0;
  }

  // Whether a suffix with this key at `depth` has tokens after the key, within order_depth.
  bool goes_on(std::uint64_t key, std::uint32_t depth) const noexcept {
    const std::uint64_t end = (std::uint64_t{1} << token_bits) - 1;
    return depth + key_tokens < order_depth && (key & end) != end;
  }

  // Always inlined: otherwise the compiler removes the calls, because the function has no effect.
  [[gnu::always_inline]] void prefetch(std::uint32_t position, std::uint32_t depth) const noexcept {
    __builtin_prefetch(tokens.data() + std::min(std::size_t{position} + depth, tokens.size() - 1));
  }

 private:
  std::uint64_t cut(std::uint64_t value, std::uint32_t depth) const noexcept {
    const std::uint32_t known = order_depth - depth;
    return known >= key_tokens ? value : value >> (key_tokens - known) * token_bits << (key_tokens - known) * token_bits;
  }
};

// The highest bit of a sorted position. If it is set, suffixes whose order follows from this position may be in the wrong order
// (see RunSorter::sort).
inline constexpr std::uint32_t kMark = 0x80000000;

// Sorts runs of suffixes. Not thread-safe: it owns its scratch memory.
template <typename Token>
class RunSorter {
 public:
  // Uses at most 32 bytes of scratch for each of `limit` suffixes. A run of more suffixes is first partitioned in place. Once
  // `stop` is set, the sort returns early without a result.
  RunSorter(const Text<Token>& text, std::uint32_t mark_depth, std::size_t limit, const std::atomic<bool>& stop)
      : text_(text), mark_depth_(mark_depth), limit_(limit), stop_(stop) {}

  // Sorts suffixes by their first order_depth tokens, and equal suffixes by position. The suffixes must agree in their first
  // `depth` tokens and not end there. Sets kMark on all suffixes with the same first mark_depth tokens, unless they also have the
  // same first order_depth tokens. May mark further suffixes. If mark_depth is 0, marks all. REQUIRES: positions are below kMark.
  void sort(std::span<std::uint32_t> run, std::uint32_t depth) {
    const std::size_t needed = std::min(run.size(), limit_);
    if (scratch_.size() < needed) scratch_.resize(needed), spare_.resize(needed);
    if (run.size() > 1) sort_at(run, depth, 0);
    if (mark_depth_ == 0) mark(run);
  }

 private:
  struct Keyed {
    std::uint64_t key;
    std::uint32_t position;
  };
  static constexpr std::size_t kAhead = 24;           // suffixes between the prefetch of a cache line and its use
  static constexpr std::size_t kSmallRun = 12;        // runs of up to this size: insertion sort
  static constexpr std::size_t kRadixRun = 512;       // runs of this size or more: radix sort
  static constexpr std::size_t kCachedRun = 1 << 15;  // up to this size, radix sort begins with the lowest digit, above it with the highest

  // `base`: where this run's part of the scratch begins.
  void sort_at(std::span<std::uint32_t> run, std::uint32_t depth, std::size_t base) {
    if (depth >= text_.order_depth) {
      if (!std::is_sorted(run.begin(), run.end())) std::sort(run.begin(), run.end());
    } else if (const std::uint32_t common = common_depth(run, depth); common > depth) {
      sort_at(run, common, base);
    } else if (run.size() <= kSmallRun) {
      insertion_sort(run, depth);
    } else if (stop_) {
      return;
    } else if (run.size() > limit_) {
      partition(run, depth);
    } else {
      sort_keyed(run, depth, base);
    }
  }

  // The depth up to which all suffixes of a run agree, in whole keys.
  std::uint32_t common_depth(std::span<const std::uint32_t> run, std::uint32_t depth) const {
    const bool large = run.size() >= kRadixRun;  // if so, long repeats are compared with the first suffix in one pass
    std::uint32_t common = large ? text_.unended(run[0], depth) : text_.order_depth;
    for (std::size_t i = 1; i < run.size() && common > depth; ++i) {
      if (i + kAhead < run.size()) text_.prefetch(run[i + kAhead], depth);
      std::uint32_t agreed = depth;
      if (large && text_.agree(run[0], run[i], depth) && text_.same(run[0], run[i], depth, common)) continue;
      while (agreed < common && text_.agree(run[0], run[i], agreed)) agreed += text_.key_tokens;
      common = std::min(common, agreed);
    }
    return common;
  }

  void sort_keyed(std::span<std::uint32_t> run, std::uint32_t depth, std::size_t base) {
    const std::span<Keyed> keyed(scratch_.data() + base, run.size());
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (i + kAhead < run.size()) {
        text_.prefetch(run[i + kAhead], depth);
        text_.prefetch(run[i + kAhead], depth + text_.key_tokens - 1);  // may lie in the next cache line
      }
      keyed[i] = {text_.key(run[i], depth), run[i]};
    }
    sort_keys(keyed, std::span(spare_.data() + base, run.size()));
    for (std::size_t i = 0; i < run.size(); ++i) run[i] = keyed[i].position;
    const std::uint32_t below = std::min(depth + text_.key_tokens, text_.order_depth);
    const bool near = keyed.front().key != keyed.back().key && below > mark_depth_;
    // Runs of equal keys are sorted by their next tokens, which are prefetched.
    std::size_t asked = 0;
    for (std::size_t begin = 0; begin < run.size();) {
      const std::uint64_t key = keyed[begin].key;
      std::size_t end = begin + 1;
      while (end < run.size() && keyed[end].key == key) ++end;
      for (asked = std::max(asked, end); asked + 1 < run.size() && asked < end + kAhead; ++asked) {
        if (keyed[asked].key == keyed[asked + 1].key || keyed[asked].key == keyed[asked - 1].key) text_.prefetch(keyed[asked].position, below);
      }
      if (end - begin > 1) {
        const auto equal = run.subspan(begin, end - begin);
        sort_at(equal, text_.goes_on(key, depth) ? below : text_.order_depth, base + begin);
      }
      begin = end;
    }
    if (near) mark(run);
  }

  // REQUIRES: the run is in its final order.
  static void mark(std::span<std::uint32_t> run) {
    for (std::uint32_t& position : run) position |= kMark;
  }

  static void sort_keys(std::span<Keyed> keyed, std::span<Keyed> spare) {
    if (keyed.size() < kRadixRun) {
      std::sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) { return a.key < b.key; });
      return;
    }
    std::uint64_t differing = 0;
    for (const Keyed& each : keyed) differing |= each.key ^ keyed[0].key;
    if (differing == 0) return;
    if (keyed.size() <= kCachedRun) {
      sort_digits(keyed, spare, differing);
      return;
    }
    const int shift = std::max(0, static_cast<int>(std::bit_width(differing)) - 8);
    std::array<std::size_t, 257> begins = {};
    for (const Keyed& each : keyed) ++begins[(each.key >> shift & 255) + 1];
    for (std::size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
    auto next = begins;
    for (const Keyed& each : keyed) spare[next[each.key >> shift & 255]++] = each;
    std::copy(spare.begin(), spare.end(), keyed.begin());
    for (std::size_t i = 0; i < 256; ++i) {
      const std::size_t size = begins[i + 1] - begins[i];
      if (size > 1) sort_keys(keyed.subspan(begins[i], size), spare.subspan(begins[i], size));
    }
  }

  // Sorts by digits of 8 bits, the lowest first. Digits in which all keys agree are skipped.
  static void sort_digits(std::span<Keyed> keyed, std::span<Keyed> spare, std::uint64_t differing) {
    std::array<std::array<std::uint32_t, 256>, 8> begins = {};
    for (const Keyed& each : keyed) {
      for (unsigned digit = 0; digit < 8; ++digit) ++begins[digit][each.key >> 8 * digit & 255];
    }
    std::span<Keyed> from = keyed, to = spare;
    for (unsigned digit = 0; digit < 8; ++digit) {
      if ((differing >> 8 * digit & 255) == 0) continue;
      std::uint32_t sum = 0;
      for (std::uint32_t& begin : begins[digit]) sum += std::exchange(begin, sum);
      for (const Keyed& each : from) to[begins[digit][each.key >> 8 * digit & 255]++] = each;
      std::swap(from, to);
    }
    if (from.data() != keyed.data()) std::copy(from.begin(), from.end(), keyed.begin());
  }

  // Partitions, in place, a run that is too long for the scratch memory: into three parts around one of its keys.
  void partition(std::span<std::uint32_t> run, std::uint32_t depth) {
    const auto whole = run;
    bool near = false;
    while (run.size() > limit_ && !stop_) {
      std::array<std::uint64_t, 31> sample;
      for (std::size_t i = 0; i < sample.size(); ++i) sample[i] = text_.key(run[run.size() / sample.size() * i], depth);
      std::sort(sample.begin(), sample.end());
      const std::uint64_t pivot = sample[sample.size() / 2];
      std::size_t less = 0, at = 0, greater = run.size();
      while (at < greater) {
        if (at + kAhead < greater) text_.prefetch(run[at + kAhead], depth);
        const std::uint64_t key = text_.key(run[at], depth);
        if (key < pivot) {
          std::swap(run[less++], run[at++]);
        } else if (key > pivot) {
          std::swap(run[at], run[--greater]);
          text_.prefetch(run[at], depth);
        } else {
          ++at;
        }
      }
      sort_at(run.first(less), depth, 0);
      sort_at(run.subspan(greater), depth, 0);
      near = near || (greater - less < run.size() && depth + text_.key_tokens > mark_depth_);
      const bool goes_on = text_.goes_on(pivot, depth);
      run = run.subspan(less, greater - less);
      depth = goes_on ? depth + text_.key_tokens : text_.order_depth;
      if (!goes_on) break;
    }
    sort_at(run, depth, 0);
    if (near) mark(whole);
  }

  void insertion_sort(std::span<std::uint32_t> run, std::uint32_t depth) const {
    bool near = false;
    for (std::size_t i = 1; i < run.size(); ++i) {
      const std::uint32_t position = run[i];
      std::size_t to = i;
      for (; to > 0 && precedes(position, run[to - 1], depth, near); --to) run[to] = run[to - 1];
      run[to] = position;
    }
    if (near) mark(run);
  }

  // Sets `near` if the two suffixes may agree in mark_depth_ tokens but differ in order_depth tokens.
  bool precedes(std::uint32_t a, std::uint32_t b, std::uint32_t depth, bool& near) const {
    while (depth < text_.order_depth && text_.agree(a, b, depth)) depth += text_.key_tokens;
    if (depth >= text_.order_depth) return a < b;
    const std::uint64_t x = text_.key(a, depth), y = text_.key(b, depth);
    if (x == y) return a < b;  // both end, or differ beyond order_depth
    near = near || depth + text_.key_tokens > mark_depth_;
    return x < y;
  }

  const Text<Token>& text_;
  std::uint32_t mark_depth_;
  std::size_t limit_;
  const std::atomic<bool>& stop_;
  std::vector<Keyed> scratch_, spare_;
};

}  // namespace suffolk
