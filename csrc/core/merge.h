// Merges sorted segments into one without sorting again, and takes deleted documents out on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/segment.h"
#include "core/segment_file.h"
#include "core/sort.h"

namespace suffolk {

struct MergeInput {
  const Segment* segment = nullptr;
  std::span<const std::uint32_t> deleted;  // documents to leave out: indices, rising
};

struct MergeSettings {
  unsigned threads = 0;                     // 0: as many as the machine has cores
  std::uint64_t slice_suffixes = 1U << 19;  // about how many are merged at a time; the result does not depend on it
};

// Writes the segment `path`, which appears whole or not at all. It holds the remaining documents of all inputs in order, and is
// equal byte for byte to the file that write_segment makes of them.
//
//   inputs          one or more, alive until the end, with one vocabulary, tokenizer and order depth
//   document_table  of the remaining documents; stored as it is
//
// The ranks are cut into slices at sampled suffixes; slices are merged by several threads and written in order.
// Memory beside the arguments: 1/8 byte a token for the directory, 12 bytes a deleted document, some MiB a thread; the inputs
// stay mapped.
// Reads the inputs once or twice; does not verify their checksums.
// Throws kInvalidArgument (inputs that do not go together; documents that do not exist; nothing left; too many tokens),
// kCorruption (an input is damaged, where merging shows it), kResourceExhausted (disk, threads), and anything that `progress` throws.
SegmentSummary merge_segments(const std::string& path, std::span<const MergeInput> inputs, std::span<const std::byte> document_table,
                              const MergeSettings& settings, const Progress& progress);

}  // namespace suffolk
