#include "core/live_index.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/parallel.h"

namespace suffolk {
namespace {

std::vector<std::uint64_t> sorted_set(std::span<const std::uint64_t> sequences) {
  std::vector<std::uint64_t> sorted(sequences.begin(), sequences.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

void check_sequences(std::span<const Document> documents, std::uint64_t next) {
  if (documents.front().sequence == 0) next = 0;
  for (const Document& document : documents) {
    if (next == 0 ? document.sequence != 0 : document.sequence < next) {
      refuse("document number ", document.sequence, "; numbers must rise and be at least ", next, ", or be 0 for all documents");
    }
    if (next != 0) next = document.sequence + 1;
  }
}

void check(const FileSet& files, const MemoryShape& shape) {
  if (!files.deletions.empty() && files.deleted.empty()) refuse("files with deletions need the lists of deleted documents");
  for (const auto* list : {&files.segments, &files.deletions}) {
    for (const auto& segment : *list) {
      if (segment->header().vocab_size != shape.vocab_size || segment->header().order_depth < shape.order_depth) {
        refuse(segment->path(), " has a vocabulary of ", segment->header().vocab_size, " ids and order depth ", segment->header().order_depth,
               "; the live index has ", shape.vocab_size, " and ", shape.order_depth, ": build both with the same settings");
      }
    }
  }
}

// The documents of a segment up to number `through`; if `grouped_stay`, only documents without a group. In a segment of deletions,
// documents are in the order of their removal.
DocumentIndices documents_through(const LiveDocuments& documents, std::uint64_t through, bool grouped_stay) {
  DocumentIndices indices;
  for (std::uint32_t i = 0; i < documents.size(); ++i) {
    if (documents.sequence(i) <= through && (!grouped_stay || documents.group(i) == kNoGroup)) indices.push_back(i);
  }
  return indices;
}

}  // namespace

LiveIndex::LiveIndex(const MemoryShape& shape, unsigned threads) : shape_(shape), threads_(thread_count(threads)) {
  if (shape.vocab_size == 0 || shape.vocab_size == kEnd) refuse("vocab_size is ", shape.vocab_size, "; it must be 1 to 4294967294");
  if (shape.order_depth == 0 || shape.order_depth > format::kMaxOrderDepth) {
    refuse("order_depth is ", shape.order_depth, "; it must be 1 to ", format::kMaxOrderDepth);
  }
  publish(files_, {}, {});
  try {
    worker_ = std::jthread([this] { work(); });
  } catch (const std::system_error& error) { fail_thread(error); }
}

LiveIndex::~LiveIndex() { close(); }

std::uint64_t LiveIndex::append(std::span<const Document> documents, std::span<const std::uint64_t> removed) {
  const std::vector<std::uint64_t> gone = sorted_set(removed);
  const auto segment = std::make_shared<MemorySegment>(documents, shape_, threads_);
  check_sequences(documents, documents.front().sequence);
  auto deletion = sort_removed(gone);
  Lock lock(mutex_);
  require_open();
  check_sequences(documents, next_sequence_);
  if (documents.front().sequence == 0) segment->number(next_sequence_);
  Entries memory = memory_, deletions = deletions_;
  if (!gone.empty()) hide(gone, std::move(deletion), memory, deletions);
  memory.push_back({LiveSegment(segment)});
  publish(files_, std::move(memory), std::move(deletions));
  next_sequence_ = segment->last_sequence() + 1;
  const std::uint64_t first = segment->first_sequence();
  merge_due(lock);
  return first;
}

std::uint64_t LiveIndex::remove(std::span<const std::uint64_t> sequences) {
  const std::vector<std::uint64_t> gone = sorted_set(sequences);
  auto deletion = sort_removed(gone);
  Lock lock(mutex_);
  require_open();
  if (gone.empty()) return 0;
  Entries memory = memory_, deletions = deletions_;
  hide(gone, std::move(deletion), memory, deletions);
  publish(files_, std::move(memory), std::move(deletions));
  merge_due(lock);
  return gone.size();
}

void LiveIndex::rebase(std::shared_ptr<const FileSet> files, std::uint64_t flushed_through, bool grouped_stay) {
  check(*files, shape_);
  const std::lock_guard alone(retiring_);
  Lock lock(mutex_);
  require_open();
  replace(lock, std::move(files), flushed_through, grouped_stay);
}

std::uint64_t LiveIndex::drop_before(std::uint64_t sequence) {
  const std::lock_guard alone(retiring_);
  Lock lock(mutex_);
  require_open();
  std::uint64_t through = 0, documents = 0;
  for (const Entry& entry : memory_) {
    if (entry.live.segment->last_sequence() >= sequence) break;
    through = entry.live.segment->last_sequence();
    documents += entry.live.live_documents();
  }
  if (through > 0) replace(lock, files_, through, false);
  return documents;
}

void LiveIndex::clear() {
  const std::lock_guard alone(retiring_);
  Lock lock(mutex_);
  require_open();
  if (!memory_.empty()) replace(lock, files_, memory_.back().live.segment->last_sequence(), false);
  next_sequence_ = 1;
}

std::shared_ptr<const Snapshot> LiveIndex::snapshot() const {
  const std::lock_guard lock(snapshot_mutex_);
  if (snapshot_ == nullptr) fail(Code::kUnavailable, "the live index is closed; open it again");
  return snapshot_;
}

LiveStats LiveIndex::stats() const {
  const Lock lock(mutex_);
  require_open();
  LiveStats stats = {.segments = files_->segments.size() + files_->deletions.size() + memory_.size() + deletions_.size(),
                     .deletions = deletions_.size(),
                     .merged_tokens = merged_tokens_,
                     .next_sequence = next_sequence_};
  for (const Entries* entries : {&memory_, &deletions_}) {
    for (const Entry& entry : *entries) {
      stats.bytes += entry.live.segment->bytes() + entry.live.removed_documents().size_bytes();
      if (entry.holder != nullptr) stats.merge_debt += entry.live.segment->suffixes().count;
    }
    if (const auto run = due(*entries)) stats.merge_debt += run->tokens;
  }
  for (const Entry& entry : memory_) {
    stats.tokens += entry.live.live_tokens();
    stats.documents += entry.live.live_documents();
    if (stats.oldest_sequence != 0 || entry.live.live_documents() == 0) continue;
    stats.oldest_sequence = entry.live.segment->documents().sequence(entry.live.first_live);
    stats.oldest_time = entry.live.segment->documents().time(entry.live.first_live);
  }
  return stats;
}

void LiveIndex::close() {
  {
    const std::scoped_lock lock(mutex_, snapshot_mutex_);
    closed_ = true;
    snapshot_ = nullptr;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  const Lock lock(mutex_);
  memory_.clear();
  deletions_.clear();
  retired_.clear();
  files_ = std::make_shared<FileSet>();
}

// A segment of the tokens of these documents, under their numbers; null if there are none.
std::shared_ptr<MemorySegment> LiveIndex::sort_removed(std::span<const std::uint64_t> sequences) const {
  if (sequences.empty()) return nullptr;
  const auto now = snapshot();
  const std::vector<DocumentIndices> found = now->find(sequences);
  std::vector<std::vector<std::uint32_t>> tokens;
  std::vector<std::uint64_t> groups;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const MemorySegment& segment = *now->memory()[i].segment;
    for (const std::uint32_t index : found[i]) {
      tokens.push_back(segment.read(index, 0, ~std::uint64_t{0}));
      groups.push_back(segment.documents().group(index));
    }
  }
  std::vector<Document> documents;
  for (std::size_t i = 0; i < tokens.size(); ++i) documents.push_back({.tokens = tokens[i], .sequence = sequences[i], .group = groups[i]});
  return std::make_shared<MemorySegment>(documents, shape_, threads_);
}

// Removes documents from copies of the lists. `deletion` holds their tokens. Throws kNotFound if one was removed meanwhile.
void LiveIndex::hide(std::span<const std::uint64_t> sequences, std::shared_ptr<MemorySegment> deletion, Entries& memory, Entries& deletions) const {
  const std::vector<DocumentIndices> found = snapshot_->find(sequences);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].empty()) memory[i].live.remove(found[i]);
  }
  deletions.push_back({LiveSegment(std::move(deletion))});
}

