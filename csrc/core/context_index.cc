#include "core/context_index.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace suffolk {

void ContextIndex::append(std::span<const std::uint32_t> tokens) {
  for (const std::uint32_t token : tokens) {
    if (token >= vocab_size_) {
      refuse("token id ", token, " is out of range; the vocabulary has ", vocab_size_, " ids");
    }
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void ContextIndex::truncate(std::uint64_t size) {
  if (size > tokens_.size()) refuse("cannot keep ", size, " tokens of a context of ", tokens_.size());
  tokens_.resize(size);
}

DraftTree ContextIndex::draft(const QueryBounds& bounds) const {
  check(bounds, std::numeric_limits<std::uint32_t>::max());
  std::size_t longest = bounds.min_match - 1;  // match length of the occurrences found so far
  std::vector<std::uint32_t> starts;           // position after each of these occurrences, oldest first
  const std::size_t size = tokens_.size();
  for (std::size_t end = 1; end < size; ++end) {
    if (tokens_[end - 1] != tokens_[size - 1]) continue;
    std::size_t length = 1;
    while (length < bounds.max_match && length < end && tokens_[end - 1 - length] == tokens_[size - 1 - length]) ++length;
    if (length < longest || length < bounds.min_match) continue;
    if (length > longest) starts.clear();
    longest = length;
    starts.push_back(static_cast<std::uint32_t>(end));
  }
  Match match;
  if (starts.empty()) return {};
  match.length = static_cast<std::uint32_t>(longest);
  match.count = starts.size();
  match.intervals = {{0, starts.size()}};
  for (std::uint32_t& start : starts) start -= match.length;
  const Suffixes suffixes = {.tokens = {.data = std::as_bytes(std::span(tokens_)).data(), .size = size, .width = 4},
                             .positions = starts.data(),
                             .count = starts.size(),
                             .vocab_size = vocab_size_};
  const auto following = [&](std::uint32_t start) {
    return std::span(tokens_).subspan(start + match.length, std::min<std::size_t>(bounds.max_depth, size - start - match.length));
  };
  std::sort(starts.begin(), starts.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto x = following(a), y = following(b);
    const auto [i, j] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    if (j == y.end()) return i != x.end();  // a continuation that reaches the context's end is shorter, and sorts last
    return i != x.end() && *i < *j;
  });
  return suffolk::draft(Corpus({&suffixes, 1}), match, bounds);
}

}  // namespace suffolk
