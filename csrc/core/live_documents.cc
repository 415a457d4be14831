#include "core/live_documents.h"

#include <algorithm>
#include <numeric>

namespace suffolk {

std::string_view LiveDocuments::origin(std::size_t index) const noexcept {
  const std::uint64_t begin = index == 0 ? 0 : origin_ends_[index - 1];
  return std::string_view(origins_).substr(begin, origin_ends_[index] - begin);
}

std::uint64_t LiveDocuments::bytes() const noexcept {
  return (sequences_.capacity() + groups_.capacity() + times_.capacity() + origin_ends_.capacity()) * 8 + starts_.capacity() * 4 +
         origins_.capacity() + order_.bytes();
}

std::size_t LiveDocuments::lower_bound(std::uint64_t sequence) const noexcept {
  return static_cast<std::size_t>(std::lower_bound(sequences_.begin(), sequences_.end(), sequence) - sequences_.begin());
}

std::size_t LiveDocuments::at(std::uint64_t position) const noexcept {
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin()) - 1;
}

void LiveDocuments::reserve(std::size_t documents, std::size_t origin_bytes) {
  sequences_.reserve(documents);
  groups_.reserve(documents);
  times_.reserve(documents);
  starts_.reserve(documents + 1);
  origin_ends_.reserve(documents);
  origins_.reserve(origin_bytes);
}

void LiveDocuments::add(std::uint64_t sequence, std::uint64_t group, std::int64_t time, std::uint64_t tokens, std::string_view origin) {
  sequences_.push_back(sequence);
  groups_.push_back(group);
  times_.push_back(time);
  starts_.push_back(static_cast<std::uint32_t>(starts_.back() + tokens + 1));
  origins_.append(origin);
  origin_ends_.push_back(origins_.size());
}

void LiveDocuments::add(const LiveDocuments& from, std::size_t index) {
  const auto [begin, end] = from.range(index);
  add(from.sequence(index), from.group(index), from.time(index), end - begin, from.origin(index));
}

void LiveDocuments::number(std::uint64_t first) noexcept { std::iota(sequences_.begin(), sequences_.end(), first); }

}  // namespace suffolk
