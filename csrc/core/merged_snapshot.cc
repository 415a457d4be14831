#include "core/merged_snapshot.h"

#include <utility>
#include <vector>

namespace suffolk {
namespace {

template <typename T, typename Range>
void append(std::vector<T>& list, const Range& more) {
  list.insert(list.end(), more.begin(), more.end());
}

bool has_groups(std::span<const std::shared_ptr<const Snapshot>> parts) {
  for (const auto& part : parts) {
    if (!part->files().groups.empty()) return true;
  }
  return false;
}

// Appends the groups of a part's files, and its lists of deleted documents, which only searches of groups read.
void append_groups(FileSet& files, const FileSet& part) {
  append(files.groups, part.groups);
  append(files.group_orders, part.group_orders);
  append(files.deleted, part.deleted);
  files.groups.resize(files.segments.size());
  files.group_orders.resize(files.segments.size());
  files.deleted.resize(files.segments.size());
}

}  // namespace

std::shared_ptr<const Snapshot> merge_snapshots(std::span<const std::shared_ptr<const Snapshot>> parts, std::span<const std::uint32_t> weights) {
  auto files = std::make_shared<FileSet>();
  std::vector<LiveSegment> memory, deletions;
  const bool grouped = has_groups(parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Snapshot& part = *parts[i];
    for (std::uint32_t copy = 0; copy < weights[i]; ++copy) {
      append(files->segments, part.files().segments);
      append(files->deletions, part.files().deletions);
      if (grouped) append_groups(*files, part.files());
      append(memory, part.memory());
      append(deletions, part.deletions());
    }
  }
  return std::make_shared<const Snapshot>(std::move(files), std::move(memory), std::move(deletions));
}

}  // namespace suffolk
