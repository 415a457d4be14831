// Several datastores as one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/snapshot.h"

namespace suffolk {

// A snapshot that holds every document of `parts`, each as often as the weight of its part. It has the counts, trees and groups of
// one datastore with these documents. It shares the segments of the parts; its cost is proportional to the number of segments.
// REQUIRES: a weight for each part.
std::shared_ptr<const Snapshot> merge_snapshots(std::span<const std::shared_ptr<const Snapshot>> parts, std::span<const std::uint32_t> weights);

}  // namespace suffolk
