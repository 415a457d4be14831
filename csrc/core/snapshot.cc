#include "core/snapshot.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "core/error.h"

namespace suffolk {
namespace {

bool holds(std::span<const std::uint32_t> rising, std::uint64_t value) { return std::binary_search(rising.begin(), rising.end(), value); }

// Appends tokens begin..end-1 and kEnd to `text`.
void add_document(const Tokens& tokens, Interval range, std::vector<std::uint32_t>& text) {
  const std::size_t size = text.size();
  text.resize(size + range.size() + 1);
  for (std::uint64_t i = 0; i < range.size(); ++i) text[size + i] = tokens[range.lo + i];
  text.back() = kEnd;
}

}  // namespace

void FileSet::check() const {
  if (!deleted.empty() && deleted.size() != segments.size()) {
    refuse("deleted documents: ", deleted.size(), " lists for ", segments.size(), " segments");
  }
  for (std::size_t i = 0; i < deleted.size(); ++i) segments[i]->require_documents(deleted[i]);
}

bool LiveSegment::is_removed(std::uint32_t document) const noexcept { return holds(removed_documents(), document); }

void LiveSegment::remove(std::span<const std::uint32_t> documents) {
  const auto before = removed_documents();
  auto all = std::make_shared<DocumentIndices>();
  all->reserve(before.size() + documents.size());
  std::merge(before.begin(), before.end(), documents.begin(), documents.end(), std::back_inserter(*all));
  for (const std::uint32_t document : documents) removed_tokens += segment->document_tokens(document);
  while (first_live < all->size() && (*all)[first_live] == first_live) ++first_live;
  removed = std::move(all);
}

void LiveSegment::remove_as_in(const LiveSegment& before) {
  const LiveDocuments& documents = segment->documents();
  DocumentIndices found;
  for (const std::uint32_t index : before.removed_documents()) {
    const std::uint64_t sequence = before.segment->documents().sequence(index);
    const std::size_t place = documents.lower_bound(sequence);
    if (place < documents.size() && documents.sequence(place) == sequence) found.push_back(static_cast<std::uint32_t>(place));
  }
  if (!found.empty()) remove(found);
}

Snapshot::Snapshot(std::shared_ptr<const FileSet> files, std::vector<LiveSegment> memory, std::vector<LiveSegment> deletions)
    : files_(std::move(files)), memory_(std::move(memory)), deletions_(std::move(deletions)) {
  for (const auto& segment : files_->segments) views_.push_back(segment->suffixes());
  for (const LiveSegment& live : memory_) views_.push_back(live.segment->suffixes());
  live_ = views_.size();
  for (const auto& segment : files_->deletions) views_.push_back(segment->suffixes());
  for (const LiveSegment& live : deletions_) views_.push_back(live.segment->suffixes());
}

std::vector<Snapshot::Place> Snapshot::occurrences(std::span<const std::uint32_t> pattern, std::uint64_t limit) const {
  std::vector<Place> found;
  for (std::size_t s = 0; s < live_ && !pattern.empty() && found.size() < limit; ++s) {
    const std::vector<std::uint64_t> places = live_positions(s, suffolk::find(views_[s], pattern), limit - found.size());
    const std::uint64_t take = std::min<std::uint64_t>(places.size(), limit - found.size());
    for (std::uint64_t i = 0; i < take; ++i) found.push_back({s, places[places.size() * i / take]});
  }
  return found;
}

std::uint64_t Snapshot::count_documents(std::span<const std::uint32_t> pattern, std::uint64_t most) const {
  if (files_->deleted.empty() && !files_->deletions.empty()) refuse("the deleted documents are not known, so documents cannot be counted");
  std::vector<Interval> intervals;
  std::uint64_t later = 0;  // occurrences in the segments that follow
  for (std::size_t s = 0; s < live_ && !pattern.empty(); ++s) later += intervals.emplace_back(suffolk::find(views_[s], pattern)).size();
  std::uint64_t left = kDocumentProbes * (most + kDocumentProbes), found = 0;
  for (std::size_t s = 0; s < intervals.size() && found < most; ++s) {
    const std::uint64_t size = intervals[s].size();
    later -= size;
    // An equal share of the probes that are left, and further probes that later segments cannot use.
    const std::uint64_t probes = std::min(size, std::max(left / (intervals.size() - s), left - std::min(left, later)));
    const bool whole = !has_deleted(s);
    std::unordered_set<std::uint64_t> documents;
    for (std::uint64_t i = 0; i < probes && found + documents.size() < most; ++i) {
      const std::uint64_t document = document_at({s, views_[s].positions[intervals[s].lo + size * i / probes]});
      if (whole || !is_deleted(s, document)) documents.insert(document);
    }
    left -= probes;
    found += documents.size();
  }
  return found;
}

std::uint64_t Snapshot::document_at(const Place& place) const noexcept {
  if (place.segment < files_->segments.size()) return files_->segments[place.segment]->document_at(place.position);
  return memory_[place.segment - files_->segments.size()].segment->documents().at(place.position);
}

std::vector<std::uint32_t> Snapshot::group_text(std::uint64_t key) const {
  std::vector<std::uint32_t> text;
  for_each_in_group(key, [&](std::size_t, const MemorySegment& segment, std::uint32_t document) {
    add_document(segment.suffixes().tokens, segment.documents().range(document), text);
  });
  return text;
}

std::vector<DocumentIndices> Snapshot::find(std::span<const std::uint64_t> sequences) const {
  std::vector<DocumentIndices> found(memory_.size());
  std::size_t at = 0;
  for (const std::uint64_t sequence : sequences) {
    while (at < memory_.size() && memory_[at].segment->last_sequence() < sequence) ++at;
    const LiveDocuments* documents = at < memory_.size() ? &memory_[at].segment->documents() : nullptr;
    const auto index = documents == nullptr ? 0 : static_cast<std::uint32_t>(documents->lower_bound(sequence));
    if (documents == nullptr || documents->sequence(index) != sequence || memory_[at].is_removed(index)) {
      fail(Code::kNotFound, "document number ", sequence, " is not in memory: it was removed, evicted or written to a file, or never appended");
    }
    found[at].push_back(index);
  }
  return found;
}

bool Snapshot::has_deleted(std::size_t segment) const noexcept {
  if (segment < files_->segments.size()) return !files_->deleted.empty() && !files_->deleted[segment].empty();
  return memory_[segment - files_->segments.size()].removed != nullptr;
}

bool Snapshot::is_deleted(std::size_t segment, std::uint64_t document) const {
  if (segment < files_->segments.size()) return holds(files_->deleted[segment], document);
  return memory_[segment - files_->segments.size()].is_removed(static_cast<std::uint32_t>(document));
}

// At least `wanted` positions in documents that are not deleted, or all if there are fewer; evenly spread, in suffix order.
std::vector<std::uint64_t> Snapshot::live_positions(std::size_t segment, Interval interval, std::uint64_t wanted) const {
  const bool whole = !has_deleted(segment);
  const std::uint64_t limit = whole ? wanted : std::max(wanted, kMaxProbes), most = std::min(interval.size(), limit);
  std::vector<std::uint64_t> live;
  for (std::uint64_t probes = std::min(most, wanted);; probes = std::min(most, probes * 8)) {
    live.clear();
    for (std::uint64_t i = 0; i < probes; ++i) {
      const std::uint64_t position = views_[segment].positions[interval.lo + interval.size() * i / probes];
      if (whole || !is_deleted(segment, document_at({segment, position}))) live.push_back(position);
    }
    if (live.size() >= wanted || probes == most) return live;
  }
}

}  // namespace suffolk
