#include "core/segment_writer.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "core/suffixes.h"

namespace suffolk {
namespace {

template <typename Token>
constexpr Token kSeparator = std::numeric_limits<Token>::max();

template <typename Token>
void check(std::span<const Token> tokens, const SegmentSettings& settings) {
  if (tokens.empty()) refuse("a segment needs at least one token; the corpus is empty");
  if (tokens.size() > kMaxSortedTokens) {
    refuse("a segment of ", tokens.size(), " tokens; the limit is ", kMaxSortedTokens, ": write more than one segment");
  }
  if (tokens.back() != kSeparator<Token>) refuse("the last token is no separator; a separator must follow every document");
  if (settings.order_depth < 1 || settings.order_depth > format::kMaxOrderDepth) {
    refuse("order_depth is ", settings.order_depth, "; it must be 1 to ", format::kMaxOrderDepth);
  }
  if (settings.vocab_size < 1 || settings.vocab_size > kSeparator<Token>) {
    refuse("vocab_size is ", settings.vocab_size, "; tokens of ", sizeof(Token), " bytes allow 1 to ", kSeparator<Token>);
  }
}

template <typename Token>
std::vector<std::uint32_t> document_starts(std::span<const Token> tokens) {
  std::vector<std::uint32_t> starts = {0};
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    if (tokens[at] == kSeparator<Token>) starts.push_back(static_cast<std::uint32_t>(at + 1));
  }
  return starts;
}

// Writes the low `width` bytes of every token, in blocks. A separator stays one: all its bits are set.
template <typename Token>
void write_tokens(SegmentFile& file, std::span<const Token> tokens, std::uint32_t width) {
  if (width == sizeof(Token)) {
    file.write(std::as_bytes(tokens));
    return;
  }
  constexpr std::size_t kBlock = 1 << 16;
  std::vector<std::byte> packed;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kBlock) {
    packed.clear();
    for (const Token token : tokens.subspan(begin, std::min(kBlock, tokens.size() - begin))) {
      const auto bytes = bytes_of(token);
      packed.insert(packed.end(), bytes.begin(), bytes.begin() + width);
    }
    file.write(packed);
  }
}

}  // namespace

template <typename Token>
SegmentSummary write_segment(const std::string& path, std::span<const Token> tokens, std::span<const std::byte> document_table,
                             const SegmentSettings& settings, const Progress& progress) {
  check(tokens, settings);
  const std::uint32_t width = token_width(settings.vocab_size);
  if (width > sizeof(Token)) refuse("tokens of 2 bytes cannot hold a vocabulary of ", settings.vocab_size, " ids");
  const std::vector<std::uint32_t> starts = document_starts(tokens);
  const std::uint64_t documents = starts.size() - 1, suffixes = tokens.size() - documents;
  SegmentFile file(path, {.vocab_size = settings.vocab_size,
                          .order_depth = settings.order_depth,
                          .fingerprint = settings.fingerprint,
                          .token_count = tokens.size(),
                          .document_count = documents,
                          .document_table_bytes = document_table.size()});

  std::vector<std::uint32_t> first_ranks(std::size_t{settings.vocab_size} + 1);
  // Uninitialised: sorting writes every entry, and touching the pages twice would take measurable time.
  const auto positions = std::make_unique_for_overwrite<std::uint32_t[]>(suffixes);
  sort_suffixes<Token>(tokens, settings.vocab_size, settings.order_depth, thread_count(settings.threads), {positions.get(), suffixes}, first_ranks,
                       progress);

  write_tokens(file, tokens, width);
  file.end_section();
  file.write_section(std::as_bytes(std::span(positions.get(), suffixes)));
  file.write_section(std::as_bytes(std::span(first_ranks)));
  file.write_section(std::as_bytes(std::span(starts)));
  file.write_section(document_table);
  const Tokens view = {.data = std::as_bytes(tokens).data(), .size = tokens.size(), .width = sizeof(Token)};
  for (std::uint64_t rank = 0; rank < suffixes; rank += kDirectoryStride) {
    file.write(bytes_of(suffix_key(view, positions[rank], settings.vocab_size, width)));
  }
  file.end_section();
  return file.commit();
}

template SegmentSummary write_segment<std::uint16_t>(const std::string&, std::span<const std::uint16_t>, std::span<const std::byte>,
                                                     const SegmentSettings&, const Progress&);
template SegmentSummary write_segment<std::uint32_t>(const std::string&, std::span<const std::uint32_t>, std::span<const std::byte>,
                                                     const SegmentSettings&, const Progress&);

}  // namespace suffolk
