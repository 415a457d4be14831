// NumPy columns, and the columns of Python's DraftTree (datastore/draft_tree.py).
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
#include "drafting/calibrator.h"
#include "drafting/tree.h"

namespace suffolk::bindings {

namespace py = pybind11;

template <typename T>
constexpr char kKind = std::is_floating_point_v<T> ? 'f'
                       : std::is_signed_v<T>       ? 'i'
                                                   : 'u';

// A numpy array with one axis, or with rows of one width: the caller's memory, or a copy if that is not contiguous and aligned.
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
    Array typed = Array::ensure(given);
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

// The view of a DraftTree for merges and checks.
class Scored {
 public:
  explicit Scored(const py::handle& tree)
      : tokens_(tree.attr("tokens"), "tokens"),
        parents_(tree.attr("parents"), "parents"),
        scores_(tree.attr("scores"), "scores"),
        sources_(tree.attr("sources"), "sources") {}

  drafting::ScoredTree view() const {
    return {.tokens = tokens_.view(), .parents = parents_.view(), .scores = scores_.view(), .sources = sources_.view()};
  }

 private:
  Column<std::int32_t> tokens_, parents_;
  Column<float> scores_;
  Column<std::uint32_t> sources_;
};

// The view of a DraftTree for calibration.
class Counted {
 public:
  explicit Counted(const py::handle& tree)
      : tokens_(tree.attr("tokens"), "tokens"),
        parents_(tree.attr("parents"), "parents"),
        match_length_(number(tree, "match_length")),
        match_count_(number(tree, "match_count")) {
    const py::object counts = tree.attr("counts");
    if (!counts.is_none()) counts_.emplace(counts, "counts");
  }

  drafting::CountedTree view() const {
    const std::span<const std::uint64_t> counts = counts_ ? counts_->view() : std::span<const std::uint64_t>();
    if (counts_) require_size(counts.size(), tokens_.view().size(), "counts");
    return {.tokens = tokens_.view(), .parents = parents_.view(), .counts = counts, .match_length = match_length_, .match_count = match_count_};
  }

 private:
  static std::uint64_t number(const py::handle& tree, const char* name) {
    const py::object value = tree.attr(name);
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
    const unsigned long long found = index ? PyLong_AsUnsignedLongLong(index.ptr()) : 0;
    if (PyErr_Occurred()) {
      PyErr_Clear();
      refuse("draft tree: ", name, " is ", std::string(py::str(value)), "; it must be 0 to 2^64 - 1");
    }
    return found;
  }

  Column<std::int32_t> tokens_, parents_;
  std::optional<Column<std::uint64_t>> counts_;
  std::uint64_t match_length_, match_count_;
};

template <typename T>
py::array_t<T> array_of(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

}  // namespace suffolk::bindings