// Holds all segments with documents up to `through`, and all deletions. False if merges hold some of them.
bool LiveIndex::reserve(std::uint64_t through, const Hold& hold) {
  bool all = true;
  const auto take = [&](Entry& entry) {
    if (entry.holder == nullptr) entry.holder = &hold;
    all = all && entry.holder == &hold;
  };
  for (Entry& entry : memory_) {
    if (entry.live.segment->first_sequence() <= through) take(entry);
  }
  for (Entry& entry : deletions_) take(entry);
  return all;
}

// Replaces the files, and drops the documents in memory up to number `through`; if `grouped_stay`, only documents without a
// group. A segment of which documents remain is rewritten.
void LiveIndex::replace(Lock& lock, std::shared_ptr<const FileSet> files, std::uint64_t through, bool grouped_stay) {
  using Segments = std::vector<std::shared_ptr<const MemorySegment>>;
  const auto keep = [&](const std::shared_ptr<const MemorySegment>& segment) {
    const DocumentIndices dropped = documents_through(segment->documents(), through, grouped_stay);
    const MemorySegment::Input input = {segment.get(), dropped};
    return dropped.empty() ? segment : MemorySegment::merge({&input, 1}, shape_);
  };
  const Hold hold(*this, lock);
  changed_.wait(lock, [&] { return closed_ || reserve(through, hold); });
  require_open();
  Segments old, old_deletions, kept, deletions;
  for (const Entry& entry : memory_) {
    if (entry.live.segment->first_sequence() <= through) old.push_back(entry.live.segment);
  }
  for (const Entry& entry : deletions_) old_deletions.push_back(entry.live.segment);
  lock.unlock();
  std::transform(old.begin(), old.end(), std::back_inserter(kept), keep);
  std::transform(old_deletions.begin(), old_deletions.end(), std::back_inserter(deletions), keep);
  lock.lock();
  changed_.wait(lock, [&] {
    return closed_ ||
           std::all_of(deletions_.begin(), deletions_.end(), [&](const Entry& entry) { return entry.holder == nullptr || entry.holder == &hold; });
  });
  require_open();
  for (std::size_t i = deletions.size(); i < deletions_.size(); ++i) deletions.push_back(keep(deletions_[i].live.segment));  // added meanwhile
  Entries entries, kept_deletions;
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (kept[i] == nullptr) continue;
    LiveSegment live(kept[i]);
    live.remove_as_in(memory_[i].live);
    entries.push_back({std::move(live)});
  }
  for (std::size_t i = old.size(); i < memory_.size(); ++i) entries.push_back(memory_[i]);
  for (auto& deletion : deletions) {
    if (deletion != nullptr) kept_deletions.push_back({LiveSegment(std::move(deletion))});
  }
  retired_.reserve(retired_.size() + old.size());
  publish(std::move(files), std::move(entries), std::move(kept_deletions));
  next_sequence_ = std::max(next_sequence_, through + 1);
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (kept[i] != old[i]) retire(old[i]);
  }
}

LiveIndex::Hold::~Hold() {
  if (!lock_.owns_lock()) lock_.lock();
  for (Entries* entries : {&index_.memory_, &index_.deletions_}) {
    for (Entry& entry : *entries) {
      if (entry.holder == this) entry.holder = nullptr;
    }
  }
  index_.changed_.notify_all();
}

// Searches these lists from now on. If memory is used up, nothing changes.
void LiveIndex::publish(std::shared_ptr<const FileSet> files, Entries memory, Entries deletions) {
  std::vector<LiveSegment> live, removed;
  for (const Entry& entry : memory) live.push_back(entry.live);
  for (const Entry& entry : deletions) removed.push_back(entry.live);
  std::shared_ptr<const Snapshot> next = std::make_shared<const Snapshot>(files, std::move(live), std::move(removed));
  files_ = std::move(files);
  memory_ = std::move(memory);
  deletions_ = std::move(deletions);
  const std::lock_guard lock(snapshot_mutex_);
  snapshot_.swap(next);
}

void LiveIndex::require_open() const {
  if (closed_) fail(Code::kUnavailable, "the live index is closed; open it again");
}

}  // namespace suffolk
