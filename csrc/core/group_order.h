// Finds the documents of a group. A group is a set of documents with one 64-bit key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace suffolk {

inline constexpr std::uint64_t kNoGroup = 0;

// The documents that have a group, sorted by the group's key, then by document index. Takes 4 bytes for each of these documents.
class GroupOrder {
 public:
  GroupOrder() = default;

  // `keys` has an entry for each document: the key of its group, or kNoGroup.
  explicit GroupOrder(std::span<const std::uint64_t> keys) {
    order_.reserve(keys.size() - static_cast<std::size_t>(std::count(keys.begin(), keys.end(), kNoGroup)));
    for (std::uint32_t document = 0; document < keys.size(); ++document) {
      if (keys[document] != kNoGroup) order_.push_back(document);
    }
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
  }

  // The documents of group `key`, in rising order. `keys` must be the same as in the constructor. O(log documents).
  std::span<const std::uint32_t> find(std::span<const std::uint64_t> keys, std::uint64_t key) const {
    const auto by_key = [&](std::uint32_t document) { return keys[document]; };
    const auto [begin, end] = std::ranges::equal_range(order_, key, {}, by_key);
    return {begin, end};
  }

  std::uint64_t bytes() const noexcept { return order_.capacity() * sizeof(std::uint32_t); }

 private:
  std::vector<std::uint32_t> order_;
};

}  // namespace suffolk
