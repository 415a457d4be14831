// Reads numpy arrays as columns, and Python's DraftTree (datastore/draft_tree.py) as a tree of such columns.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "drafting/trees.h"

namespace suffolk::bindings {

namespace py = pybind11;

template <typename T>
constexpr char kKind = std::is_floating_point_v<T> ? 'f'
                       : std::is_signed_v<T>       ? 'i'
                                                   : 'u';

// A numpy array with one axis, or with two axes and rows of a given width. The column is a view of the caller's memory, or a copy
// if this memory is not contiguous and aligned.
template <typename T>
class Column {
 public:
  Column(const py::handle& given, const char* name) : array_(take(given, name, 1)) {}

  Column(const py::handle& given, const char* name, std::size_t width) : array_(take(given, name, 2)) {
    if (static_cast<std::size_t>(array_.shape(1)) == width) return;
    refuse(name, " have rows of ", array_.shape(1), " entries; there must be ", width, " in each");
  }

  std::span<const T> view() const { return {array_.data(), static_cast<std::size_t>(array_.size())}; }

 private:
  using Array = py::array_t<T, static_cast<int>(py::array::c_style) | static_cast<int>(py::detail::npy_api::NPY_ARRAY_ALIGNED_)>;

  static Array take(const py::handle& given, const char* name, int axes) {
    const bool is_array = py::isinstance<py::array>(given);
    const auto array = is_array ? py::reinterpret_borrow<py::array>(given) : py::array();
    if (!is_array || array.ndim() != axes || array.dtype().kind() != kKind<T> || array.itemsize() != sizeof(T)) {
      const std::string found = is_array ? std::string(py::str(array.dtype())) + " with " + std::to_string(array.ndim()) + " axes"
                                         : std::string(py::str(py::type::handle_of(given).attr("__name__")));
      refuse("draft tree: ", name, " is ", found, "; it must be an array of ", std::string(py::str(py::dtype::of<T>())),
             (axes == 1 ? " with one axis" : " with two axes"));
    }
    const bool is_ready = py::isinstance<Array>(given) && (array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) != 0;
    Array typed = is_ready ? py::reinterpret_borrow<Array>(given) : Array::ensure(given);  // `ensure` is slow
    if (!typed) {
      fail(Code::kResourceExhausted, "draft tree: no memory to put the ", array.size(), " entries of ", name, " in order; ask for fewer nodes");
    }
    return typed;
  }

  Array array_;
};

inline void require_size(std::size_t size, std::size_t tokens, const char* name) {
  if (size == tokens) return;
  refuse("draft tree: ", name, " has ", size, " entries, tokens has ", tokens, "; they must be equal");
}

// Adds a DraftTree of Python to `trees`. Throws kInvalidArgument if a column has another type or length. If `with_counts` is false,
// the fields that only datastores set are not read.
inline void add_tree(drafting::Trees& trees, const py::handle& tree, bool with_counts) {
  const Column<std::int32_t> tokens(tree.attr("tokens"), "tokens"), parents(tree.attr("parents"), "parents");
  const Column<float> scores(tree.attr("scores"), "scores");
  const Column<std::uint32_t> sources(tree.attr("sources"), "sources");
  const std::size_t size = tokens.view().size();
  require_size(parents.view().size(), size, "parents");
  require_size(scores.view().size(), size, "scores");
  require_size(sources.view().size(), size, "sources");
  const drafting::ScoredTree scored = {.tokens = tokens.view(), .parents = parents.view(), .scores = scores.view(), .sources = sources.view()};
  drafting::CountedTree counted = {.tokens = tokens.view(), .parents = parents.view(), .counts = {}};
  if (!with_counts) return trees.add(scored, counted, false);
  std::optional<Column<std::uint64_t>> counts;
  if (const py::object given = tree.attr("counts"); !given.is_none()) {
    counts.emplace(given, "counts");
    require_size(counts->view().size(), size, "counts");
    counted.counts = counts->view();
  }
  const auto number = [&](const char* name) {
    const py::object value = tree.attr(name);
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
    const unsigned long long found = index ? PyLong_AsUnsignedLongLong(index.ptr()) : 0;
    if (PyErr_Occurred()) {
      PyErr_Clear();
      refuse("draft tree: ", name, " is ", std::string(py::str(value)), "; it must be 0 to 2^64 - 1");
    }
    return found;
  };
  counted.match_length = number("match_length");
  counted.match_count = number("match_count");
  trees.add(scored, counted, py::cast<bool>(tree.attr("partial")));
}

template <typename T>
py::array_t<T> array_of(std::span<const T> values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

template <typename T>
py::array_t<T> array_of(const std::vector<T>& values) {
  return array_of(std::span<const T>(values));
}

}  // namespace suffolk::bindings
