// The extension module suffolk.datastore._native. It is private: the public names and their documentation are in datastore/.
// Every call that takes longer than microseconds releases the GIL.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <new>

#include "bindings/arguments.h"
#include "bindings/bind.h"
#include "core/context_index.h"
#include "core/draft.h"
#include "core/merge.h"
#include "core/search.h"
#include "core/segment.h"
#include "core/segment_writer.h"
#include "core/thread_pool.h"

namespace suffolk::bindings {
namespace {

using namespace py::literals;
using Segments = std::vector<std::shared_ptr<Segment>>;
using Contexts = std::vector<std::vector<std::uint32_t>>;
using DocumentLists = std::vector<py::array_t<std::uint32_t, py::array::c_style>>;

// The deleted documents of each segment, checked; no list at all if none is given.
std::vector<std::vector<std::uint32_t>> deleted_lists(const Segments& segments, const DocumentLists& given) {
  std::vector<std::vector<std::uint32_t>> lists;
  if (!given.empty() && given.size() != segments.size()) {
    refuse("deleted documents: ", given.size(), " lists for ", segments.size(), " segments");
  }
  for (std::size_t s = 0; s < given.size(); ++s) {
    segments[s]->require_documents(lists.emplace_back(given[s].data(), given[s].data() + given[s].size()));
  }
  return lists;
}

constexpr std::size_t kGrain = 8;  // contexts that a thread takes at a time; a batch of up to 8 runs in one thread

// The segments of one generation, searched as one. Immutable: any number of threads may query it.
class Searcher {
 public:
  // `deletions` hold the tokens of deleted documents; their counts are subtracted. `deleted_documents` are the indices of these
  // documents, which only `occurrences` needs.
  Searcher(Segments segments, const Segments& deletions, const DocumentLists& deleted_documents, unsigned threads)
      : segments_(std::move(segments)), live_(segments_.size()), deleted_(deleted_lists(segments_, deleted_documents)),
        pool_(thread_count(threads)) {
    if (segments_.empty()) refuse("a datastore needs at least one segment");
    segments_.insert(segments_.end(), deletions.begin(), deletions.end());
    for (const auto& segment : segments_) {
      views_.push_back(segment->suffixes());
      vocab_size_ = std::min(vocab_size_, segment->header().vocab_size);
      order_depth_ = std::min(order_depth_, segment->header().order_depth);
    }
  }

  std::vector<std::pair<std::uint32_t, std::uint64_t>> lookup(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match) const {
    QueryBounds bounds = query_bounds(max_match, min_match, 1, 1);
    // A lookup reads no continuation, so it may use the whole order depth.
    if (bounds.max_match > order_depth_) {
      refuse("max_match is ", bounds.max_match, ", above the order depth ", order_depth_,
             " of the datastore; lower it, or build with a larger --order-depth");
    }
    check(bounds, order_depth_ + 1);
    const Contexts tails = context_tails(contexts, bounds);
    const py::gil_scoped_release release;
    std::vector<std::pair<std::uint32_t, std::uint64_t>> matches(tails.size());
    pool_.parallel_for(tails.size(), kGrain, [&](std::size_t i) {
      const Match match = longest_match(corpus(), tails[i], bounds);
      matches[i] = {match.length, match.count};
    });
    return matches;
  }

  py::list draft(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth,
                 const std::vector<std::int64_t>& max_nodes, std::uint32_t source) const {
    if (max_nodes.size() != contexts.size()) {
      refuse("max_nodes has ", max_nodes.size(), " entries for ", contexts.size(), " contexts; give one number or one a context");
    }
    std::vector<QueryBounds> bounds;
    for (const std::int64_t nodes : max_nodes) {
      bounds.push_back(query_bounds(max_match, min_match, max_depth, nodes));
      check(bounds.back(), order_depth_);
    }
    if (bounds.empty()) return py::list();
    const Contexts tails = context_tails(contexts, bounds.front());
    std::vector<DraftTree> trees(tails.size());
    {
      const py::gil_scoped_release release;
      pool_.parallel_for(tails.size(), kGrain, [&](std::size_t i) {
        trees[i] = suffolk::draft(corpus(), longest_match(corpus(), tails[i], bounds[i]), bounds[i]);
      });
    }
    py::list answers;
    for (const DraftTree& tree : trees) answers.append(tree_tuple(tree, source));
    return answers;
  }

