// The base of the module's index classes. It runs batches of queries from Python on a snapshot.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "core/scoped_query.h"
#include "core/snapshot.h"
#include "core/thread_pool.h"
#include "drafting/trees.h"

namespace suffolk::bindings {

namespace py = pybind11;

// Checks arguments, runs queries on a pool of threads without the GIL, and converts the answers. Thread-safe.
class Searched {
 public:
  Searched(std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads)
      : vocab_size_(vocab_size), order_depth_(order_depth), pool_(thread_count(threads)) {}
  virtual ~Searched() = default;

  // The segments to search now. Throws kUnavailable if they are closed.
  virtual std::shared_ptr<const Snapshot> snapshot() const = 0;
  std::uint32_t vocab_size() const { return vocab_size_; }
  std::uint32_t order_depth() const { return order_depth_; }

  // `groups` is None, or a list of group keys, context by context, with the same number of keys for each context. Key 0
  // means no group. `scope` is "store", "group" or "group_first"; the last two need groups.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> lookup(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match,
                                                              const py::object& groups, const std::string& scope) const;
  // `least_counts` has one entry for each context, or is empty.
  drafting::Trees draft(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth,
                        const std::vector<std::int64_t>& max_nodes, std::uint32_t source, const py::object& groups, const std::string& scope,
                        const std::vector<std::uint64_t>& least_counts) const;
  // For each context, the number of documents that hold the whole context, at most `most`; see ScopedSearch::count_documents.
  std::vector<std::uint64_t> count_documents(const py::sequence& contexts, std::uint64_t most, const py::object& groups,
                                             const std::string& scope) const;
  // For each context, the seconds of its lookup and the seconds of its draft, without the time in Python, on one thread. Taking the
  // snapshot counts as part of the lookup.
  py::tuple clock(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes) const;

 protected:
  // See ScopedSearch::occurrences.
  std::vector<Snapshot::Place> places(const Snapshot& snapshot, const py::handle& pattern, std::uint64_t limit, std::uint64_t group = kNoGroup,
                                      const std::string& scope = "store") const;

 private:
  static constexpr std::size_t kGrain = 8;  // contexts that a thread takes at a time; a batch of up to 8 runs in one thread

  // What each context of a batch searches: all documents, or the documents of groups.
  struct Scopes {
    Scope scope;
    std::vector<std::uint64_t> groups;  // `width` keys for each context, one context after another; empty if there are no groups
    std::size_t width = 0;

    std::span<const std::uint64_t> of(std::size_t context) const { return std::span(groups).subspan(context * width, width); }
  };
  static Scopes scopes(std::size_t contexts, const py::object& groups, const std::string& scope);
  static ScopedQuery query(const Scopes& scopes, std::size_t i, std::span<const std::uint32_t> tail, const QueryBounds& bounds);
  std::vector<std::vector<std::uint32_t>> tails(const py::sequence& contexts, const QueryBounds& bounds) const;
  template <typename Visit>
  void for_each_context(const Scopes& scopes, std::size_t count, const Visit& visit) const;

  std::uint32_t vocab_size_;
  std::uint32_t order_depth_;
  mutable ThreadPool pool_;  // thread-safe
};

}  // namespace suffolk::bindings
