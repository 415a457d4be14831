// Sorts tokens and writes them as one immutable segment file (docs/reference/file-format.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/segment_file.h"
#include "core/sort.h"

namespace suffolk {

struct SegmentSettings {
  std::uint32_t vocab_size = 0;                   // token ids are below vocab_size; determines token_width
  std::uint32_t order_depth = 64;                 // tokens by which suffixes are sorted
  std::array<std::uint8_t, 32> fingerprint = {};  // fingerprint of the tokenizer; zeros if unknown
  unsigned threads = 0;                           // 0: one for each core that the calling thread may use
};

// Writes the segment file `path` completely, or not at all.
//
//   tokens          [0..n-1], each document followed by one separator (the largest value of Token)
//   document_table  stored unchanged
//
// Memory beside the tokens: 4 bytes for each token, and the memory of sort_suffixes. This is at most 1 byte for each token, and
// small tables (sort.h). The bytes of the file do not depend on the number of threads. Throws kInvalidArgument for an id or depth
// out of range, no tokens, or too many tokens. Throws kResourceExhausted if the disk is full, and anything that `progress`
// throws.
template <typename Token>  // uint16_t or uint32_t
SegmentSummary write_segment(const std::string& path, std::span<const Token> tokens, std::span<const std::byte> document_table,
                             const SegmentSettings& settings, const Progress& progress);

}  // namespace suffolk
