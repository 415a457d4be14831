// Shared by the fuzz targets: files in memory, valid checksums for any bytes, and bytes read as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace suffolk::fuzz {

using Bytes = std::vector<std::byte>;

// A file without a place on disk, which opens by its path like any other. Owns it.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> content);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// Gives a segment file valid checksums where there is room for them, so that readers go on behind them. Leaves all sizes and offsets
// unchanged.
void mend_checksums(Bytes& file);

// Reads numbers off the front of the input; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}

  bool empty() const noexcept { return left_.empty(); }
  template <typename T>
  T take() {
    T value = 0;
    const std::size_t bytes = left_.size() < sizeof(T) ? left_.size() : sizeof(T);
    if (bytes > 0) std::memcpy(&value, left_.data(), bytes);
    left_ = left_.subspan(bytes);
    return value;
  }
  // REQUIRES: least <= most < 2^16
  std::uint32_t between(std::uint32_t least, std::uint32_t most) { return least + take<std::uint16_t>() % (most - least + 1); }

 private:
  std::span<const std::uint8_t> left_;
};

// Aborts with a message unless `condition` holds.
void require(bool condition, const char* what);

// The bytes of a small sound segment of `documents` with `vocab_size` ids, made by the writer.
Bytes write_sample(const std::vector<std::vector<std::uint32_t>>& documents, std::uint32_t vocab_size, std::uint32_t order_depth);

}  // namespace suffolk::fuzz
