#include "core/text_search.h"

#include <algorithm>

#include "core/multikey_sort.h"

namespace suffolk {
namespace {

// The last end, at most `end`, of an occurrence of `token`; 0 if there is none. Whole blocks are compared at once.
std::size_t find_last(std::span<const std::uint32_t> text, std::size_t end, std::uint32_t token) noexcept {
  constexpr std::size_t kBlock = 16;
  for (; end >= kBlock; end -= kBlock) {
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < kBlock; ++i) found |= text[end - 1 - i] == token ? 1U : 0U;
    if (found != 0) break;
  }
  while (end > 0 && text[end - 1] != token) --end;
  return end;
}

// Finds for each position of a text the longest ending of a pattern that ends there. This is the Z algorithm (Gusfield 1997,
// section 1.4) from right to left.
class PatternEnds {
 public:
  explicit PatternEnds(std::span<const std::uint32_t> pattern) : pattern_(pattern), own_(pattern.size()) {
    scan(pattern, pattern.size() - 1, [&](std::size_t end, std::size_t length) { own_[end] = length; });
  }

  // Calls visit(end, length) for every end up to `searched` where length > 0, falling. Returns the number of compared tokens: at most
  // two for each token of the text.
  template <typename Visit>
  std::uint64_t scan(std::span<const std::uint32_t> text, std::size_t searched, const Visit& visit) {
    std::uint64_t compared = 0;
    std::size_t low = searched, high = searched;  // these tokens of the text are an end of the pattern
    for (std::size_t end = searched; (end = find_last(text, end, pattern_.back())) > 0; --end) {
      std::size_t length = end > low ? std::min(own_[pattern_.size() - (high - end)], end - low) : 1;
      if (end <= low || length == end - low) {
        while (length < pattern_.size() && length < end && text[end - 1 - length] == pattern_[pattern_.size() - 1 - length]) ++length;
        compared += length + 1 - (end > low ? end - low : 0);
        low = end - length;
        high = end;
      }
      visit(end, length);
    }
    return compared;
  }

 private:
  std::span<const std::uint32_t> pattern_;
  std::vector<std::size_t> own_;  // of each end in the pattern itself
};

}  // namespace

TextMatch longest_match(std::span<const std::uint32_t> text, std::size_t searched, std::span<const std::uint32_t> context,
                        const QueryBounds& bounds) {
  TextMatch match;
  if (context.empty()) return match;
  std::size_t longest = bounds.min_match;  // of the occurrences found so far
  PatternEnds pattern(context.last(std::min<std::size_t>(context.size(), bounds.max_match)));
  match.compared = pattern.scan(text, searched, [&](std::size_t end, std::size_t length) {
    if (length < longest) return;
    if (length > longest) match.ends.clear();
    longest = length;
    match.ends.push_back(static_cast<std::uint32_t>(end));
  });
  std::reverse(match.ends.begin(), match.ends.end());
  if (!match.ends.empty()) match.length = static_cast<std::uint32_t>(longest);
  return match;
}

DraftTree draft(std::span<const std::uint32_t> text, const TextMatch& match, std::uint32_t vocab_size, const QueryBounds& bounds) {
  if (match.length == 0) return {};
  std::vector<std::uint32_t> starts = match.ends;
  for (std::uint32_t& start : starts) start -= match.length;
  multikey_sort(starts, bounds.max_depth, [&](std::uint32_t start, std::uint32_t depth) {
    const std::size_t at = start + match.length + depth;
    return at < text.size() ? text[at] : kEnd;
  });
  const Suffixes suffixes = {.tokens = {.data = std::as_bytes(text).data(), .size = text.size(), .width = 4},
                             .positions = starts.data(),
                             .count = starts.size(),
                             .vocab_size = vocab_size};
  const Match sorted = {.length = match.length, .count = starts.size(), .intervals = {{0, starts.size()}}};
  return draft(Corpus({&suffixes, 1}), sorted, bounds);
}

}  // namespace suffolk
