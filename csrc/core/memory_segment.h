// A sorted segment in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/array.h"
#include "core/live_documents.h"
#include "core/suffixes.h"

namespace suffolk {

// The vocabulary size and the order depth (the number of tokens by which suffixes are sorted) of an index's segments in memory.
struct MemoryShape {
  std::uint32_t vocab_size = 0;
  std::uint32_t order_depth = 0;
  std::uint32_t width() const noexcept { return vocab_size <= 0xFFFF ? 2 : 4; }  // bytes per token
};

// Indices of documents of one segment, rising.
using DocumentIndices = std::vector<std::uint32_t>;

// Tokens, sorted suffixes with a directory, and documents. Immutable and thread-safe once it is shared.
class MemorySegment {
 public:
  // Sorts the suffixes of `documents`. Small batches are sorted in this thread.
  // Throws kInvalidArgument, naming the document, if a document is empty or has a token id out of range, or if there
  // are too many tokens. Throws kResourceExhausted if a thread cannot be started.
  MemorySegment(std::span<const Document> documents, const MemoryShape& shape, unsigned threads);

  struct Input {
    const MemorySegment* segment;
    std::span<const std::uint32_t> removed;  // indices of the documents to leave out, in rising order
  };
  // Merges adjacent segments, in order, without their removed documents. Null if no document remains.
  static std::shared_ptr<const MemorySegment> merge(std::span<const Input> inputs, const MemoryShape& shape);

  const Suffixes& suffixes() const noexcept { return suffixes_; }
  const LiveDocuments& documents() const noexcept { return documents_; }
  std::uint64_t first_sequence() const noexcept { return documents_.sequence(0); }
  std::uint64_t last_sequence() const noexcept { return documents_.sequence(documents_.size() - 1); }
  std::uint64_t bytes() const noexcept;
  // Tokens of a document without its separator.
  std::uint64_t document_tokens(std::size_t index) const noexcept { return documents_.range(index).size(); }
  // Up to `limit` tokens of document `index`, from token `begin` on.
  std::vector<std::uint32_t> read(std::size_t index, std::uint64_t begin, std::uint64_t limit) const;

  // Numbers the documents from `first` on. REQUIRES: no other thread uses the segment yet.
  void number(std::uint64_t first) noexcept { documents_.number(first); }

 private:
  explicit MemorySegment(const MemoryShape& shape) : shape_(shape) {}
  void allocate();
  template <typename Token>
  void fill(std::span<const Document> documents, unsigned threads);
  void merge_positions(std::span<const Input> inputs);
  void finish();

  MemoryShape shape_;
  LiveDocuments documents_;
  Array<std::byte> tokens_;
  Array<std::uint32_t> positions_;
  Array<SuffixKey> directory_;
  Suffixes suffixes_;
};

}  // namespace suffolk
