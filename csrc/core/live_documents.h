// The documents of a segment in memory, as columns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/group_order.h"
#include "core/suffixes.h"

namespace suffolk {

// A document to append. A view of the caller's memory.
struct Document {
  std::span<const std::uint32_t> tokens;
  std::uint64_t sequence = 0;  // the document's number, or 0 for the next number
  std::uint64_t group = kNoGroup;
  std::int64_t time = 0;         // in seconds
  std::string_view origin = {};  // opaque bytes
};

// Everything about documents except their tokens. A document takes 36 bytes, 4 more if it has a group, and the bytes of its origin.
// Documents are in order of their sequence numbers, except in a segment of deletions.
class LiveDocuments {
 public:
  std::size_t size() const noexcept { return sequences_.size(); }
  std::uint64_t sequence(std::size_t index) const noexcept { return sequences_[index]; }
  std::uint64_t group(std::size_t index) const noexcept { return groups_[index]; }
  std::int64_t time(std::size_t index) const noexcept { return times_[index]; }
  std::string_view origin(std::size_t index) const noexcept;
  // The token positions of a document, without its separator.
  Interval range(std::size_t index) const noexcept { return {starts_[index], starts_[index + 1] - 1}; }
  // The number of tokens of all documents, separators included.
  std::uint64_t tokens() const noexcept { return starts_.back(); }
  std::uint64_t bytes() const noexcept;

  // The index of the first document whose sequence is at least `sequence`. REQUIRES: sequences rise.
  std::size_t lower_bound(std::uint64_t sequence) const noexcept;
  // The index of the document that holds a token position. REQUIRES: position < tokens()
  std::size_t at(std::uint64_t position) const noexcept;
  // The indices of the documents of a group, in rising order.
  std::span<const std::uint32_t> in_group(std::uint64_t key) const { return order_.find(groups_, key); }

  // To fill the columns, call `reserve` once, `add` for every document, then `finish`.
  void reserve(std::size_t documents, std::size_t origin_bytes);
  void add(std::uint64_t sequence, std::uint64_t group, std::int64_t time, std::uint64_t tokens, std::string_view origin);
  void add(const LiveDocuments& from, std::size_t index);
  void finish() { order_ = GroupOrder(groups_); }
  // Numbers the documents from `first` on.
  void number(std::uint64_t first) noexcept;

 private:
  std::vector<std::uint64_t> sequences_;
  std::vector<std::uint64_t> groups_;
  std::vector<std::int64_t> times_;
  std::vector<std::uint32_t> starts_ = {0};  // one entry more than there are documents
  std::vector<std::uint64_t> origin_ends_;
  std::string origins_;
  GroupOrder order_;
};

}  // namespace suffolk
