// Files: a read-only memory map, and a writer that publishes a whole file or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace suffolk {

// A read-only mapping of a whole file; owns it. The bytes live as long as the object. Movable, not copyable.
class MappedFile {
 public:
  // Throws kNotFound, kPermissionDenied, kInvalidArgument (a folder), or kResourceExhausted (no address space).
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Writes `path` under a temporary name; the file appears under its own, whole and on disk, with `commit` alone. Without
// commit the destructor removes the temporary file. Collects the CRC-32C of every chunk as it goes.
class FileWriter {
 public:
  // Reserves `size` bytes of disk where the file system can, so that a full disk is known before any work.
  // Throws kNotFound (no such folder), kPermissionDenied, kResourceExhausted (disk full).
  FileWriter(const std::string& path, std::uint64_t size, std::size_t chunk_bytes);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  // Throws kResourceExhausted when the disk is full.
  void write(std::span<const std::byte> bytes);
  // Zeros up to a multiple of `alignment`.
  void align(std::size_t alignment);
  std::uint64_t offset() const noexcept { return offset_; }

  // The CRC-32C of each chunk of what was written so far; the last chunk may be shorter. Ends a chunk.
  std::vector<std::uint32_t> finish_chunks();

  // Flushes to the disk, renames, and flushes the folder.
  void commit();

 private:
  void flush();

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  std::uint64_t offset_ = 0;
  std::size_t chunk_bytes_;
  std::vector<std::byte> chunk_;
  std::vector<std::uint32_t> checksums_;
};

}  // namespace suffolk
