#include "core/merged_snapshot.h"

#include <utility>
#include <vector>

namespace suffolk {
namespace {

template <typename T, typename Range>
void append(std::vector<T>& list, const Range& more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

std::shared_ptr<const Snapshot> merge_snapshots(std::span<const std::shared_ptr<const Snapshot>> parts, std::span<const std::uint32_t> weights) {
  auto files = std::make_shared<FileSet>();
  std::vector<LiveSegment> memory, deletions;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Snapshot& part = *parts[i];
    for (std::uint32_t copy = 0; copy < weights[i]; ++copy) {
      append(files->segments, part.files().segments);
      append(files->deletions, part.files().deletions);
      append(memory, part.memory());
      append(deletions, part.deletions());
    }
  }
  return std::make_shared<const Snapshot>(std::move(files), std::move(memory), std::move(deletions));
}

}  // namespace suffolk
