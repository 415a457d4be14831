// The constants and fixed parts of a segment file, format version 1 (docs/reference/file-format.md). The structs have the same
// layout in memory as on disk. All numbers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace suffolk::format {

// Contains a line end and an end-of-file character, so that a transfer in text mode damages it visibly, as in PNG.
inline constexpr std::array<std::uint8_t, 8> kMagic = {0x89, 'S', 'F', 'K', '\r', '\n', 0x1A, '\n'};
inline constexpr std::array<std::uint8_t, 8> kTrailerMagic = {'\n', 0x1A, '\n', '\r', 'K', 'F', 'S', 0x89};

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint64_t kKnownReaderFlags = 0;  // a reader refuses a file that sets any other bit
inline constexpr std::size_t kAlignment = 64;
inline constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
inline constexpr std::uint32_t kMaxOrderDepth = 1024;
inline constexpr std::uint64_t kMaxTokens = 0xFFFFFFFE;  // separators included: positions are 4 bytes

enum class Section : std::uint32_t {
  kTokens = 1,          // token_count ids of token_width bytes; a separator (all bits set) ends every document
  kPositions = 2,       // suffix_count u32: the start of each suffix, in suffix order
  kFirstRanks = 3,      // vocab_size + 1 u32: for each token, the rank of the first suffix that begins with it
  kDocumentStarts = 4,  // document_count + 1 u32: where each document begins; the last entry is token_count
  kDocumentTable = 5,   // the source and metadata of each document; opaque to the core (datastore/documents.py)
  kDirectory = 6,       // the SuffixKey of every kDirectoryStride-th rank
};
inline constexpr std::size_t kSections = 6;

struct Header {
  std::array<std::uint8_t, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;    // sizeof(Header)
  std::uint64_t reader_flags;    // features that every reader must know
  std::uint64_t writer_flags;    // features that only a writer must know
  std::uint32_t token_width;     // 2, 3 or 4
  std::uint32_t position_width;  // 4
  std::uint64_t token_count;
  std::uint64_t suffix_count;
  std::uint64_t document_count;
  std::uint32_t vocab_size;
  std::uint32_t order_depth;
  std::array<std::uint8_t, 32> fingerprint;  // SHA-256 of the tokenizer, zeros if there is none
  std::uint64_t file_bytes;
  std::uint64_t table_offset;              // where the section table begins
  std::array<char, 32> writer;             // "suffolk 0.1.0", zero-filled
  std::array<std::uint8_t, 100> reserved;  // zeros
  std::uint32_t checksum;                  // CRC-32C of the preceding bytes of the header
};
static_assert(sizeof(Header) == 256);

struct SectionEntry {
  std::uint32_t id;
  std::uint32_t reserved;
  std::uint64_t offset;  // a multiple of kAlignment
  std::uint64_t bytes;
};
static_assert(sizeof(SectionEntry) == 24);

// The end of a file. It follows the section table and the chunk checksums: a u32 CRC-32C for every chunk of the bytes before the
// table.
struct Trailer {
  std::uint64_t table_offset;
  std::uint64_t file_bytes;
  std::uint32_t header_checksum;  // a copy of Header::checksum
  std::uint32_t checksum;         // CRC-32C of the table, the chunk checksums and the preceding bytes of the trailer
  std::array<std::uint8_t, 8> magic;
};
static_assert(sizeof(Trailer) == 32);

}  // namespace suffolk::format
