// Runs queries on segments whose sections have arbitrary bytes. The input says which bytes to change and what to ask; the checksums are
// mended, so the files open. Answers may be wrong, but each must keep its bounds.
#include <memory>

#include "core/context_index.h"
#include "core/draft.h"
#include "core/error.h"
#include "core/segment.h"
#include "memory_file.h"

namespace {

using namespace suffolk;
using Ids = std::vector<std::uint32_t>;

constexpr std::uint32_t kOrderDepth = 48;

const std::vector<fuzz::Bytes>& samples() {
  static const std::vector<fuzz::Bytes> made = [] {
    std::vector<Ids> documents = {{1, 2, 3, 1, 2, 4, 1, 2, 3}, {}, {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, {1, 2, 3, 1, 2, 4, 1}};
    for (std::uint32_t i = 0; i < 200; ++i) documents[i % 4].push_back(i * i % 11);
    // The smallest vocabularies that take 2 and 3 bytes a token.
    return std::vector{fuzz::write_sample(documents, 12, kOrderDepth), fuzz::write_sample(documents, 65'536, kOrderDepth)};
  }();
  return made;
}

// A sample with up to 31 changed bytes in its sections, often next to each other, so that all four bytes of a position change.
fuzz::Bytes changed(const fuzz::Bytes& sample, fuzz::Input& input) {
  fuzz::Bytes file = sample;
  std::uint64_t end = 0;
  std::memcpy(&end, file.data() + offsetof(format::Header, table_offset), sizeof(end));
  std::uint64_t at = 0;
  for (std::uint32_t left = input.take<std::uint8_t>() % 32; left > 0; --left) {
    const auto step = input.take<std::uint8_t>();
    at = step < 224 ? at + step % 8 + 1 : input.take<std::uint32_t>();
    at = sizeof(format::Header) + at % (end - sizeof(format::Header));
    file[at] = std::byte{input.take<std::uint8_t>()};
    at -= sizeof(format::Header);
  }
  fuzz::mend_checksums(file);
  return file;
}

Ids take_ids(fuzz::Input& input, std::uint32_t vocab_size) {
  Ids ids(input.between(1, 24));
  for (auto& id : ids) id = input.take<std::uint8_t>() % std::min(vocab_size, 16U);
  return ids;
}

QueryBounds take_bounds(fuzz::Input& input) {
  QueryBounds bounds;
  bounds.max_match = input.between(1, 24);
  bounds.min_match = input.between(1, bounds.max_match);
  bounds.max_depth = input.between(1, kOrderDepth - 24);
  bounds.max_nodes = input.between(0, 300);
  check(bounds, kOrderDepth);
  return bounds;
}

void check_tree(const DraftTree& tree, const QueryBounds& bounds, std::uint32_t vocab_size) {
  fuzz::require(tree.tokens.size() <= bounds.max_nodes, "the budget of nodes");
  fuzz::require(tree.parents.size() == tree.tokens.size() && tree.counts.size() == tree.tokens.size(), "arrays of one length");
  fuzz::require(tree.match_length == 0 || (tree.match_length >= bounds.min_match && tree.match_length <= bounds.max_match), "the bounds of the match");
  std::vector<std::uint32_t> depths;
  for (std::size_t i = 0; i < tree.tokens.size(); ++i) {
    fuzz::require(tree.tokens[i] < vocab_size, "tokens are of the vocabulary");
    fuzz::require(tree.parents[i] >= -1 && tree.parents[i] < static_cast<std::int32_t>(i), "parents precede their children");
    depths.push_back(tree.parents[i] < 0 ? 1 : depths[static_cast<std::size_t>(tree.parents[i])] + 1);
    fuzz::require(depths.back() <= bounds.max_depth, "the depth of the tree");
    fuzz::require(tree.counts[i] >= 1, "every drafted node has a count of at least 1");
  }
}

void ask_documents(const Segment& segment, fuzz::Input& input) {
  const auto& header = segment.header();
  const std::uint64_t document = segment.document_at(input.take<std::uint32_t>() % (header.token_count + 8));
  fuzz::require(document <= header.document_count, "document_at returns a document, or the number of documents");
  const Interval range = segment.document_range(input.take<std::uint8_t>() % header.document_count);
  fuzz::require(range.lo <= range.hi && range.hi <= header.token_count, "document_range stays inside the tokens");
}

void ask_context(fuzz::Input& input) {
  constexpr std::uint32_t kVocabulary = 12;
  ContextIndex index(kVocabulary);
  for (std::uint32_t step = input.between(1, 6); step > 0; --step) {
    for (auto& id : take_ids(input, 16)) index.append(Ids{id % kVocabulary});
    index.truncate(input.take<std::uint16_t>() % (index.size() + 1));
    const QueryBounds bounds = take_bounds(input);
    check_tree(index.draft(bounds), bounds, kVocabulary);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t kind = input.take<std::uint8_t>();
  const fuzz::Bytes& sample = samples()[kind < 8 ? 1 : 0];  // seldom the sample of 3-byte tokens, which is large
  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<Suffixes> views;
  for (std::uint32_t count = input.between(1, 3); count > 0; --count) {
    const fuzz::MemoryFile file(changed(sample, input));
    segments.push_back(std::make_unique<Segment>(file.path()));
    views.push_back(segments.back()->suffixes());
  }
  const Corpus corpus(views, kind % 2 == 0 ? views.size() : 1);  // segments after the first are deletions
  for (int queries = 0; queries < 12 && !input.empty(); ++queries) {
    const Ids context = take_ids(input, views[0].vocab_size);
    const QueryBounds bounds = take_bounds(input);
    check_tree(draft(corpus, longest_match(corpus, context, bounds), bounds), bounds, views[0].vocab_size);
    for (const Suffixes& view : views) {
      const Interval found = find(view, context);
      fuzz::require(found.lo <= found.hi && found.hi <= view.count, "ranks are of the segment");
    }
    ask_documents(*segments.back(), input);
  }
  try {
    segments[0]->verify(Depth::kFull, {});
  } catch (const Error& error) {
    fuzz::require(error.code() == Code::kCorruption, "damage is Corruption");
  }
  ask_context(input);
  return 0;
}
