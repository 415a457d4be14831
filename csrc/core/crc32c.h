// CRC-32C (Castagnoli), the checksum of every chunk of a segment file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace suffolk {

// The CRC-32C of `bytes`, continuing from `crc` (0 to begin). About 2 GB/s on one core, without special instructions. Thread-safe.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

}  // namespace suffolk
