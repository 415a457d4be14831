// Binds the n-gram corpus in SGLang's wheel (0.5.23) for research/sglang_trie.py, which compiles this file beside its sources.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ngram.h"

namespace py = pybind11;
using sglang::ngram::Ngram;
using sglang::ngram::Param;
using Tokens = std::vector<std::vector<std::int32_t>>;

namespace {

Param make_param(std::size_t depth, std::size_t width, std::size_t corpus_nodes) {
  Param param;
  param.enable = true;
  param.enable_router_mode = false;
  param.min_bfs_breadth = 1;
  param.max_bfs_breadth = 10;
  param.max_trie_depth = depth;
  param.draft_token_num = width;
  param.external_sam_budget = corpus_nodes;
  param.match_type = "BFS";
  return param;
}

}  // namespace

PYBIND11_MODULE(sglang_binding, module) {
  py::class_<Ngram>(module, "Ngram")
      .def(py::init([](std::size_t capacity, std::size_t depth, std::size_t width, std::size_t corpus_nodes) {
        return new Ngram(capacity, make_param(depth, width, corpus_nodes));
      }))
      .def("batch_get",
           [](Ngram& self, const std::vector<std::int64_t>& states, const Tokens& tokens,
              const std::vector<std::size_t>& lengths) {
             const auto found = self.batchMatch(states, tokens, lengths);
             return std::make_pair(py::array_t<std::int32_t>(static_cast<py::ssize_t>(found.token.size()), found.token.data()),
                                   py::array_t<std::uint8_t>(static_cast<py::ssize_t>(found.mask.size()), found.mask.data()));
           })
      .def("batch_put", [](Ngram& self, Tokens tokens) { self.asyncInsert(std::move(tokens)); })
      .def("synchronize", &Ngram::synchronize)
      .def("erase", &Ngram::eraseMatchState)
      .def("load", [](Ngram& self, const std::vector<std::int32_t>& tokens) {
        self.startExternalCorpusLoad();
        self.appendExternalCorpusTokens(tokens);
        self.finishExternalCorpusLoad("corpus");
      });
}
