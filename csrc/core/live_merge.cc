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
constexpr std::uint64_t kLargeBytes = 1 << 19;  // of a segment that only the background thread frees

}  // namespace

bool LiveIndex::any_busy(const Entries& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.busy; });
}

std::size_t LiveIndex::limit(const Entries& entries) const {
  if (&entries == &deletions_) return kMaxDeletions;
  const std::size_t others = files_->segments.size() + files_->deletions.size() + kMaxDeletions;
  return std::max(kMinMemory, kMaxSearched - std::min(kMaxSearched, others));
}

std::optional<MergeRun> LiveIndex::due(const Entries& entries) const {
  const bool purges = !any_busy(deletions_);  // otherwise removed documents stay
  std::vector<SegmentLoad> loads;
  for (const Entry& entry : entries) {
    loads.push_back({entry.live.segment->suffixes().count, purges ? entry.live.removed_tokens : 0, entry.busy});
  }
  return choose_run(loads, limit(entries));
}

// Merges what is small; leaves the rest to the background thread unless there are too many segments.
void LiveIndex::merge_due(Lock& lock) {
  while (!closed_) {
    bool idle = true;
    for (Entries* entries : {&deletions_, &memory_}) {
      const bool full = entries->size() > limit(*entries);
      const auto run = due(*entries);
      if (run && (full || run->tokens <= kSmallMerge)) {
        if (!merge(lock, *entries, *run)) return;
        idle = false;
      } else if (run) {
        changed_.notify_all();
      } else if (full && any_busy(*entries)) {
        changed_.wait(lock);  // other merges hold the segments
        idle = false;
      }
      if (!idle) break;
    }
    if (idle) return;
  }
}

void LiveIndex::settle() {
  Lock lock(mutex_);
  changed_.notify_all();
  changed_.wait(lock, [&] { return closed_ || (!due(memory_) && !due(deletions_) && !any_busy(memory_) && !any_busy(deletions_) && retired_.empty()); });
}

// Merges a run, with the lock released meanwhile. Removed documents are left out, of the deletions too, if no other merge
// holds the deletions. False, and nothing changes, if memory is used up.
bool LiveIndex::merge(Lock& lock, Entries& entries, const MergeRun& run) {
  using Segments = std::vector<LiveSegment>;
  const auto take = [](Entry& entry, Segments& taken) {
    taken.push_back(entry.live);
    entry.busy = true;
  };
  Segments inputs, deletions;
  for (std::size_t i = run.begin; i < run.end; ++i) take(entries[i], inputs);
  const bool purge = &entries == &memory_ && !any_busy(deletions_) &&
                     std::any_of(inputs.begin(), inputs.end(), [](const LiveSegment& each) { return each.removed != nullptr; });
  if (purge) {
    for (Entry& entry : deletions_) take(entry, deletions);
  }
  lock.unlock();
  std::shared_ptr<const MemorySegment> merged, kept;
  std::vector<MemorySegment::Input> views;
  std::vector<std::uint64_t> purged;
  bool done = true;
  try {
    for (const LiveSegment& each : inputs) {
      views.push_back({each.segment.get(), purge ? each.removed_documents() : std::span<const std::uint32_t>()});
      for (const std::uint32_t index : views.back().removed) purged.push_back(each.segment->documents().sequence(index));
    }
    merged = MemorySegment::merge(views, shape_);
    std::vector<DocumentIndices> lists(deletions.size());
    views.clear();
    for (std::size_t i = 0; i < deletions.size(); ++i) {
      const LiveDocuments& documents = deletions[i].segment->documents();
      for (std::uint32_t index = 0; index < documents.size(); ++index) {
        if (std::binary_search(purged.begin(), purged.end(), documents.sequence(index))) lists[i].push_back(index);
      }
      views.push_back({deletions[i].segment.get(), lists[i]});
    }
    if (purge) kept = MemorySegment::merge(views, shape_);
  } catch (const std::bad_alloc&) {
    done = false;
  }
  lock.lock();
  const auto place = [](Entries& all, const LiveSegment& first) {
    return std::find_if(all.begin(), all.end(), [&](const Entry& each) { return each.live.segment == first.segment; });
  };
  const auto replace = [&](Entries& all, const Segments& old, const std::shared_ptr<const MemorySegment>& by) {
    const auto begin = place(all, old.front()), end = begin + static_cast<std::ptrdiff_t>(old.size());
    if (!done) {
      for (auto each = begin; each != end; ++each) each->busy = false;
      return;
    }
    DocumentIndices removed;  // documents of the new segment that are removed: meanwhile, or not purged
    for (auto each = begin; each != end; ++each) {
      retire(each->live.segment);
      for (const std::uint32_t index : each->live.removed_documents()) {
        const std::uint64_t sequence = each->live.segment->documents().sequence(index);
        if (!std::binary_search(purged.begin(), purged.end(), sequence)) removed.push_back(static_cast<std::uint32_t>(by->documents().lower_bound(sequence)));
      }
    }
    const auto after = all.erase(begin, end);
    if (by == nullptr) return;
    LiveSegment live(by);
    if (!removed.empty()) live.remove(removed);
    all.insert(after, {std::move(live)});
  };
  if (!closed_) {
    replace(entries, inputs, merged);
    if (!deletions.empty()) replace(deletions_, deletions, kept);
    if (done) {
      merged_tokens_ += run.tokens;
      publish();
    }
  }
  changed_.notify_all();
  return done;
}

void LiveIndex::work() {
  Lock lock(mutex_);
  while (!closed_) {
    free_retired(lock);
    bool idle = true;
    for (Entries* entries : {&deletions_, &memory_}) {
      const auto run = closed_ ? std::nullopt : due(*entries);
      if (!run) continue;
      if (!merge(lock, *entries, *run)) changed_.wait_for(lock, std::chrono::seconds(1));  // until memory is free again
      idle = false;
    }
    if (!idle || closed_) continue;
    if (retired_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
  }
}

// Keeps a large segment until the background thread frees it, so that no query does: that takes time. Small ones are freed by the
// last snapshot that holds them.
void LiveIndex::retire(const std::shared_ptr<const MemorySegment>& segment) {
  if (segment->bytes() >= kLargeBytes) retired_.push_back(segment);
}

// Frees large segments that no snapshot holds.
void LiveIndex::free_retired(Lock& lock) {
  const auto used = std::partition(retired_.begin(), retired_.end(), [](const auto& each) { return each.use_count() > 1; });
  std::vector<std::shared_ptr<const MemorySegment>> unused(std::make_move_iterator(used), std::make_move_iterator(retired_.end()));
  retired_.erase(used, retired_.end());
  if (unused.empty()) return;
  lock.unlock();
  unused.clear();
  lock.lock();
  changed_.notify_all();
}

}  // namespace suffolk
