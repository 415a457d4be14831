// Merges sorted segments into one without sorting again, and leaves out deleted documents.
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
  std::span<const std::uint32_t> deleted;  // indices of the documents to leave out, rising
};

struct MergeSettings {
  unsigned threads = 0;                     // 0: as many as the machine has cores
  std::uint64_t slice_suffixes = 1U << 19;  // approximate number merged at a time; the result does not depend on it
};

// Writes the segment `path` completely, or not at all. It holds the remaining documents of all inputs in order. The file
// equals, byte for byte, the file that write_segment makes of these documents.
//
//   inputs          one or more, alive until the end, with one vocabulary, tokenizer and order depth
//   document_table  the table of the remaining documents; stored unchanged
//
// The ranks are cut into slices at sampled suffixes. Several threads merge slices, which are written in order.
// Memory beside the arguments: 1/8 byte a token for the directory, 12 bytes a deleted document, some MiB a thread.
// Reads the inputs once or twice; does not verify their checksums.
// Throws kInvalidArgument (inputs that differ in vocabulary, tokenizer or depth; deleted documents that do not exist; nothing
// left; too many tokens), kCorruption (an input is damaged, if merging detects it), kResourceExhausted (disk, threads), and
// anything that `progress` throws.
SegmentSummary merge_segments(const std::string& path, std::span<const MergeInput> inputs, std::span<const std::byte> document_table,
                              const MergeSettings& settings, const Progress& progress);

}  // namespace suffolk
