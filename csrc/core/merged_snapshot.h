// Searches several datastores as one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/snapshot.h"

namespace suffolk {

// A snapshot of all documents of `parts`. A document counts as often as the weight of its part says. Counts, trees and groups are
// those of one datastore with these documents. The snapshot shares the segments of the parts, so making it takes time proportional
// to the number of segments. REQUIRES: `weights` has an entry for each part.
std::shared_ptr<const Snapshot> merge_snapshots(std::span<const std::shared_ptr<const Snapshot>> parts, std::span<const std::uint32_t> weights);

}  // namespace suffolk
