// Files: a read-only memory map, and a writer that publishes a whole file or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace suffolk {

// How a mapping will be read next.
enum class Access {
  kRandom,      // each page when it is first read, and it alone: read-ahead would bring 32 pages or more for one
  kSequential,  // with much read-ahead
};

// A read-only mapping of a whole file; owns it. The bytes live as long as the object. Neither copied nor moved.
class MappedFile {
 public:
  // Throws kNotFound, kPermissionDenied, kInvalidArgument (a folder), or kResourceExhausted (no address space).
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(data_), size_}; }

  // Advice about the whole mapping, for all its users until the next advice; kRandom at first. Thread-safe.
  void expect(Access access) const noexcept;
  // Asks for a part of bytes() soon, without waiting for it. Thread-safe.
  void prefetch(std::span<const std::byte> part) const noexcept;
  // Reads a part of bytes() in and maps it, so that not even a minor fault is left. Waits for the disk. Thread-safe.
  void populate(std::span<const std::byte> part) const noexcept;
  // Reads everything in and keeps it there. Throws kResourceExhausted, naming the limit, when the system refuses.
  void lock() const;

  // Bytes of the file in the page cache, brought there by any process; of files above 4 GiB an estimate from a sample of a million
  // pages. None where the system refuses: only the file's owner and users with write permission may ask.
  std::optional<std::uint64_t> resident_bytes() const;

 private:
  std::string path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool observable_ = false;
};

// A part of a mapping: bytes of file->bytes(), as long as the file lives.
struct FilePart {
  std::weak_ptr<const MappedFile> file;
  std::span<const std::byte> bytes;
};

// Starts a thread that reads the parts in, one after the other, while they are used; pages may leave again. It skips
// files that were closed meanwhile; a forked child does not inherit the thread. Throws kResourceExhausted when there can be none.
void warm(std::vector<FilePart> parts);

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
