// Batches of queries from Python over a snapshot.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "core/scoped_query.h"
#include "core/snapshot.h"
#include "core/thread_pool.h"

namespace suffolk::bindings {

namespace py = pybind11;

// The contexts of a batch, and the part of the datastore that each searches.
struct Contexts {
  py::sequence ids;
  Scope scope = Scope::kStore;
  std::vector<std::uint64_t> groups = {};  // of each context; empty: none
};

// `groups` is None or has a key for each context. Throws kInvalidArgument for another scope than "store", "group", "group_first".
Contexts scoped_contexts(const py::sequence& ids, const py::object& groups, const std::string& scope);

// Checks arguments, runs queries on a pool of threads without the GIL, and converts the answers. Thread-safe.
class Queries {
 public:
  Queries(std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads)
      : vocab_size_(vocab_size), order_depth_(order_depth), pool_(thread_count(threads)) {}

  std::uint32_t vocab_size() const { return vocab_size_; }
  std::uint32_t order_depth() const { return order_depth_; }

  std::vector<std::pair<std::uint32_t, std::uint64_t>> lookup(const Snapshot& snapshot, const Contexts& contexts, std::int64_t max_match,
                                                              std::int64_t min_match) const;
  py::list draft(const Snapshot& snapshot, const Contexts& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth,
                 const std::vector<std::int64_t>& max_nodes, std::uint32_t source) const;
  // For each context, the seconds of its lookup and the seconds of its draft, in C++ alone, on one thread. `take` gives the snapshot
  // of each context; that counts as part of the lookup.
  py::tuple clock(const std::function<std::shared_ptr<const Snapshot>()>& take, const py::sequence& contexts, std::int64_t max_match,
                  std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes) const;
  // See ScopedSearch::occurrences. `contexts` holds the pattern alone.
  std::vector<Snapshot::Place> occurrences(const Snapshot& snapshot, const Contexts& contexts, std::uint64_t limit) const;

 private:
  static constexpr std::size_t kGrain = 8;  // contexts that a thread takes at a time; a batch of up to 8 runs in one thread

  std::vector<std::vector<std::uint32_t>> tails(const py::sequence& contexts, const QueryBounds& bounds) const;
  template <typename Visit>
  void for_each_context(const Snapshot& snapshot, const Contexts& contexts, std::size_t count, const Visit& visit) const;
  static ScopedQuery query(const Contexts& contexts, std::size_t i, std::span<const std::uint32_t> tail, const QueryBounds& bounds);

  std::uint32_t vocab_size_;
  std::uint32_t order_depth_;
  mutable ThreadPool pool_;  // thread-safe
};

}  // namespace suffolk::bindings
