#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/bind.h"
#include "bindings/searched.h"
#include "core/live_index.h"

namespace suffolk::bindings {
namespace {

using namespace py::literals;

template <typename T>
using Values = py::array_t<T, py::array::c_style>;

template <typename T>
Values<T> to_values(const std::vector<T>& values) {
  return Values<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

template <typename T>
std::span<const T> view(const Values<T>& column) {
  return {column.data(), static_cast<std::size_t>(column.size())};
}

// Makes LiveIndex a class of Python. Thread-safe; every call releases the GIL.
class Live : public Searched {
 public:
  Live(std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads)
      : Searched(vocab_size, order_depth, threads), index_({vocab_size, order_depth}, threads) {}

  std::uint64_t append(const Values<std::uint32_t>& tokens, const Values<std::uint64_t>& lengths, const Values<std::uint64_t>& groups,
                       const std::vector<py::bytes>& origins, const Values<std::int64_t>& times, const std::optional<Values<std::uint64_t>>& removed,
                       const std::optional<Values<std::uint64_t>>& sequences) {
    const auto size = static_cast<std::size_t>(lengths.size());
    const auto fits = [&](const char* name, std::size_t entries) {
      if (entries != size) refuse(name, " has ", entries, " entries for ", size, " documents");
    };
    fits("groups", view(groups).size());
    fits("origins", origins.size());
    fits("times", view(times).size());
    if (sequences) fits("sequences", view(*sequences).size());
    std::vector<Document> documents;
    documents.reserve(size);
    std::span<const std::uint32_t> left = view(tokens);
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t length = view(lengths)[i];
      if (length > left.size()) refuse("lengths add up to more than the ", tokens.size(), " tokens");
      documents.push_back({.tokens = left.first(length),
                           .sequence = sequences ? view(*sequences)[i] : 0,
                           .group = view(groups)[i],
                           .time = view(times)[i],
                           .origin = origins[i]});
      left = left.subspan(length);
    }
    if (!left.empty()) refuse("lengths add up to ", tokens.size() - static_cast<py::ssize_t>(left.size()), " of ", tokens.size(), " tokens");
    const py::gil_scoped_release release;
    return index_.append(documents, removed ? view(*removed) : std::span<const std::uint64_t>());
  }

  std::uint64_t remove(const Values<std::uint64_t>& sequences) {
    const py::gil_scoped_release release;
    return index_.remove(view(sequences));
  }

  void rebase(const Segments& segments, const Segments& deletions, const DocumentLists& deleted_documents, std::uint64_t flushed_through,
              bool grouped_stay) {
    auto files = file_set(segments, deletions, deleted_documents);
    const py::gil_scoped_release release;
    index_.rebase(std::move(files), flushed_through, grouped_stay);
  }

  std::uint64_t drop_before(std::uint64_t sequence) {
    const py::gil_scoped_release release;
    return index_.drop_before(sequence);
  }

  void clear() {
    const py::gil_scoped_release release;
    index_.clear();
  }

  // For a place in a file: the Segment, 0, the position, no origin and no tokens. For a place in memory: None, the document's number,
  // the offset in the document, its origin, up to `length` tokens from the place on, and up to `before` tokens before it.
  py::list occurrences(const py::handle& pattern, std::uint64_t limit, std::uint64_t length, std::uint64_t before, std::uint64_t group,
                       const std::string& scope) const {
    const auto snapshot = index_.snapshot();
    py::list found;
    for (const auto& [segment, position] : places(*snapshot, pattern, limit, group, scope)) {
      const auto& files = snapshot->files().segments;
      if (segment < files.size()) {
        const Values<std::uint32_t> none(0);
        found.append(py::make_tuple(std::const_pointer_cast<Segment>(files[segment]), 0, position, py::bytes(), none, none));
        continue;
      }
      const MemorySegment& memory = *snapshot->memory()[segment - files.size()].segment;
      const LiveDocuments& documents = memory.documents();
      const std::size_t document = documents.at(position);
      const std::uint64_t offset = position - documents.range(document).lo;
      found.append(py::make_tuple(py::none(), documents.sequence(document), offset, py::bytes(std::string(documents.origin(document))),
                                  to_values(memory.read(document, offset, length)),
                                  to_values(memory.read(document, offset - std::min(offset, before), std::min(offset, before)))));
    }
    return found;
  }

  // The columns of `append` and the numbers of up to `limit` documents in memory that are not removed, from number
  // `begin` on. Returns fewer documents if `with_tokens` and they have many tokens.
  py::tuple documents(std::uint64_t begin, std::uint64_t limit, bool with_tokens) const {
    constexpr std::size_t kMaxTokens = 1 << 22;
    std::vector<std::uint64_t> sequences, lengths, groups;
    std::vector<std::uint32_t> tokens;
    std::vector<std::int64_t> times;
    std::vector<std::string_view> origins;
    const auto snapshot = index_.snapshot();
    {
      const py::gil_scoped_release release;
      for (const LiveSegment& live : snapshot->memory()) {
        const LiveDocuments& all = live.segment->documents();
        for (std::size_t i = all.lower_bound(begin); i < all.size() && sequences.size() < limit && tokens.size() < kMaxTokens; ++i) {
          if (live.is_removed(static_cast<std::uint32_t>(i))) continue;
          sequences.push_back(all.sequence(i));
          lengths.push_back(live.segment->document_tokens(i));
          if (with_tokens) {
            const std::vector<std::uint32_t> ids = live.segment->read(i, 0, ~std::uint64_t{0});
            tokens.insert(tokens.end(), ids.begin(), ids.end());
          }
          groups.push_back(all.group(i));
          origins.push_back(all.origin(i));
          times.push_back(all.time(i));
        }
      }
    }
    py::list bytes;
    for (const std::string_view origin : origins) bytes.append(py::bytes(origin.data(), origin.size()));
    return py::make_tuple(to_values(sequences), to_values(tokens), to_values(lengths), to_values(groups), bytes, to_values(times));
  }

  // The numbers and the lengths of a group's documents in memory.
  py::tuple group_documents(std::uint64_t key) const {
    std::vector<std::uint64_t> sequences, lengths;
    index_.snapshot()->for_each_in_group(key, [&](std::size_t, const MemorySegment& segment, std::uint32_t document) {
      sequences.push_back(segment.documents().sequence(document));
      lengths.push_back(segment.document_tokens(document));
    });
    return py::make_tuple(to_values(sequences), to_values(lengths));
  }

  py::dict group_stats(std::uint64_t key) const {
    std::uint64_t documents = 0, tokens = 0, oldest = 0, newest = 0;
    index_.snapshot()->for_each_in_group(key, [&](std::size_t, const MemorySegment& segment, std::uint32_t document) {
      ++documents;
      tokens += segment.document_tokens(document);
      newest = segment.documents().sequence(document);
      if (oldest == 0) oldest = newest;
    });
    return py::dict("documents"_a = documents, "tokens"_a = tokens, "oldest_sequence"_a = oldest, "newest_sequence"_a = newest);
  }

  py::dict stats() const {
    LiveStats stats;
    {
      const py::gil_scoped_release release;
      stats = index_.stats();
    }
    return py::dict("tokens"_a = stats.tokens, "documents"_a = stats.documents, "bytes"_a = stats.bytes, "segments"_a = stats.segments,
                    "deletions"_a = stats.deletions, "merge_debt"_a = stats.merge_debt, "merged_tokens"_a = stats.merged_tokens,
                    "next_sequence"_a = stats.next_sequence, "oldest_sequence"_a = stats.oldest_sequence, "oldest_time"_a = stats.oldest_time);
  }

  void settle() {
    const py::gil_scoped_release release;
    index_.settle();
  }
  void close() {
    const py::gil_scoped_release release;
    index_.close();
  }
  std::shared_ptr<const Snapshot> snapshot() const override { return index_.snapshot(); }

 private:
  LiveIndex index_;
};

}  // namespace

void bind_live(py::module_& module) {
  py::class_<Live, Searched, std::shared_ptr<Live>>(module, "LiveIndex")
      .def(py::init<std::uint32_t, std::uint32_t, unsigned>(), "vocab_size"_a, "order_depth"_a, "threads"_a = 0)
      .def("append", &Live::append, "tokens"_a, "lengths"_a, "groups"_a, "origins"_a, "times"_a, "removed"_a = py::none(), "sequences"_a = py::none())
      .def("remove", &Live::remove, "sequences"_a)
      .def("rebase", &Live::rebase, "segments"_a, "deletions"_a, "deleted_documents"_a, "flushed_through"_a, "grouped_stay"_a = false)
      .def("drop_before", &Live::drop_before, "sequence"_a)
      .def("clear", &Live::clear)
      .def("occurrences", &Live::occurrences, "pattern"_a, "limit"_a, "length"_a, "before"_a = 0, "group"_a = kNoGroup, "scope"_a = "store")
      .def("documents", &Live::documents, "begin"_a, "limit"_a, "tokens"_a = true)
      .def("group_documents", &Live::group_documents, "key"_a)
      .def("group_stats", &Live::group_stats, "key"_a)
      .def("stats", &Live::stats)
      .def("settle", &Live::settle)
      .def("close", &Live::close);
}

}  // namespace suffolk::bindings
