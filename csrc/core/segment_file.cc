#include "core/segment_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/suffixes.h"

namespace suffolk {
namespace {

std::uint64_t aligned(std::uint64_t offset) { return (offset + format::kAlignment - 1) / format::kAlignment * format::kAlignment; }

format::Header make_header(const SegmentShape& shape, std::uint64_t table_offset) {
  const std::uint64_t chunks = (table_offset + format::kChunkBytes - 1) / format::kChunkBytes;
  format::Header header = {};
  header.magic = format::kMagic;
  header.version = format::kVersion;
  header.header_bytes = sizeof(header);
  header.token_width = token_width(shape.vocab_size);
  header.position_width = 4;
  header.token_count = shape.token_count;
  header.suffix_count = shape.token_count - shape.document_count;
  header.document_count = shape.document_count;
  header.vocab_size = shape.vocab_size;
  header.order_depth = shape.order_depth;
  header.fingerprint = shape.fingerprint;
  header.file_bytes = table_offset + sizeof(SectionTable) + chunks * 4 + sizeof(format::Trailer);
  header.table_offset = table_offset;
  constexpr std::string_view kWriter = "suffolk " SUFFOLK_VERSION;
  std::memcpy(header.writer.data(), kWriter.data(), std::min(kWriter.size(), header.writer.size()));
  header.checksum = crc32c(bytes_of(header).first(offsetof(format::Header, checksum)));
  return header;
}

}  // namespace

std::uint32_t token_width(std::uint32_t vocab_size) noexcept {
  if (vocab_size <= 0xFFFF) return 2;
  return vocab_size <= 0xFFFFFF ? 3 : 4;
}

SectionTable lay_out(const SegmentShape& shape, std::uint32_t width) noexcept {
  const std::uint64_t suffixes = shape.token_count - shape.document_count;
  const std::array<std::uint64_t, format::kSections> sizes = {shape.token_count * width,
                                                              suffixes * 4,
                                                              (std::uint64_t{shape.vocab_size} + 1) * 4,
                                                              (shape.document_count + 1) * 4,
                                                              shape.document_table_bytes,
                                                              directory_entries(suffixes) * sizeof(SuffixKey)};
  SectionTable table;
  std::uint64_t offset = sizeof(format::Header);
  for (std::uint32_t i = 0; i < format::kSections; ++i) {
    table[i] = {.id = i + 1, .reserved = 0, .offset = offset, .bytes = sizes[i]};
    offset = aligned(offset + sizes[i]);
  }
  return table;
}

std::uint64_t table_offset(const SectionTable& table) noexcept { return aligned(table.back().offset + table.back().bytes); }

SegmentFile::SegmentFile(const std::string& path, const SegmentShape& shape)
    : table_(lay_out(shape, token_width(shape.vocab_size))),
      header_(make_header(shape, table_offset(table_))),
      file_(path, header_.file_bytes, format::kChunkBytes) {
  file_.write(bytes_of(header_));
}

void SegmentFile::end_section() {
  const format::SectionEntry& entry = table_[section_++];
  if (file_.offset() != entry.offset + entry.bytes) {
    fail(Code::kInternal, "section ", entry.id, " was given ", file_.offset() - entry.offset, " bytes, not ", entry.bytes);
  }
  file_.align(format::kAlignment);
}

SegmentSummary SegmentFile::commit() {
  const std::vector<std::uint32_t> checksums = file_.finish_chunks();
  format::Trailer trailer = {.table_offset = header_.table_offset,
                             .file_bytes = header_.file_bytes,
                             .header_checksum = header_.checksum,
                             .checksum = 0,
                             .magic = format::kTrailerMagic};
  trailer.checksum = crc32c(std::as_bytes(std::span(table_)));
  trailer.checksum = crc32c(std::as_bytes(std::span(checksums)), trailer.checksum);
  trailer.checksum = crc32c(bytes_of(trailer).first(offsetof(format::Trailer, checksum)), trailer.checksum);
  file_.write(std::as_bytes(std::span(table_)));
  file_.write(std::as_bytes(std::span(checksums)));
  file_.write(bytes_of(trailer));
  file_.commit();
  return {.tokens = header_.suffix_count, .documents = header_.document_count, .bytes = header_.file_bytes, .checksum = trailer.checksum};
}

}  // namespace suffolk
