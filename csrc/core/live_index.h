// An index that grows while it is searched. It searches published segment files together with newer segments in memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "core/memory_segment.h"
#include "core/merge_policy.h"
#include "core/snapshot.h"

namespace suffolk {

inline constexpr std::size_t kMaxSearched = 16;  // most segments of a search, deletion segments included
inline constexpr std::size_t kMinMemory = 6;     // segments allowed in memory even if a search then has more than kMaxSearched
inline constexpr std::size_t kWanted = 8;        // segments in memory while no merge runs; a higher value makes appends faster and drafts slower

struct LiveStats {
  std::uint64_t tokens = 0;         // in memory, without separators and removed documents
  std::uint64_t documents = 0;      // in memory, without removed ones
  std::uint64_t bytes = 0;          // of segments in memory
  std::uint64_t segments = 0;       // searched in all: files, memory, and the deletion segments of both
  std::uint64_t deletions = 0;      // part of `segments`: segments with the removed documents of memory
  std::uint64_t merge_debt = 0;     // tokens in merges that run or are due
  std::uint64_t merged_tokens = 0;  // tokens written by merges so far
  std::uint64_t next_sequence = 0;
  std::uint64_t oldest_sequence = 0;  // of the documents in memory; 0 if there are none
  std::int64_t oldest_time = 0;       // of the document `oldest_sequence`
};

// Thread-safe: any number of threads may append, remove and take snapshots at the same time.
//
// An append sorts its documents into one new segment outside of all locks, then publishes a new snapshot. Merges keep the number of
// segments low (merge_policy.h). Small merges run in the appending thread, large merges in one background thread. If there are too
// many segments meanwhile, large merges also run in the appending thread. When a document is removed, its tokens are also added to
// a deletion segment, whose counts are subtracted. A later merge leaves the document out of both segments.
class LiveIndex {
 public:
  // Starts the background thread. A large append is sorted by `threads` threads. Throws kInvalidArgument if `shape` is out of range,
  // and kResourceExhausted if the thread cannot be started.
  LiveIndex(const MemoryShape& shape, unsigned threads);
  LiveIndex(const LiveIndex&) = delete;
  LiveIndex& operator=(const LiveIndex&) = delete;
  ~LiveIndex();

  // Appends documents and removes others, in one snapshot. Returns the number of the first document. Numbers that the caller gives
  // must rise and exceed all earlier numbers. Throws kInvalidArgument for a bad document, and kNotFound if a number to remove is
  // unknown; then nothing is changed.
  std::uint64_t append(std::span<const Document> documents, std::span<const std::uint64_t> removed = {});

  // Removes documents in memory by number; a number may be given twice. Returns how many were removed. If a number is not in
  // memory, throws kNotFound and removes nothing.
  std::uint64_t remove(std::span<const std::uint64_t> sequences);

  // In one snapshot, replaces the searched files by `files`, and drops the documents in memory up to number `flushed_through`. If
  // `grouped_stay` is true, documents with a group stay. Documents appended later get numbers above `flushed_through`. Throws
  // kInvalidArgument for files of another vocabulary or a smaller order depth.
  void rebase(std::shared_ptr<const FileSet> files, std::uint64_t flushed_through, bool grouped_stay = false);

  // Drops the oldest segments in memory whose documents all have numbers below `sequence`. Returns the number of dropped documents.
  std::uint64_t drop_before(std::uint64_t sequence);

  // Drops all documents in memory. Later appends may give any numbers. REQUIRES: no other call changes the index at the same time.
  void clear();

  // The current segments. Blocks at most while another thread copies a pointer. Throws kUnavailable if the index is closed.
  std::shared_ptr<const Snapshot> snapshot() const;
  LiveStats stats() const;

  // Waits until no merge is running or due, and all replaced segments are freed. Running queries delay this.
  void settle();
  // Ends the background thread and releases all segments. Later calls throw kUnavailable. May be called twice.
  void close();

 private:
  class Hold;
  struct Entry {
    LiveSegment live;
    const Hold* holder = nullptr;  // the merge or rebase that holds this segment
  };
  using Entries = std::vector<Entry>;
  struct MergeJob;
  using Lock = std::unique_lock<std::mutex>;

  // Holds segments for one merge or rebase, so that no other merge or rebase takes them. The destructor locks the mutex and
  // releases the segments that are still held.
  class Hold {
   public:
    Hold(LiveIndex& index, Lock& lock) : index_(index), lock_(lock) {}
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold();

   private:
    LiveIndex& index_;
    Lock& lock_;
  };

  std::shared_ptr<MemorySegment> sort_removed(std::span<const std::uint64_t> sequences) const;
  void hide(std::span<const std::uint64_t> sequences, std::shared_ptr<MemorySegment> deletion, Entries& memory, Entries& deletions) const;
  void replace(Lock& lock, std::shared_ptr<const FileSet> files, std::uint64_t through, bool grouped_stay);
  bool reserve(std::uint64_t through, const Hold& hold);
  void publish(std::shared_ptr<const FileSet> files, Entries memory, Entries deletions);
  void require_open() const;

  // live_merge.cc
  static bool any_held(const Entries& entries);
  std::optional<MergeRun> due(const Entries& entries) const;
  std::size_t limit(const Entries& entries) const;
  void merge_due(Lock& lock);
  void merge(Lock& lock, Entries& entries, const MergeRun& run);
  void finish(const Entries& entries, const MergeJob& job);
  void work();
  void retire(const std::shared_ptr<const MemorySegment>& segment) noexcept;
  void free_retired(Lock& lock);

  const MemoryShape shape_;
  const unsigned threads_;
  std::mutex retiring_;              // held by one rebase or drop at a time; always locked before mutex_
  mutable std::mutex mutex_;         // guards everything below except snapshot_
  std::condition_variable changed_;  // a merge began, ended or is due, or the index was closed
  std::shared_ptr<const FileSet> files_ = std::make_shared<FileSet>();
  Entries memory_;                                             // from the oldest on
  Entries deletions_;                                          // segments with the removed documents of memory_
  std::vector<std::shared_ptr<const MemorySegment>> retired_;  // large replaced segments that wait to be freed; see retire
  int freeing_ = 0;                                            // threads that free retired segments
  std::uint64_t next_sequence_ = 1;
  std::uint64_t merged_tokens_ = 0;
  bool closed_ = false;
  mutable std::mutex snapshot_mutex_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::jthread worker_;  // last: it uses all of the above
};

}  // namespace suffolk
