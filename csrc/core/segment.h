// A segment file, mapped and validated (docs/reference/file-format.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/file.h"
#include "core/format.h"
#include "core/segment_file.h"
#include "core/sort.h"
#include "core/suffixes.h"

namespace suffolk {

enum class Depth { kHeaders, kChecksums, kFull };

// An open segment file. Immutable and thread-safe. It owns the mapping of the file, so views must not outlive it.
class Segment {
 public:
  // Maps the file. Checks header, section table and trailer, and all sizes against the real file size, in constant time. The
  // content of the sections is not checked here: each value is checked when it is read. Throws kNotFound, kPermissionDenied,
  // kCorruption, kUnsupported (a newer format).
  explicit Segment(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const Suffixes& suffixes() const noexcept { return suffixes_; }
  const format::Header& header() const noexcept { return header_; }
  // The trailer's checksum, which depends on every byte of the file.
  std::uint32_t checksum() const noexcept { return checksum_; }
  // The mapping, to control which of its pages are in memory.
  const std::shared_ptr<const MappedFile>& file() const noexcept { return file_; }
  // The two small sections that every search reads first: the first ranks and the directory.
  std::array<FilePart, 2> hot_parts() const {
    return {FilePart{file_, section(format::Section::kFirstRanks)}, {file_, section(format::Section::kDirectory)}};
  }
  std::span<const std::byte> document_table() const noexcept { return section(format::Section::kDocumentTable); }

  // The index of the document that holds this token position, or document_count if no document does. O(log documents).
  std::uint64_t document_at(std::uint64_t position) const noexcept;
  // The token positions of document `index`, without its separator. They never pass the end of the tokens.
  // REQUIRES: index < header().document_count
  Interval document_range(std::uint64_t index) const noexcept;
  // Throws kInvalidArgument unless these document indices rise and exist.
  void require_documents(std::span<const std::uint32_t> deleted) const;

  // Throws kCorruption, naming the place, if the file is damaged. kHeaders checks no more than the constructor. kChecksums reads
  // the whole file once. kFull also checks the order of all positions, the documents and the directory, with 1 bit of memory for
  // each token.
  void verify(Depth depth, const Progress& progress) const;

 private:
  std::span<const std::byte> section(format::Section id) const noexcept;
  std::span<const std::uint32_t> numbers(format::Section id) const noexcept;
  void validate();
  void verify_checksums(const Progress& progress) const;
  void verify_order(const Progress& progress) const;
  void verify_directory() const;
  void verify_documents() const;
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... problem) const;

  std::string path_;
  std::shared_ptr<const MappedFile> file_;  // shared with the thread that reads the file into memory
  format::Header header_ = {};
  std::uint32_t checksum_ = 0;
  SectionTable table_ = {};
  Suffixes suffixes_;
};

}  // namespace suffolk