  // For each context, the seconds of its lookup and the seconds of its draft, in C++ alone. One thread.
  py::tuple clock(const py::sequence& contexts, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes) const {
    const QueryBounds bounds = query_bounds(max_match, min_match, max_depth, max_nodes);
    check(bounds, order_depth_);
    const Contexts tails = context_tails(contexts, bounds);
    std::vector<double> lookups, drafts;
    {
      const py::gil_scoped_release release;
      using Clock = std::chrono::steady_clock;
      for (const auto& tail : tails) {
        const auto start = Clock::now();
        const Match match = longest_match(corpus(), tail, bounds);
        const auto found = Clock::now();
        const DraftTree tree = suffolk::draft(corpus(), match, bounds);
        const auto end = Clock::now();
        lookups.push_back(std::chrono::duration<double>(found - start).count());
        drafts.push_back(std::chrono::duration<double>(end - found).count());
      }
    }
    return py::make_tuple(py::array_t<double>(static_cast<py::ssize_t>(lookups.size()), lookups.data()),
                          py::array_t<double>(static_cast<py::ssize_t>(drafts.size()), drafts.data()));
  }

  // (segment, position) of up to `limit` occurrences of the whole pattern in documents that are not deleted, spread evenly over the
  // interval of each segment. If documents are deleted, at most kMaxProbes occurrences of a segment are probed, spread evenly. So
  // live occurrences are missed only if a segment has more than kMaxProbes.
  std::vector<std::pair<std::size_t, std::uint64_t>> occurrences(const py::handle& pattern, std::uint64_t limit) const {
    const std::vector<std::uint32_t> ids = token_tail(pattern, order_depth_, vocab_size_);
    std::vector<std::pair<std::size_t, std::uint64_t>> found;
    const py::gil_scoped_release release;
    for (std::size_t s = 0; s < live_ && !ids.empty() && found.size() < limit; ++s) {
      const std::vector<std::uint64_t> places = live_positions(s, find(views_[s], ids), limit - found.size());
      const std::uint64_t take = std::min<std::uint64_t>(places.size(), limit - found.size());
      for (std::uint64_t i = 0; i < take; ++i) found.emplace_back(s, places[places.size() * i / take]);
    }
    return found;
  }

  std::uint32_t order_depth() const { return order_depth_; }

 private:
  static constexpr std::uint64_t kMaxProbes = 1'000'000;

  Corpus corpus() const { return {views_, live_}; }

  // At least `wanted` positions in documents that are not deleted, or all if there are fewer; evenly spread, in suffix order.
  std::vector<std::uint64_t> live_positions(std::size_t segment, Interval interval, std::uint64_t wanted) const {
    const bool whole = deleted_.empty() || deleted_[segment].empty();
    const std::uint64_t limit = whole ? wanted : std::max(wanted, kMaxProbes), most = std::min(interval.size(), limit);
    std::vector<std::uint64_t> live;
    for (std::uint64_t probes = std::min(most, wanted);; probes = std::min(most, probes * 8)) {
      live.clear();
      for (std::uint64_t i = 0; i < probes; ++i) {
        const std::uint64_t position = views_[segment].positions[interval.lo + interval.size() * i / probes];
        if (whole || !is_deleted(segment, position)) live.push_back(position);
      }
      if (live.size() >= wanted || probes == most) return live;
    }
  }

  bool is_deleted(std::size_t segment, std::uint64_t position) const {
    return std::binary_search(deleted_[segment].begin(), deleted_[segment].end(), segments_[segment]->document_at(position));
  }

  Contexts context_tails(const py::sequence& contexts, const QueryBounds& bounds) const {
    Contexts tails;
    for (const py::handle context : contexts) tails.push_back(token_tail(context, bounds.max_match, vocab_size_));
    return tails;
  }

