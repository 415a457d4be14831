// A read-only memory map of a file, and a writer that publishes a file only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace suffolk {

// The expected order of the next reads of a mapping.
enum class Access {
  kRandom,      // without read-ahead, which would read 32 pages or more to get one page
  kSequential,  // with read-ahead
};

// A read-only mapping of a whole file. The bytes live as long as the object.
class MappedFile {
 public:
  // Throws kNotFound, kPermissionDenied, kInvalidArgument (a folder), or kResourceExhausted (no address space).
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(data_), size_}; }

  // Sets the expected access for all users of the mapping. At first it is kRandom. Thread-safe.
  void expect(Access access) const noexcept;
  // Starts to read a part of bytes() from the disk, without waiting for it. Thread-safe.
  void prefetch(std::span<const std::byte> part) const noexcept;
  // Reads a part of bytes() and maps its pages, so that later reads cause no page faults. Waits for the disk. Thread-safe.
  void populate(std::span<const std::byte> part) const noexcept;
  // Reads the whole file and locks it in memory. Throws kResourceExhausted, naming the limit, if the system refuses.
  void lock() const;

  // The number of bytes of the file in the page cache, whichever process read them. For files above 4 GiB, this is an estimate from
  // a sample of a million pages. None if the system refuses to answer: it answers only the file's owner and users who may write the
  // file.
  std::optional<std::uint64_t> resident_bytes() const;

 private:
  std::string path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool observable_ = false;
};

// A part of file->bytes(), valid as long as the file lives.
struct FilePart {
  std::weak_ptr<const MappedFile> file;
  std::span<const std::byte> bytes;
};

// Starts a thread that reads the parts into memory, one after another. It skips parts of files that are closed. The system may
// evict the pages later. A forked child does not inherit the thread. Throws kResourceExhausted if no thread can be started.
void warm(std::vector<FilePart> parts);

// Writes a file under a temporary name, and computes the CRC-32C of every chunk. `commit` gives the complete file its final name.
// If `commit` is not called, the destructor removes the file.
class FileWriter {
 public:
  // Reserves `size` bytes of disk if the file system can, so that a full disk is detected before any work.
  // Throws kNotFound (no such folder), kPermissionDenied, kResourceExhausted (disk full).
  FileWriter(const std::string& path, std::uint64_t size, std::size_t chunk_bytes);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  // Throws kResourceExhausted if the disk is full.
  void write(std::span<const std::byte> bytes);
  // Writes zeros up to the next multiple of `alignment`.
  void align(std::size_t alignment);
  std::uint64_t offset() const noexcept { return offset_; }

  // Ends the current chunk, which may be shorter than the others. Returns the CRC-32C of every chunk.
  std::vector<std::uint32_t> finish_chunks();

  // Syncs the file to disk, renames it, and syncs the folder.
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
