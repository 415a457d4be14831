#include "core/memory_segment.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "core/error.h"
#include "core/kept_tokens.h"
#include "core/sort.h"
#include "core/sort_run.h"
#include "core/suffix_order.h"
#include "core/tournament.h"

namespace suffolk {
namespace {

constexpr std::size_t kScratchSuffixes = 1 << 16;  // suffixes of a small sort with scratch memory

void check(std::span<const Document> documents) {
  if (documents.empty()) refuse("no document to append; give at least one");
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    if (documents[i].tokens.empty()) refuse("document ", i, " has no tokens; leave it out");
    tokens += documents[i].tokens.size() + 1;
  }
  if (tokens > kMaxSortedTokens) refuse("documents of ", tokens, " tokens; the limit is ", kMaxSortedTokens, ": append fewer at a time");
}

// Sorts without tables of the size of the vocabulary.
template <typename Token>
void sort_small(std::span<const Token> tokens, const MemoryShape& shape, std::span<std::uint32_t> positions) {
  std::size_t filled = 0;
  for (std::uint32_t at = 0; at < tokens.size(); ++at) {
    if (tokens[at] != std::numeric_limits<Token>::max()) positions[filled++] = at;
  }
  const Text<Token> text(tokens, shape.vocab_size, shape.order_depth);
  const std::atomic<bool> stop = false;
  RunSorter<Token>(text, shape.order_depth, kScratchSuffixes, stop).sort(positions, 0);
  for (std::uint32_t& position : positions) position &= ~kMark;
}

}  // namespace

MemorySegment::MemorySegment(std::span<const Document> documents, const MemoryShape& shape, unsigned threads) : shape_(shape) {
  check(documents);
  std::size_t origin_bytes = 0;
  for (const Document& document : documents) origin_bytes += document.origin.size();
  documents_.reserve(documents.size(), origin_bytes);
  for (const Document& each : documents) documents_.add(each.sequence, each.group, each.time, each.tokens.size(), each.origin);
  allocate();
  shape_.width() == 2 ? fill<std::uint16_t>(documents, threads) : fill<std::uint32_t>(documents, threads);
  finish();
}

std::shared_ptr<const MemorySegment> MemorySegment::merge(std::span<const Input> inputs, const MemoryShape& shape) {
  const std::shared_ptr<MemorySegment> merged(new MemorySegment(shape));
  std::size_t count = 0, origin_bytes = 0;
  const auto each_kept = [&](const auto& visit) {
    for (const Input& input : inputs) {
      auto removed = input.removed.begin();
      for (std::uint32_t i = 0; i < input.segment->documents_.size(); ++i) {
        if (removed != input.removed.end() && *removed == i) {
          ++removed;
        } else {
          visit(input.segment->documents_, i);
        }
      }
    }
  };
  each_kept([&](const LiveDocuments& from, std::size_t index) {
    ++count;
    origin_bytes += from.origin(index).size();
  });
  if (count == 0) return nullptr;
  merged->documents_.reserve(count, origin_bytes);
  each_kept([&](const LiveDocuments& from, std::size_t index) { merged->documents_.add(from, index); });
  merged->allocate();
  merged->merge_positions(inputs);
  merged->finish();
  return merged;
}

std::uint64_t MemorySegment::bytes() const noexcept {
  return sizeof(*this) + tokens_.bytes() + positions_.bytes() + directory_.bytes() + documents_.bytes();
}

std::vector<std::uint32_t> MemorySegment::read(std::size_t index, std::uint64_t begin, std::uint64_t limit) const {
  const auto [lo, hi] = documents_.range(index);
  std::vector<std::uint32_t> ids;
  for (std::uint64_t at = lo + begin; at < hi && ids.size() < limit; ++at) ids.push_back(suffixes_.tokens[at]);
  return ids;
}

// Sizes the arrays by the documents.
void MemorySegment::allocate() {
  const std::uint64_t tokens = documents_.tokens(), width = shape_.width();
  tokens_ = Array<std::byte>(tokens * width);
  positions_ = Array<std::uint32_t>(tokens - documents_.size());
  directory_ = Array<SuffixKey>(directory_entries(positions_.size()));
  suffixes_ = {.tokens = {.data = tokens_.data(), .size = tokens, .width = shape_.width()},
               .positions = positions_.data(),
               .count = positions_.size(),
               .vocab_size = shape_.vocab_size,
               .directory = directory_.data(),
               .directory_count = directory_.size()};
}

template <typename Token>
void MemorySegment::fill(std::span<const Document> documents, unsigned threads) {
  const std::span<Token> tokens(reinterpret_cast<Token*>(tokens_.data()), suffixes_.tokens.size);
  std::size_t at = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    for (const std::uint32_t token : documents[i].tokens) {
      if (token >= shape_.vocab_size) {
        refuse("token id ", token, " in document ", i, " is out of range; the vocabulary has ", shape_.vocab_size, " ids");
      }
      tokens[at++] = static_cast<Token>(token);
    }
    tokens[at++] = std::numeric_limits<Token>::max();
  }
  const std::span<std::uint32_t> positions = positions_;
  if (positions.size() < std::max<std::size_t>(shape_.vocab_size, kScratchSuffixes)) {
    sort_small<Token>(tokens, shape_, positions);
  } else {
    std::vector<std::uint32_t> first_ranks(std::size_t{shape_.vocab_size} + 1);
    sort_suffixes<Token>(tokens, shape_.vocab_size, shape_.order_depth, threads, positions, first_ranks, {});
  }
}

void MemorySegment::merge_positions(std::span<const Input> inputs) {
  std::vector<Suffixes> views;
  std::vector<KeptTokens> kept;
  std::uint64_t base = 0;
  for (const Input& input : inputs) {
    std::vector<Interval> removed;
    for (const std::uint32_t index : input.removed) {
      const auto [begin, separator] = input.segment->documents_.range(index);
      removed.push_back({begin, separator + 1});
    }
    const Tokens& tokens = input.segment->suffixes_.tokens;
    views.push_back(input.segment->suffixes_);
    kept.emplace_back(tokens.size, removed, base);
    kept.back().for_each_run([&](std::uint64_t begin, std::uint64_t end) {
      std::copy(tokens.data + begin * tokens.width, tokens.data + end * tokens.width, tokens_.data() + base * tokens.width);
      base += end - begin;
    });
  }
  const SuffixOrder order(views, shape_.order_depth);
  std::vector<Interval> all;
  for (const Suffixes& view : views) all.push_back({0, view.count});
  merge_ranks(views, kept, order, all, positions_.data());
}

// Completes what depends on the sorted suffixes and the documents.
void MemorySegment::finish() {
  documents_.finish();
  for (std::size_t i = 0; i < directory_.size(); ++i) {
    directory_[i] = suffix_key(suffixes_.tokens, positions_[i * kDirectoryStride], shape_.vocab_size, shape_.width());
  }
}

}  // namespace suffolk
