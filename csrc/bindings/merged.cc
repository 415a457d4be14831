#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/bind.h"
#include "bindings/searched.h"
#include "core/merged_snapshot.h"
#include "core/search.h"

namespace suffolk::bindings {
namespace {

using namespace py::literals;
using Parts = std::vector<std::shared_ptr<Searched>>;

// Several indexes, searched as one index that holds each document w times, where w is the weight of its part. Each call takes
// new snapshots.
class MergedSearcher : public Searched {
 public:
  MergedSearcher(const Parts& parts, std::vector<std::uint32_t> weights, unsigned threads)
      : Searched(common_vocabulary(parts), least_depth(parts), threads), parts_(parts), weights_(std::move(weights)) {
    if (weights_.size() != parts_.size()) refuse("weights has ", weights_.size(), " entries for ", parts_.size(), " parts; give one for each");
  }

  std::shared_ptr<const Snapshot> snapshot() const override {
    std::vector<std::shared_ptr<const Snapshot>> snapshots;
    for (const auto& part : parts_) snapshots.push_back(part->snapshot());
    return merge_snapshots(snapshots, weights_);
  }

 private:
  static std::uint32_t common_vocabulary(const Parts& parts) {
    if (parts.empty()) refuse("no part to search; give at least one");
    for (const auto& part : parts) {
      if (part->vocab_size() != parts.front()->vocab_size()) {
        refuse("parts have vocabularies of ", parts.front()->vocab_size(), " and ", part->vocab_size(), " ids; search them one by one");
      }
    }
    return parts.front()->vocab_size();
  }
  static std::uint32_t least_depth(const Parts& parts) {
    return (*std::ranges::min_element(parts, {}, [](const auto& part) { return part->order_depth(); }))->order_depth();
  }

  Parts parts_;
  std::vector<std::uint32_t> weights_;
};

}  // namespace

void bind_merged(py::module_& module) {
  py::class_<MergedSearcher, Searched, std::shared_ptr<MergedSearcher>>(module, "MergedSearcher")
      .def(py::init<const Parts&, std::vector<std::uint32_t>, unsigned>(), "parts"_a, "weights"_a, "threads"_a = 0);
}

}  // namespace suffolk::bindings
