#include "bindings/arguments.h"

#include <algorithm>

namespace suffolk::bindings {
namespace {

std::uint32_t checked_token(std::int64_t value, std::uint64_t index, std::uint32_t vocab_size) {
  if (value < 0 || value >= static_cast<std::int64_t>(vocab_size)) {
    refuse("token id ", value, " at index ", index, " is out of range; the vocabulary has ", vocab_size, " ids");
  }
  return static_cast<std::uint32_t>(value);
}

std::uint32_t checked_bound(std::int64_t value, const char* name) {
  if (value < 0 || value > 0x7FFFFFFF) refuse(name, " is ", value, "; it must be 0 to 2147483647");
  return static_cast<std::uint32_t>(value);
}

}  // namespace

std::vector<std::uint32_t> token_tail(const py::handle& ids, std::uint64_t limit, std::uint32_t vocab_size) {
  std::vector<std::uint32_t> tail;
  if (py::isinstance<py::array>(ids)) {
    const auto given = py::reinterpret_borrow<py::array>(ids);
    const char kind = given.dtype().kind();
    if (given.ndim() != 1 || (kind != 'i' && kind != 'u' && given.size() > 0)) { refuse("token ids must be a one-dimensional array of integers"); }
    const auto size = static_cast<std::uint64_t>(given.size()), begin = size - std::min(size, limit);
    using Ids = py::array_t<std::int32_t>;
    if (py::isinstance<Ids>(given) && (given.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) != 0) {  // the usual case
      const auto last = py::reinterpret_borrow<Ids>(given).unchecked<1>();
      for (std::uint64_t i = begin; i < size; ++i) tail.push_back(checked_token(last(static_cast<py::ssize_t>(i)), i, vocab_size));
      return tail;
    }
    const auto last =
        py::array_t<std::int64_t, py::array::forcecast>::ensure(given[py::slice(static_cast<py::ssize_t>(begin), static_cast<py::ssize_t>(size), 1)]);
    if (!last) throw py::error_already_set();
    for (std::uint64_t i = begin; i < size; ++i) tail.push_back(checked_token(last.at(i - begin), i, vocab_size));
    return tail;
  }
  if (!py::isinstance<py::sequence>(ids) || py::isinstance<py::str>(ids)) {
    refuse("token ids must be a sequence of integers, not ", std::string(py::str(py::type::handle_of(ids).attr("__name__"))));
  }
  const auto given = py::reinterpret_borrow<py::sequence>(ids);
  const std::uint64_t size = given.size(), begin = size - std::min(size, limit);
  for (std::uint64_t i = begin; i < size; ++i) {
    const py::object item = given[i];
    const long long value = PyLong_AsLongLong(py::reinterpret_steal<py::object>(PyNumber_Index(item.ptr())).ptr());
    if (value == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      refuse("token id at index ", i, " is ", std::string(py::repr(item)), ", not an integer in range");
    }
    tail.push_back(checked_token(value, i, vocab_size));
  }
  return tail;
}

std::vector<std::vector<std::uint32_t>> document_lists(const DocumentLists& given) {
  std::vector<std::vector<std::uint32_t>> lists;
  for (const auto& list : given) lists.emplace_back(list.data(), list.data() + list.size());
  return lists;
}

std::shared_ptr<const FileSet> file_set(const Segments& segments, const Segments& deletions, const DocumentLists& deleted_documents) {
  const auto files = std::make_shared<FileSet>();
  files->segments.assign(segments.begin(), segments.end());
  files->deletions.assign(deletions.begin(), deletions.end());
  files->deleted = document_lists(deleted_documents);
  files->check();
  return files;
}

QueryBounds query_bounds(std::int64_t max_match, std::int64_t min_match, std::int64_t max_depth, std::int64_t max_nodes) {
  return {.max_match = checked_bound(max_match, "max_match"),
          .min_match = checked_bound(min_match, "min_match"),
          .max_depth = checked_bound(max_depth, "max_depth"),
          .max_nodes = checked_bound(max_nodes, "max_nodes")};
}

Progress progress_with_signals(const py::object& callback) {
  return [&callback](double share) {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!callback.is_none()) callback(share);
  };
}

}  // namespace suffolk::bindings
