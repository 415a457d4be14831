// The merges of a LiveIndex.
#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "core/live_index.h"

namespace suffolk {
namespace {

constexpr std::uint64_t kSmallMerge = 1 << 15;  // tokens of a merge that an append does itself
constexpr std::size_t kMaxDeletions = 3;        // deletion segments of documents in memory
constexpr std::uint64_t kLargeBytes = 1 << 19;  // from this size on, no query may free a segment

}  // namespace

bool LiveIndex::any_held(const Entries& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.holder != nullptr; });
}

std::size_t LiveIndex::limit(const Entries& entries) const {
  if (&entries == &deletions_) return kMaxDeletions;
  const std::size_t others = files_->segments.size() + files_->deletions.size() + kMaxDeletions;
  return std::max(kMinMemory, kMaxSearched - std::min(kMaxSearched, others));
}

std::optional<MergeRun> LiveIndex::due(const Entries& entries) const {
  const bool purges = !any_held(deletions_);  // otherwise removed documents stay
  std::vector<SegmentLoad> loads;
  for (const Entry& entry : entries) {
    loads.push_back({entry.live.segment->suffixes().count, purges ? entry.live.removed_tokens : 0, entry.holder != nullptr});
  }
  return choose_run(loads, std::min(kWanted, limit(entries)), limit(entries));
}

// Makes the small merges that are due. Leaves large merges to the background thread unless there are too many segments. If memory
// is used up, merges wait for another change.
void LiveIndex::merge_due(Lock& lock) try {
  while (!closed_) {
    bool idle = true;
    for (Entries* entries : {&deletions_, &memory_}) {
      const bool full = entries->size() > limit(*entries);
      const auto run = due(*entries);
      if (run && (full || run->tokens <= kSmallMerge)) {
        merge(lock, *entries, *run);
        idle = false;
      } else if (run) {
        changed_.notify_all();
      } else if (full && any_held(*entries)) {
        changed_.wait(lock);  // other merges hold the segments
        idle = false;
      }
      if (!idle) break;
    }
    if (idle) return;
  }
} catch (const std::bad_alloc&) {}

void LiveIndex::settle() {
  Lock lock(mutex_);
  changed_.notify_all();
  changed_.wait(lock, [&] {
    return closed_ || (!due(memory_) && !due(deletions_) && !any_held(memory_) && !any_held(deletions_) && retired_.empty() && !freeing_);
  });
}

// The segments of one merge, and the resulting segments.
struct LiveIndex::MergeJob {
  std::vector<LiveSegment> inputs;
  std::vector<LiveSegment> deletions;           // all deletions, if the merge leaves removed documents out of them too
  std::vector<std::uint64_t> purged;            // the numbers of the documents that are left out, rising
  std::shared_ptr<const MemorySegment> merged;  // null if no document remains
  std::shared_ptr<const MemorySegment> kept;    // the remaining deletions; null if none remains

  void run(const MemoryShape& shape) {
    std::vector<MemorySegment::Input> views;
    for (const LiveSegment& each : inputs) {
      views.push_back({each.segment.get(), deletions.empty() ? std::span<const std::uint32_t>() : each.removed_documents()});
      for (const std::uint32_t index : views.back().removed) purged.push_back(each.segment->documents().sequence(index));
    }
    merged = MemorySegment::merge(views, shape);
    views.clear();
    std::vector<DocumentIndices> gone(deletions.size());
    for (std::size_t i = 0; i < deletions.size(); ++i) {
      const LiveDocuments& documents = deletions[i].segment->documents();
      for (std::uint32_t index = 0; index < documents.size(); ++index) {
        if (is_purged(documents.sequence(index))) gone[i].push_back(index);
      }
      views.push_back({deletions[i].segment.get(), gone[i]});
    }
    if (!views.empty()) kept = MemorySegment::merge(views, shape);
  }

  bool is_purged(std::uint64_t sequence) const { return std::binary_search(purged.begin(), purged.end(), sequence); }

