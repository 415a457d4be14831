#include "core/parallel_texts.h"

#include <limits>

#include "core/error.h"
#include "core/format.h"
#include "core/text_search.h"

namespace suffolk {

std::uint64_t ParallelTexts::length(std::uint64_t number) const {
  const auto found = texts_.find(number);
  return found == texts_.end() ? 0 : found->second.size();
}

void ParallelTexts::append(std::uint64_t number, std::span<const std::uint32_t> tokens) {
  for (const std::uint32_t token : tokens) {
    if (token >= vocab_size_) { refuse("token id ", token, " is out of range; the vocabulary has ", vocab_size_, " ids"); }
  }
  std::vector<std::uint32_t>& text = texts_[number];
  text.insert(text.end(), tokens.begin(), tokens.end());
}

void ParallelTexts::truncate(std::uint64_t number, std::uint64_t size) {
  if (size > length(number)) refuse("cannot keep ", size, " tokens of a text of ", length(number));
  if (size < length(number)) texts_[number].resize(size);
}

void ParallelTexts::remove(std::uint64_t number) { texts_.erase(number); }

DraftTree ParallelTexts::draft(std::uint64_t number, std::span<const std::uint32_t> context, const QueryBounds& bounds) const {
  check(bounds, std::numeric_limits<std::uint32_t>::max());
  std::vector<std::uint32_t> others;
  for (const auto& [each, text] : texts_) {
    if (each == number) continue;
    others.insert(others.end(), text.begin(), text.end());
    others.push_back(kEnd);
  }
  return suffolk::draft(others, longest_match(others, others.size(), context, bounds), vocab_size_, bounds);
}

}  // namespace suffolk
