// The segments that one query searches: published files, segments in memory, and the deletion segments of both.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/draft.h"
#include "core/memory_segment.h"
#include "core/search.h"
#include "core/segment.h"

namespace suffolk {

// The segment files of one generation. Immutable.
struct FileSet {
  std::vector<std::shared_ptr<const Segment>> segments;
  std::vector<std::shared_ptr<const Segment>> deletions;  // hold the tokens of deleted documents
  std::vector<DocumentIndices> deleted;                   // by segment: its deleted documents; unknown if this vector is empty

  // Throws kInvalidArgument if the lists of deleted documents do not fit the segments.
  void check() const;
};

// A segment in memory, and its removed documents.
struct LiveSegment {
  std::shared_ptr<const MemorySegment> segment;
  std::shared_ptr<const DocumentIndices> removed;  // null if none
  std::uint64_t removed_tokens = 0;                // tokens of the removed documents
  std::uint32_t first_live = 0;                    // the first document that is not removed; the number of documents if all are removed

  explicit LiveSegment(std::shared_ptr<const MemorySegment> all) : segment(std::move(all)) {}
  std::span<const std::uint32_t> removed_documents() const noexcept {
    return removed == nullptr ? std::span<const std::uint32_t>() : std::span(*removed);
  }
  bool is_removed(std::uint32_t document) const noexcept;
  std::uint64_t live_tokens() const noexcept { return segment->suffixes().count - removed_tokens; }
  std::uint64_t live_documents() const noexcept { return segment->documents().size() - removed_documents().size(); }
  // Removes further documents. REQUIRES: `documents` is in rising order, and none of them is removed yet.
  void remove(std::span<const std::uint32_t> documents);
  // Removes the documents whose numbers are removed in `before`. `before` may have documents that this segment does not have.
  // REQUIRES: the numbers rise in both segments, and none of these documents is removed here yet.
  void remove_as_in(const LiveSegment& before);
};

// An immutable list of segments: first the files, then the segments in memory from the oldest to the newest. Thread-safe.
class Snapshot {
 public:
  // `deletions` hold the tokens of removed documents of `memory`.
  Snapshot(std::shared_ptr<const FileSet> files, std::vector<LiveSegment> memory, std::vector<LiveSegment> deletions);

  Corpus corpus() const noexcept { return {views_, live_}; }
  const FileSet& files() const noexcept { return *files_; }
  std::span<const LiveSegment> memory() const noexcept { return memory_; }
  std::span<const LiveSegment> deletions() const noexcept { return deletions_; }

  // An occurrence: a segment (files first, then memory) and a token position in it.
  struct Place {
    std::size_t segment;
    std::uint64_t position;
  };
  // Up to `limit` occurrences of the pattern in documents that are not deleted, spread evenly over the sorted occurrences of each
  // segment. In a segment with deleted documents, at most kMaxProbes occurrences are checked, spread evenly. So occurrences can be
  // missed only if a segment has more than kMaxProbes of them.
  std::vector<Place> occurrences(std::span<const std::uint32_t> pattern, std::uint64_t limit) const;

  // The number of documents that hold the pattern and are not deleted, at most `most`. It is exact for a pattern of up to
  // kDocumentProbes * (most + kDocumentProbes) occurrences. Of a more frequent pattern, only this many occurrences are checked,
  // spread evenly. The result may then be too small, but is never too large. Throws kInvalidArgument if the deleted documents of
  // the files are unknown.
  std::uint64_t count_documents(std::span<const std::uint32_t> pattern, std::uint64_t most) const;

  // The document of an occurrence: its index in its segment.
  std::uint64_t document_at(const Place& place) const noexcept;

  // The tokens of all live documents of a group in memory, from the oldest on. Each document is followed by kEnd.
  std::vector<std::uint32_t> group_text(std::uint64_t key) const;

  // For each segment in memory, the indices of the documents with these numbers. Throws kNotFound if a number is not in memory, or
  // its document is removed. REQUIRES: `sequences` is in rising order.
  std::vector<DocumentIndices> find(std::span<const std::uint64_t> sequences) const;

  // Calls visit(place, segment, document) for every live document of a group in memory, from the oldest on. `place` is the
  // segment's index, as in Place::segment.
  template <typename Visit>
  void for_each_in_group(std::uint64_t key, const Visit& visit) const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const MemorySegment& segment = *memory_[i].segment;
      for (const std::uint32_t document : segment.documents().in_group(key)) {
        if (!memory_[i].is_removed(document)) visit(files_->segments.size() + i, segment, document);
      }
    }
  }

 private:
  static constexpr std::uint64_t kMaxProbes = 1'000'000;
  static constexpr std::uint64_t kDocumentProbes = 16;

  bool has_deleted(std::size_t segment) const noexcept;
  bool is_deleted(std::size_t segment, std::uint64_t document) const;
  std::vector<std::uint64_t> live_positions(std::size_t segment, Interval interval, std::uint64_t wanted) const;

  std::shared_ptr<const FileSet> files_;
  std::vector<LiveSegment> memory_;
  std::vector<LiveSegment> deletions_;
  std::vector<Suffixes> views_;  // in this order: files, memory, deletions of files, deletions of memory
  std::size_t live_ = 0;
};

}  // namespace suffolk
