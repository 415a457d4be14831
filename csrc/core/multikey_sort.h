// Sorts strings of tokens.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/suffixes.h"

namespace suffolk {

// Sorts items by the strings read(item, depth), read(item, depth + 1), ... up to max_depth. kEnd ends a string, and sorts last.
// Multikey quicksort (Bentley and Sedgewick 1997, section 3) takes O(m (max_depth + log m)) reads for m strings, however many are
// equal. After `rounds` partitions with bad pivots, whole strings are compared instead: O(max_depth * m log m).
template <typename Read>
void multikey_sort(std::span<std::uint32_t> items, std::uint32_t depth, std::uint32_t max_depth, const Read& read, int rounds) {
  constexpr std::size_t kFew = 16;
  while (items.size() > 1 && depth < max_depth) {
    if (items.size() <= kFew || rounds == 0) {
      std::sort(items.begin(), items.end(), [&](std::uint32_t a, std::uint32_t b) {
        for (std::uint32_t at = depth; at < max_depth; ++at) {
          const std::uint32_t x = read(a, at), y = read(b, at);
          if (x != y || x == kEnd) return x < y;
        }
        return false;
      });
      return;
    }
    const std::uint32_t a = read(items.front(), depth), b = read(items[items.size() / 2], depth), c = read(items.back(), depth);
    const std::uint32_t pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    std::size_t less = 0, greater = items.size();
    for (std::size_t i = 0; i < greater;) {
      const std::uint32_t token = read(items[i], depth);
      if (token < pivot) {
        std::swap(items[less++], items[i++]);
      } else if (token > pivot) {
        std::swap(items[i], items[--greater]);
      } else {
        ++i;
      }
    }
    multikey_sort(items.first(less), depth, max_depth, read, rounds - 1);
    multikey_sort(items.subspan(greater), depth, max_depth, read, rounds - 1);
    if (pivot == kEnd) return;
    items = items.subspan(less, greater - less);
    ++depth;
  }
}

template <typename Read>
void multikey_sort(std::span<std::uint32_t> items, std::uint32_t max_depth, const Read& read) {
  multikey_sort(items, 0, max_depth, read, 2 * static_cast<int>(std::bit_width(items.size())));
}

}  // namespace suffolk
