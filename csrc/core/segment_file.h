// Writes a segment file: header, layout of the sections, checksums and trailer (docs/reference/file-format.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/file.h"
#include "core/format.h"

namespace suffolk {

// The numbers that determine the layout of a segment file. 1 <= token_count <= format::kMaxTokens.
struct SegmentShape {
  std::uint32_t vocab_size = 0;
  std::uint32_t order_depth = 0;
  std::array<std::uint8_t, 32> fingerprint = {};
  std::uint64_t token_count = 0;  // separators included
  std::uint64_t document_count = 0;
  std::uint64_t document_table_bytes = 0;
};

struct SegmentSummary {
  std::uint64_t tokens = 0;  // without separators
  std::uint64_t documents = 0;
  std::uint64_t bytes = 0;     // size of the file
  std::uint32_t checksum = 0;  // the trailer's checksum, which depends on every byte of the file
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Bytes that a token takes in a file: 2, 3 or 4.
std::uint32_t token_width(std::uint32_t vocab_size) noexcept;

using SectionTable = std::array<format::SectionEntry, format::kSections>;

// The place of every section, for tokens of `width` bytes.
SectionTable lay_out(const SegmentShape& shape, std::uint32_t width) noexcept;

// Where the section table begins: at the next multiple of format::kAlignment after the last section.
std::uint64_t table_offset(const SectionTable& table) noexcept;

// Writes the content of the sections, which the caller gives in order and in any number of pieces. `commit` gives the complete file
// its name. Not thread-safe. Memory: one chunk (format::kChunkBytes).
class SegmentFile {
 public:
  // Reserves disk space for the whole file. Throws the same errors as FileWriter.
  SegmentFile(const std::string& path, const SegmentShape& shape);

  // Writes the next bytes of the current section.
  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  // Writes the whole current section, or the rest of it.
  void write_section(std::span<const std::byte> bytes) {
    write(bytes);
    end_section();
  }
  // Ends the current section. Throws kInternal if its size differs from the layout.
  void end_section();
  // REQUIRES: all sections are complete.
  SegmentSummary commit();

 private:
  SectionTable table_;
  format::Header header_ = {};
  std::size_t section_ = 0;  // index of the section that is being written
  FileWriter file_;
};

}  // namespace suffolk
