#include "core/text_search.h"

#include <algorithm>
#include <utility>

namespace suffolk {
namespace {

// The first position in [at, end) that holds `token`; end if there is none. Whole blocks are compared at once.
std::size_t find_token(std::span<const std::uint32_t> text, std::size_t at, std::size_t end, std::uint32_t token) noexcept {
  constexpr std::size_t kBlock = 16;
  for (; at + kBlock <= end; at += kBlock) {
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < kBlock; ++i) found |= text[at + i] == token ? 1U : 0U;
    if (found != 0) break;
  }
  while (at < end && text[at] != token) ++at;
  return at;
}

}  // namespace

TextMatch longest_match(std::span<const std::uint32_t> text, std::size_t searched, std::span<const std::uint32_t> context,
                        const QueryBounds& bounds) {
  TextMatch match;
  if (context.empty()) return match;
  std::size_t longest = bounds.min_match - 1;  // of the occurrences found so far
  const std::size_t size = context.size();
  for (std::size_t end = 0; (end = find_token(text, end, searched, context.back()) + 1) <= searched;) {
    std::size_t length = 1;
    while (length < bounds.max_match && length < end && length < size && text[end - 1 - length] == context[size - 1 - length]) ++length;
    if (length < longest || length < bounds.min_match) continue;
    if (length > longest) match.ends.clear();
    longest = length;
    match.ends.push_back(static_cast<std::uint32_t>(end));
  }
  if (!match.ends.empty()) match.length = static_cast<std::uint32_t>(longest);
  return match;
}

DraftTree draft(std::span<const std::uint32_t> text, const TextMatch& match, std::uint32_t vocab_size, const QueryBounds& bounds) {
  if (match.length == 0) return {};
  std::vector<std::uint32_t> starts = match.ends;
  for (std::uint32_t& start : starts) start -= match.length;
  const auto following = [&](std::uint32_t start) {
    return text.subspan(start + match.length, std::min<std::size_t>(bounds.max_depth, text.size() - start - match.length));
  };
  std::sort(starts.begin(), starts.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto x = following(a), y = following(b);
    const auto [i, j] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    if (j == y.end()) return i != x.end();  // a continuation that reaches the text's end is shorter, and sorts last
    return i != x.end() && *i < *j;
  });
  const Suffixes suffixes = {.tokens = {.data = std::as_bytes(text).data(), .size = text.size(), .width = 4},
                             .positions = starts.data(),
                             .count = starts.size(),
                             .vocab_size = vocab_size};
  const Match sorted = {.length = match.length, .count = starts.size(), .intervals = {{0, starts.size()}}};
  return draft(Corpus({&suffixes, 1}), sorted, bounds);
}

}  // namespace suffolk