  Segments segments_;  // live segments, then deletions; they own the memory of the views
  std::size_t live_;
  std::vector<std::vector<std::uint32_t>> deleted_;  // see deleted_lists
  std::vector<Suffixes> views_;
  mutable ThreadPool pool_;  // thread-safe
  std::uint32_t vocab_size_ = kEnd;
  std::uint32_t order_depth_ = format::kMaxOrderDepth;
};

template <typename Token>
SegmentSummary write_tokens(const std::string& path, const py::array& tokens, std::string_view table, const SegmentSettings& settings,
                            const py::object& progress) {
  const auto typed = py::array_t<Token, py::array::c_style>::ensure(tokens);
  if (!typed) throw py::error_already_set();
  const Progress report = progress_with_signals(progress);
  const std::span<const Token> span(typed.data(), static_cast<std::size_t>(typed.size()));
  const py::gil_scoped_release release;
  return write_segment<Token>(path, span, std::as_bytes(std::span(table)), settings, report);
}

// The sorted suffix positions of a token array, as write_segment makes them; for benchmarks and tests.
template <typename Token>
py::array_t<std::uint32_t> sorted_positions(const py::array& tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads) {
  const auto typed = py::array_t<Token, py::array::c_style>::ensure(tokens);
  if (!typed) throw py::error_already_set();
  const std::span<const Token> span(typed.data(), static_cast<std::size_t>(typed.size()));
  if (span.empty() || span.back() != std::numeric_limits<Token>::max()) refuse("the last token must be a separator");
  py::array_t<std::uint32_t> positions(typed.size() - std::count(span.begin(), span.end(), std::numeric_limits<Token>::max()));
  const std::span<std::uint32_t> out(positions.mutable_data(), static_cast<std::size_t>(positions.size()));
  const py::gil_scoped_release release;
  std::vector<std::uint32_t> first_ranks(std::size_t{vocab_size} + 1);
  sort_suffixes<Token>(span, vocab_size, order_depth, std::max(1U, threads), out, first_ranks, {});
  return positions;
}

py::tuple write(const std::string& path, const py::array& tokens, std::uint32_t vocab_size, std::uint32_t order_depth,
                const py::bytes& fingerprint, const py::bytes& table, unsigned threads, const py::object& progress) {
  SegmentSettings settings = {.vocab_size = vocab_size, .order_depth = order_depth, .fingerprint = {}, .threads = threads};
  const std::string_view hash = fingerprint;
  if (hash.size() != settings.fingerprint.size()) refuse("a fingerprint has 32 bytes, not ", hash.size());
  std::copy(hash.begin(), hash.end(), settings.fingerprint.begin());
  const bool small = tokens.dtype().kind() == 'u' && tokens.itemsize() == 2, wide = tokens.dtype().kind() == 'u' && tokens.itemsize() == 4;
  if (tokens.ndim() != 1 || !(small || wide)) refuse("tokens must be a one-dimensional array of uint16 or uint32");
  const SegmentSummary summary = small ? write_tokens<std::uint16_t>(path, tokens, table, settings, progress)
                                       : write_tokens<std::uint32_t>(path, tokens, table, settings, progress);
  return py::make_tuple(summary.tokens, summary.documents, summary.bytes, summary.checksum);
}

py::tuple merge(const std::string& path, const Segments& segments, const DocumentLists& deleted, const py::bytes& table, unsigned threads,
                const py::object& progress) {
  const auto lists = deleted_lists(segments, deleted);
  std::vector<MergeInput> inputs;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    inputs.push_back({segments[i].get(), lists.empty() ? std::span<const std::uint32_t>() : std::span(lists[i])});
  }
  const std::string_view view = table;
  const Progress report = progress_with_signals(progress);
  const py::gil_scoped_release release;
  const SegmentSummary summary = merge_segments(path, inputs, std::as_bytes(std::span(view)), {.threads = threads}, report);
  const py::gil_scoped_acquire acquire;
  return py::make_tuple(summary.tokens, summary.documents, summary.bytes, summary.checksum);
}

py::dict header_facts(const Segment& segment) {
  const format::Header& header = segment.header();
  py::dict facts;
  facts["tokens"] = header.suffix_count;
  facts["documents"] = header.document_count;
  facts["bytes"] = header.file_bytes;
  facts["checksum"] = segment.checksum();
  facts["token_width"] = header.token_width;
  facts["vocab_size"] = header.vocab_size;
  facts["order_depth"] = header.order_depth;
  facts["fingerprint"] = py::bytes(reinterpret_cast<const char*>(header.fingerprint.data()), header.fingerprint.size());
  facts["writer"] = std::string(header.writer.data(), std::find(header.writer.begin(), header.writer.end(), '\0'));
  return facts;
}

// The ids of up to `limit` tokens from position `begin` on, ending with the document.
py::array_t<std::uint32_t> read_tokens(const Segment& segment, std::uint64_t begin, std::uint64_t limit) {
  const auto& tokens = segment.suffixes().tokens;
  std::vector<std::uint32_t> ids;
  for (std::uint64_t at = begin; at < tokens.size && ids.size() < limit && tokens[at] < segment.header().vocab_size; ++at) ids.push_back(tokens[at]);
  return py::array_t<std::uint32_t>(static_cast<py::ssize_t>(ids.size()), ids.data());
}

// Raises the class of datastore/errors.py that has the name of the code.
void translate(std::exception_ptr pointer) {
  static constexpr std::array kNames = {"InvalidArgument", "NotFound",         "Corruption",       "Unsupported", "ResourceExhausted",
                                        "Unavailable",     "DeadlineExceeded", "PermissionDenied", "Internal"};
  const auto raise = [](const char* name, const char* message) {
    const py::object type = py::module_::import("suffolk.datastore.errors").attr(name);
    PyErr_SetString(type.ptr(), message);
  };
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Error& error) {
    raise(kNames[static_cast<std::size_t>(error.code())], error.what());
  } catch (const std::bad_alloc&) {
    raise("ResourceExhausted", "memory is used up; build with smaller segments (--segment-tokens), or free memory");
  }
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  py::register_local_exception_translator(translate);
  bind_kernels(module);
  bind_drafting(module);

