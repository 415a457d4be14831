// The extension module suffolk.datastore._native. It is private: the public names and their documentation are in datastore/.
// Every call that takes longer than microseconds releases the GIL.
// Paths are taken as bytes of the file system (PyUnicode_FSConverter), because a path need not be UTF-8.
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <new>

#include "bindings/arguments.h"
#include "bindings/bind.h"
#include "core/context_index.h"
#include "core/merge.h"
#include "core/parallel_texts.h"
#include "core/segment.h"
#include "core/segment_writer.h"
#include "drafting/trees.h"

namespace suffolk::bindings {
namespace {

using namespace py::literals;
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

py::tuple write(const std::filesystem::path& path, const py::array& tokens, std::uint32_t vocab_size, std::uint32_t order_depth,
                const py::bytes& fingerprint, const py::bytes& table, unsigned threads, const py::object& progress) {
  SegmentSettings settings = {.vocab_size = vocab_size, .order_depth = order_depth, .fingerprint = {}, .threads = threads};
  const std::string_view hash = fingerprint;
  if (hash.size() != settings.fingerprint.size()) refuse("a fingerprint has 32 bytes, not ", hash.size());
  std::copy(hash.begin(), hash.end(), settings.fingerprint.begin());
  const bool small = tokens.dtype().kind() == 'u' && tokens.itemsize() == 2, wide = tokens.dtype().kind() == 'u' && tokens.itemsize() == 4;
  if (tokens.ndim() != 1 || !(small || wide)) refuse("tokens must be a one-dimensional array of uint16 or uint32");
  const SegmentSummary summary = small ? write_tokens<std::uint16_t>(path.string(), tokens, table, settings, progress)
                                       : write_tokens<std::uint32_t>(path.string(), tokens, table, settings, progress);
  return py::make_tuple(summary.tokens, summary.documents, summary.bytes, summary.checksum);
}

py::tuple merge(const std::filesystem::path& path, const Segments& segments, const DocumentLists& deleted, const py::bytes& table, unsigned threads,
                const py::object& progress) {
  const auto lists = document_lists(deleted);
  if (!lists.empty() && lists.size() != segments.size()) { refuse("deleted documents: ", lists.size(), " lists for ", segments.size(), " segments"); }
  std::vector<MergeInput> inputs;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    inputs.push_back({segments[i].get(), lists.empty() ? std::span<const std::uint32_t>() : std::span(lists[i])});
  }
  const std::string_view view = table;
  const Progress report = progress_with_signals(progress);
  const py::gil_scoped_release release;
  const SegmentSummary summary = merge_segments(path.string(), inputs, std::as_bytes(std::span(view)), {.threads = threads}, report);
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
    PyErr_SetObject(type.ptr(), py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefault(message)).ptr());  // the message may name a path
  };
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Error& error) { raise(kNames[static_cast<std::size_t>(error.code())], error.what()); } catch (const std::bad_alloc&) {
    raise("ResourceExhausted", "memory is used up; build with smaller segments (--segment-tokens), or free memory");
  }
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  py::register_local_exception_translator(translate);
  bind_kernels(module);
  bind_trees(module);
  bind_drafting(module);

  py::class_<Segment, std::shared_ptr<Segment>>(module, "Segment")
      .def(py::init([](const std::filesystem::path& path) { return std::make_shared<Segment>(path.string()); }), "path"_a)
      .def(
          "lock", [](const Segment& segment) { segment.file()->lock(); }, py::call_guard<py::gil_scoped_release>())
      .def(
          "resident_bytes", [](const Segment& segment) { return segment.file()->resident_bytes(); }, py::call_guard<py::gil_scoped_release>())
      .def("facts", &header_facts)
      .def("document_at", &Segment::document_at, "position"_a)
      .def(
          "document_range",
          [](const Segment& segment, std::uint64_t index) {
            if (index >= segment.header().document_count) refuse("document ", index, " of ", segment.header().document_count);
            const Interval range = segment.document_range(index);
            return std::make_pair(range.lo, range.hi);
          },
          "index"_a)
      .def("read_tokens", &read_tokens, "begin"_a, "limit"_a)
      .def(
          "document_table",
          [](const Segment& segment) {
            const auto bytes = segment.document_table();
            return py::memoryview::from_memory(bytes.data(), static_cast<py::ssize_t>(bytes.size()));
          },
          py::keep_alive<0, 1>())
      .def(
          "verify",
          [](const Segment& segment, const std::string& depth, const py::object& progress) {
            const Progress report = progress_with_signals(progress);
            if (depth != "headers" && depth != "checksums" && depth != "full") {
              refuse("depth is '", depth, "'; it must be headers, checksums or full");
            }
            const py::gil_scoped_release release;
            segment.verify(depth == "headers" ? Depth::kHeaders : depth == "checksums" ? Depth::kChecksums : Depth::kFull, report);
          },
          "depth"_a, "progress"_a = py::none());

  bind_searched(module);
  bind_searcher(module);
  bind_live(module);
  bind_merged(module);

  py::class_<ContextIndex>(module, "ContextIndex")
      .def(py::init([](std::uint32_t vocab_size) {
             if (vocab_size == 0 || vocab_size == kEnd) refuse("vocab_size is ", vocab_size, "; it must be 1 to 4294967294");
             return ContextIndex(vocab_size);
           }),
           "vocab_size"_a)
      .def(
          "append",
          [](ContextIndex& index, const py::object& ids) { index.append(token_tail(ids, std::numeric_limits<std::uint64_t>::max(), kEnd)); }, "ids"_a)
      .def("truncate", &ContextIndex::truncate, "size"_a)
      .def_property_readonly("size", &ContextIndex::size)
      .def(
          "follow",
          [](ContextIndex& index, const py::object& ids) {
            const std::uint64_t size = py::len(ids);
            if (size < index.size()) index.truncate(size);
            index.append(token_tail(ids, size - index.size(), kEnd));
          },
          "ids"_a);
  module.def(
      "draft_contexts",
      [](const std::vector<const ContextIndex*>& indexes, std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth,
         const std::vector<std::int64_t>& max_nodes, std::uint32_t source) {
        if (max_nodes.size() != indexes.size()) refuse("max_nodes has ", max_nodes.size(), " entries for ", indexes.size(), " contexts");
        std::vector<QueryBounds> bounds;
        for (const std::int64_t nodes : max_nodes) bounds.push_back(query_bounds(max_match, min_match, max_depth, nodes));
        const py::gil_scoped_release release;
        drafting::Trees found;
        for (std::size_t i = 0; i < indexes.size(); ++i) found.add(indexes[i]->draft(bounds[i]), source);
        return found;
      },
      "indexes"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a, "source"_a);

  py::class_<ParallelTexts>(module, "ParallelTexts")
      .def(py::init([](std::uint32_t vocab_size) {
             if (vocab_size == 0 || vocab_size == kEnd) refuse("vocab_size is ", vocab_size, "; it must be 1 to 4294967294");
             return ParallelTexts(vocab_size);
           }),
           "vocab_size"_a)
      .def_property_readonly("size", &ParallelTexts::size)
      .def(
          "follow",
          [](ParallelTexts& texts, std::uint64_t number, const py::object& ids) {
            const std::uint64_t size = py::len(ids);
            if (size < texts.length(number)) texts.truncate(number, size);
            texts.append(number, token_tail(ids, size - texts.length(number), kEnd));
          },
          "number"_a, "ids"_a)
      .def("remove", &ParallelTexts::remove, "number"_a)
      .def(
          "draft",
          [](const ParallelTexts& texts, std::uint64_t number, const py::object& context, std::int64_t max_match, std::int64_t min_match,
             std::int64_t max_depth, std::int64_t max_nodes, std::uint32_t source) {
            const QueryBounds bounds = query_bounds(max_match, min_match, max_depth, max_nodes);
            const std::vector<std::uint32_t> end = token_tail(context, bounds.max_match, kEnd);
            const py::gil_scoped_release release;
            drafting::Trees found;
            found.add(texts.draft(number, end, bounds), source);
            return found;
          },
          "number"_a, "context"_a, "max_match"_a, "min_match"_a, "max_depth"_a, "max_nodes"_a, "source"_a);

  module.def(
      "sort_suffixes",
      [](const py::array& tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads) {
        return tokens.itemsize() == 2 ? sorted_positions<std::uint16_t>(tokens, vocab_size, order_depth, threads)
                                      : sorted_positions<std::uint32_t>(tokens, vocab_size, order_depth, threads);
      },
      "tokens"_a, "vocab_size"_a, "order_depth"_a, "threads"_a);
  module.def(
      "warm",
      [](const Segments& segments, bool whole) {
        std::vector<FilePart> parts;
        for (const auto& segment : segments) {
          for (const FilePart& part : segment->hot_parts()) parts.push_back(part);
        }
        for (const auto& segment : segments) {
          if (whole) parts.push_back({segment->file(), segment->file()->bytes()});
        }
        warm(std::move(parts));
      },
      "segments"_a, "whole"_a);
  module.def("write_segment", &write, "path"_a, "tokens"_a, "vocab_size"_a, "order_depth"_a, "fingerprint"_a, "document_table"_a, "threads"_a,
             "progress"_a);
  module.def("merge_segments", &merge, "path"_a, "segments"_a, "deleted"_a, "document_table"_a, "threads"_a, "progress"_a);
}

}  // namespace suffolk::bindings
