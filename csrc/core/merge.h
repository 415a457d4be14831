// Merges sorted segments into one segment file. Deleted documents are left out, and nothing is sorted again.
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
  std::span<const std::uint32_t> deleted;  // indices of the documents to leave out, in rising order
};

struct MergeSettings {
  unsigned threads = 0;                     // 0: one for each core that the calling thread may use
  std::uint64_t slice_suffixes = 1U << 19;  // approximate number of suffixes merged at a time; does not change the result
};

// Writes the segment file `path` completely, or not at all. It holds the remaining documents of all inputs, in order. The file
// equals, byte for byte, the file that write_segment would make of these documents.
//
//   inputs          one or more segments with the same vocabulary, tokenizer and order depth; they must outlive the call
//   document_table  the table of the remaining documents; stored unchanged
//
// The sorted suffixes are cut into slices. Several threads merge slices, which are written in order. Memory beside the arguments:
// 1/8 byte for each token (the directory), 12 bytes for each deleted document, and some MiB for each thread. Reads the inputs once
// or twice, without verifying their checksums.
//
// Throws kInvalidArgument if inputs differ in vocabulary, tokenizer or order depth, if a deleted document does not exist, if no
// document remains, or if there are too many tokens. Throws kCorruption if merging detects damage in an input, and
// kResourceExhausted if disk space or threads are used up. Also throws anything that `progress` throws.
SegmentSummary merge_segments(const std::string& path, std::span<const MergeInput> inputs, std::span<const std::byte> document_table,
                              const MergeSettings& settings, const Progress& progress);

}  // namespace suffolk