  py::class_<Segment, std::shared_ptr<Segment>>(module, "Segment")
      .def(py::init<const std::string&>(), "path"_a)
      .def("lock", [](const Segment& segment) { segment.file()->lock(); }, py::call_guard<py::gil_scoped_release>())
      .def("resident_bytes", [](const Segment& segment) { return segment.file()->resident_bytes(); }, py::call_guard<py::gil_scoped_release>())
      .def("facts", &header_facts)
      .def("document_at", &Segment::document_at, "position"_a)
      .def("document_range", [](const Segment& segment, std::uint64_t index) {
        if (index >= segment.header().document_count) refuse("document ", index, " of ", segment.header().document_count);
        const Interval range = segment.document_range(index);
        return std::make_pair(range.lo, range.hi);
      }, "index"_a)
      .def("read_tokens", &read_tokens, "begin"_a, "limit"_a)
      .def("document_table", [](const Segment& segment) {
        const auto bytes = segment.document_table();
        return py::memoryview::from_memory(bytes.data(), static_cast<py::ssize_t>(bytes.size()));
      }, py::keep_alive<0, 1>())
      .def("verify", [](const Segment& segment, const std::string& depth, const py::object& progress) {
        const Progress report = progress_with_signals(progress);
        if (depth != "headers" && depth != "checksums" && depth != "full") {
          refuse("depth is '", depth, "'; it must be headers, checksums or full");
        }
        const py::gil_scoped_release release;
        segment.verify(depth == "headers" ? Depth::kHeaders : depth == "checksums" ? Depth::kChecksums : Depth::kFull, report);
      }, "depth"_a, "progress"_a = py::none());

  py::class_<Searcher>(module, "Searcher")
      .def(py::init<Segments, const Segments&, const DocumentLists&, unsigned>(),
           "segments"_a, "deletions"_a = py::list(), "deleted_documents"_a = py::list(), "threads"_a = 0)
      .def("lookup", &Searcher::lookup, "contexts"_a, "max_match"_a, "min_match"_a)
      .def("draft", &Searcher::draft, "contexts"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a, "source"_a)
      .def("clock", &Searcher::clock, "contexts"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a)
      .def("occurrences", &Searcher::occurrences, "pattern"_a, "limit"_a)
      .def_property_readonly("order_depth", &Searcher::order_depth);

  py::class_<ContextIndex>(module, "ContextIndex")
      .def(py::init([](std::uint32_t vocab_size) {
        if (vocab_size == 0 || vocab_size == kEnd) refuse("vocab_size is ", vocab_size, "; it must be 1 to 4294967294");
        return ContextIndex(vocab_size);
      }), "vocab_size"_a)
      .def("append", [](ContextIndex& index, const py::object& ids) {
        index.append(token_tail(ids, std::numeric_limits<std::uint64_t>::max(), kEnd));
      }, "ids"_a)
      .def("truncate", &ContextIndex::truncate, "size"_a)
      .def_property_readonly("size", &ContextIndex::size)
      .def("draft", [](const ContextIndex& index, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes, std::uint32_t source) {
        const QueryBounds bounds = query_bounds(max_match, min_match, max_depth, max_nodes);
        DraftTree tree;
        {
          const py::gil_scoped_release release;
          tree = index.draft(bounds);
        }
        return tree_tuple(tree, source);
      }, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a, "source"_a);

  module.def("sort_suffixes", [](const py::array& tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads) {
    return tokens.itemsize() == 2 ? sorted_positions<std::uint16_t>(tokens, vocab_size, order_depth, threads)
                                  : sorted_positions<std::uint32_t>(tokens, vocab_size, order_depth, threads);
  }, "tokens"_a, "vocab_size"_a, "order_depth"_a, "threads"_a);
  module.def("warm", [](const Segments& segments, bool whole) {
    std::vector<FilePart> parts;
    for (const auto& segment : segments) {
      for (const FilePart& part : segment->hot_parts()) parts.push_back(part);
    }
    for (const auto& segment : segments) {
      if (whole) parts.push_back({segment->file(), segment->file()->bytes()});
    }
    warm(std::move(parts));
  }, "segments"_a, "whole"_a);
  module.def("write_segment", &write, "path"_a, "tokens"_a, "vocab_size"_a, "order_depth"_a, "fingerprint"_a, "document_table"_a,
             "threads"_a, "progress"_a);
  module.def("merge_segments", &merge, "path"_a, "segments"_a, "deleted"_a, "document_table"_a, "threads"_a, "progress"_a);
}

}  // namespace suffolk::bindings