  // Replaces the segments `old` by one. Documents that the merge did not purge, or that were removed meanwhile, stay removed in it.
  void substitute(Entries& entries, std::span<const LiveSegment> old, const std::shared_ptr<const MemorySegment>& by) const {
    const auto begin = std::find_if(entries.begin(), entries.end(), [&](const Entry& each) { return each.live.segment == old.front().segment; });
    const auto end = begin + static_cast<std::ptrdiff_t>(old.size());
    std::optional<LiveSegment> live;
    if (by != nullptr) live.emplace(by);
    for (auto each = begin; live && each != end; ++each) live->remove_as_in(each->live);
    const auto after = entries.erase(begin, end);
    if (live) entries.insert(after, {*std::move(live)});
  }
};

// Merges a run, with the lock released meanwhile. If no other merge holds the deletions, removed documents are left out of the run
// and of the deletions. If memory is used up, nothing changes.
void LiveIndex::merge(Lock& lock, Entries& entries, const MergeRun& run) {
  MergeJob job;
  {
    const Hold hold(*this, lock);
    const auto take = [&](Entry& entry, std::vector<LiveSegment>& taken) {
      taken.push_back(entry.live);
      entry.holder = &hold;
    };
    const bool purges = &entries == &memory_ && !any_held(deletions_);
    for (std::size_t i = run.begin; i < run.end; ++i) take(entries[i], job.inputs);
    if (purges && std::any_of(job.inputs.begin(), job.inputs.end(), [](const LiveSegment& each) { return each.removed != nullptr; })) {
      for (Entry& entry : deletions_) take(entry, job.deletions);
    }
    lock.unlock();
    job.run(shape_);
    lock.lock();
    if (!closed_) finish(entries, job);
  }
  job = {};
  free_retired(lock);
}

// Publishes the result of a merge.
void LiveIndex::finish(const Entries& entries, const MergeJob& job) {
  Entries memory = memory_, deletions = deletions_;
  job.substitute(&entries == &memory_ ? memory : deletions, job.inputs, job.merged);
  if (!job.deletions.empty()) job.substitute(deletions, job.deletions, job.kept);
  retired_.reserve(retired_.size() + job.inputs.size() + job.deletions.size());
  publish(files_, std::move(memory), std::move(deletions));
  for (const LiveSegment& each : job.inputs) merged_tokens_ += each.segment->suffixes().count;
  for (const auto* old : {&job.inputs, &job.deletions}) {
    for (const LiveSegment& each : *old) retire(each.segment);
  }
}

void LiveIndex::work() {
  Lock lock(mutex_);
  while (!closed_) {
    bool idle = true;
    try {
      free_retired(lock);
      for (Entries* entries : {&deletions_, &memory_}) {
        const auto run = closed_ ? std::nullopt : due(*entries);
        if (!run) continue;
        idle = false;
        merge(lock, *entries, *run);
      }
    } catch (const std::bad_alloc&) {
      changed_.wait_for(lock, std::chrono::seconds(1));  // until memory is free again
      continue;
    }
    if (!idle || closed_) continue;
    if (retired_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
  }
}

// Keeps a large segment until a merging thread frees it. Freeing takes time, so no query should do it. A small segment is freed by
// the last snapshot that holds it.
// REQUIRES: retired_ has room.
void LiveIndex::retire(const std::shared_ptr<const MemorySegment>& segment) noexcept {
  if (segment->bytes() >= kLargeBytes) retired_.push_back(segment);
}

// Frees large segments that no snapshot holds.
void LiveIndex::free_retired(Lock& lock) {
  const auto used = std::partition(retired_.begin(), retired_.end(), [](const auto& each) { return each.use_count() > 1; });
  std::vector<std::shared_ptr<const MemorySegment>> unused(std::make_move_iterator(used), std::make_move_iterator(retired_.end()));
  retired_.erase(used, retired_.end());
  if (unused.empty()) return;
  ++freeing_;
  lock.unlock();
  unused.clear();
  lock.lock();
  --freeing_;
  changed_.notify_all();
}

}  // namespace suffolk
