// What MergedSearcher searches: a Searcher or a LiveIndex.
#pragma once

#include <cstdint>
#include <memory>

#include "core/snapshot.h"

namespace suffolk::bindings {

class Searched {
 public:
  virtual ~Searched() = default;
  // The segments of now. Throws kUnavailable if they are closed.
  virtual std::shared_ptr<const Snapshot> snapshot() const = 0;
  virtual std::uint32_t vocab_size() const = 0;
  virtual std::uint32_t order_depth() const = 0;
};

}  // namespace suffolk::bindings
