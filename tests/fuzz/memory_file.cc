#include "memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/crc32c.h"
#include "core/format.h"
#include "core/segment_writer.h"

namespace suffolk::fuzz {
namespace {

template <typename T>
void put(Bytes& file, std::size_t offset, const T& value) {
  std::memcpy(file.data() + offset, &value, sizeof(T));
}

}  // namespace

MemoryFile::MemoryFile(std::span<const std::byte> content) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  require(descriptor_ >= 0, "a file in memory");
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor_, content.data(), content.size());
    require(written > 0, "writing to memory");
    content = content.subspan(static_cast<std::size_t>(written));
  }
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

void mend_checksums(Bytes& file) {
  using format::Header, format::Trailer;
  if (file.size() < sizeof(Header) + sizeof(Trailer)) return;
  Header header;
  std::memcpy(&header, file.data(), sizeof(header));
  header.checksum = crc32c(std::span(file).first(offsetof(Header, checksum)));
  put(file, 0, header);
  const std::size_t trailer_offset = file.size() - sizeof(Trailer);
  const std::uint64_t end = header.table_offset;
  if (end > trailer_offset) return;
  const std::uint64_t sums = end + format::kSections * sizeof(format::SectionEntry);
  for (std::uint64_t chunk = 0, at = 0; at < end && sums + (chunk + 1) * 4 <= trailer_offset; ++chunk, at += format::kChunkBytes) {
    put(file, sums + chunk * 4, crc32c(std::span(file).subspan(at, std::min<std::size_t>(format::kChunkBytes, end - at))));
  }
  Trailer trailer = {.table_offset = end, .file_bytes = file.size(), .header_checksum = header.checksum, .checksum = 0, .magic = format::kTrailerMagic};
  put(file, trailer_offset, trailer);
  trailer.checksum = crc32c(std::span(file).subspan(end, trailer_offset - end + offsetof(Trailer, checksum)));
  put(file, trailer_offset, trailer);
}

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

Bytes write_sample(const std::vector<std::vector<std::uint32_t>>& documents, std::uint32_t vocab_size, std::uint32_t order_depth) {
  std::vector<std::uint32_t> tokens;
  for (const auto& document : documents) {
    tokens.insert(tokens.end(), document.begin(), document.end());
    tokens.push_back(0xFFFFFFFF);
  }
  const auto path = std::filesystem::temp_directory_path() / ("suffolk-fuzz-" + std::to_string(::getpid()));
  const SegmentSettings settings = {.vocab_size = vocab_size, .order_depth = order_depth, .fingerprint = {}, .threads = 1};
  write_segment<std::uint32_t>(path, tokens, {}, settings, {});
  std::ifstream stream(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  std::filesystem::remove(path);
  const auto bytes = std::as_bytes(std::span(content));
  return {bytes.begin(), bytes.end()};
}

}  // namespace suffolk::fuzz
