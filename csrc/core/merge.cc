#include "core/merge.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kept_tokens.h"
#include "core/parallel.h"
#include "core/suffix_order.h"
#include "core/suffixes.h"
#include "core/tournament.h"

namespace suffolk {
namespace {

using Slice = std::vector<Interval>;  // ranks of each input

void check(std::span<const MergeInput> inputs) {
  if (inputs.empty()) refuse("no segment to merge; give at least one");
  const format::Header& first = inputs.front().segment->header();
  for (const MergeInput& input : inputs) {
    const format::Header& header = input.segment->header();
    if (header.vocab_size != first.vocab_size || header.token_width != first.token_width || header.order_depth != first.order_depth ||
        header.fingerprint != first.fingerprint) {
      refuse(input.segment->path(), " and ", inputs.front().segment->path(),
             " differ in vocabulary, tokenizer or order depth; only segments that agree can be merged");
    }
    input.segment->require_documents(input.deleted);
  }
}

// The tokens of each deleted document with its separator. Throws kCorruption if the documents overlap or leave the tokens.
std::vector<Interval> deleted_ranges(const MergeInput& input) {
  std::vector<Interval> ranges;
  for (const std::uint32_t document : input.deleted) {
    const auto [lo, separator] = input.segment->document_range(document);
    if (lo < (ranges.empty() ? 0 : ranges.back().hi) || separator >= input.segment->header().token_count) {
      fail(Code::kCorruption, input.segment->path(), ": document ", document, " begins at token ", lo,
           " and overlaps another; restore the file from a copy, or build the datastore again");
    }
    ranges.push_back({lo, separator + 1});
  }
  return ranges;
}

class Merger {
 public:
  Merger(std::span<const MergeInput> inputs, const MergeSettings& settings, const Progress& progress)
      : inputs_(inputs),
        settings_(settings),
        progress_(progress),
        segments_(views(inputs)),
        order_(segments_, inputs.front().segment->header().order_depth) {
    for (const MergeInput& input : inputs_) {
      kept_.emplace_back(input.segment->header().token_count, deleted_ranges(input), tokens_);
      tokens_ += kept_.back().tokens();
      documents_ += input.segment->header().document_count - input.deleted.size();
      input_suffixes_ += input.segment->header().suffix_count;
    }
    if (documents_ == 0) refuse("all documents are deleted; a segment needs at least one");
    if (tokens_ > format::kMaxTokens) {
      refuse("the merged segment would have ", tokens_, " tokens; the limit is ", format::kMaxTokens, ": merge fewer segments");
    }
  }

  SegmentSummary run(const std::string& path, std::span<const std::byte> document_table) {
    const format::Header& header = inputs_.front().segment->header();
    SegmentFile file(path, {.vocab_size = header.vocab_size,
                            .order_depth = header.order_depth,
                            .fingerprint = header.fingerprint,
                            .token_count = tokens_,
                            .document_count = documents_,
                            .document_table_bytes = document_table.size()});
    write_tokens(file);
    const std::vector<SuffixKey> directory = write_positions(file);
    const std::vector<std::uint32_t> ranks = first_ranks();
    file.write_section(std::as_bytes(std::span(ranks)));
    write_document_starts(file);
    file.write_section(document_table);
    file.write_section(std::as_bytes(std::span(directory)));
    return file.commit();
  }

 private:
  static std::vector<Suffixes> views(std::span<const MergeInput> inputs) {
    std::vector<Suffixes> all;
    for (const MergeInput& input : inputs) all.push_back(input.segment->suffixes());
    return all;
  }

  void write_tokens(SegmentFile& file) const {
    std::uint64_t unreported = 0;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      const Tokens& tokens = segments_[i].tokens;
      kept_[i].for_each_run([&](std::uint64_t begin, std::uint64_t end) {
        while (begin < end) {
          const std::uint64_t take = std::min(end - begin, kPiece);
          file.write({tokens.data + begin * tokens.width, take * tokens.width});
          begin += take;
          if ((unreported += take) < kPiece) continue;
          report(0);
          unreported = 0;
        }
      });
    }
    file.end_section();
  }

  // Returns the directory, which is written later.
  std::vector<SuffixKey> write_positions(SegmentFile& file) const {
    const std::vector<Slice> slices = cut();
    const unsigned threads = thread_count(settings_.threads);
    const auto launch = threads == 1 ? std::launch::deferred : std::launch::async;
    std::deque<std::future<std::vector<std::uint32_t>>> merging;
    std::vector<SuffixKey> directory;
    std::uint64_t written = 0, done = 0, started = 0;
    for (const Slice& slice : slices) {
      for (; started < slices.size() && merging.size() < threads; ++started) { merging.push_back(start(launch, slices[started])); }
      while (merging.front().wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout) report(done);
      const std::vector<std::uint32_t> positions = merging.front().get();
      merging.pop_front();
      while (directory.size() * kDirectoryStride < written + positions.size()) {
        directory.push_back(key_of(positions[directory.size() * kDirectoryStride - written]));
      }
      file.write(std::as_bytes(std::span(positions)));
      written += positions.size();
      for (const Interval& ranks : slice) done += ranks.size();
      report(done);
    }
    if (written != tokens_ - documents_) {
      fail(Code::kCorruption, "merging found ", written, " suffixes, not ", tokens_ - documents_,
           ": a segment is damaged; run 'suffolk verify' on the datastore");
    }
    file.end_section();
    return directory;
  }

  std::future<std::vector<std::uint32_t>> start(std::launch launch, const Slice& slice) const {
    try {
      return std::async(launch, [this, &slice] {
        std::size_t most = 0;
        for (const Interval& ranks : slice) most += ranks.size();
        std::vector<std::uint32_t> positions(most);
        positions.resize(static_cast<std::size_t>(merge_ranks(segments_, kept_, order_, slice, positions.data()) - positions.data()));
        return positions;
      });
    } catch (const std::system_error& error) { fail_thread(error); }
  }

  // Cuts all ranks at suffixes sampled at equal distances from every input. No slice has more than twice slice_suffixes.
  std::vector<Slice> cut() const {
    const std::uint64_t stride = std::max<std::uint64_t>(1, settings_.slice_suffixes / segments_.size());
    std::vector<SuffixEntry> samples;
    for (std::uint32_t i = 0; i < segments_.size(); ++i) {
      for (std::uint64_t rank = stride; rank < segments_[i].count; rank += stride) samples.push_back(entry(i, rank));
    }
    std::sort(samples.begin(), samples.end(), [&](const SuffixEntry& a, const SuffixEntry& b) { return order_.precedes(a, b); });
    std::vector<Slice> slices(1, Slice(segments_.size()));
    for (std::size_t sample = segments_.size() - 1; sample < samples.size(); sample += segments_.size()) {
      Slice next;
      for (std::uint32_t i = 0; i < segments_.size(); ++i) {
        Interval& before = slices.back()[i];
        before.hi = lower_bound(i, before.lo, samples[sample]);
        next.push_back({before.hi, before.hi});
      }
      slices.push_back(std::move(next));
    }
    for (std::size_t i = 0; i < segments_.size(); ++i) slices.back()[i].hi = segments_[i].count;
    return slices;
  }

  // First rank from `lo` on whose suffix does not precede `splitter`.
  std::uint64_t lower_bound(std::uint32_t segment, std::uint64_t lo, const SuffixEntry& splitter) const {
    const auto before = [&](std::uint64_t rank) { return order_.precedes(entry(segment, rank), splitter); };
    return partition_point(lo, segments_[segment].count, before);
  }

  SuffixEntry entry(std::uint32_t segment, std::uint64_t rank) const { return order_.entry(segment, checked_position(segments_[segment], rank)); }

  // The directory's key of the suffix at this position of the output.
  SuffixKey key_of(std::uint32_t position) const noexcept {
    std::size_t i = segments_.size() - 1;
    while (position < kept_[i].base()) --i;
    const Suffixes& from = segments_[i];
    return suffix_key(from.tokens, kept_[i].origin(position), from.vocab_size, from.tokens.width);
  }

  std::vector<std::uint32_t> first_ranks() const {
    const std::uint32_t vocab_size = segments_.front().vocab_size;
    std::vector<std::uint32_t> ranks(std::size_t{vocab_size} + 1), deleted(std::size_t{vocab_size} + 1);
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      for (std::size_t token = 0; token < ranks.size(); ++token) ranks[token] += segments_[i].first_ranks[token];
      kept_[i].for_each_gap([&](std::uint64_t begin, std::uint64_t end) {
        for (; begin < end; ++begin) {
          const std::uint32_t token = segments_[i].tokens[begin];
          if (token < vocab_size) ++deleted[token + 1];
        }
      });
    }
    std::uint32_t before = 0;
    for (std::size_t token = 0; token < ranks.size(); ++token) ranks[token] -= before += deleted[token];
    return ranks;
  }

  void write_document_starts(SegmentFile& file) const {
    std::vector<std::uint32_t> starts;
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      auto deleted = inputs_[i].deleted.begin();
      for (std::uint64_t document = 0; document < inputs_[i].segment->header().document_count; ++document) {
        if (deleted != inputs_[i].deleted.end() && *deleted == document) {
          ++deleted;
          continue;
        }
        const std::uint64_t start = inputs_[i].segment->document_range(document).lo;
        starts.push_back(start < segments_[i].tokens.size ? kept_[i].moved(start) : KeptTokens::kGone);
        if (starts.size() == kPiece) {
          file.write(std::as_bytes(std::span(starts)));
          starts.clear();
        }
      }
    }
    starts.push_back(static_cast<std::uint32_t>(tokens_));
    file.write_section(std::as_bytes(std::span(starts)));
  }

  void report(std::uint64_t done) const {
    if (progress_) progress_(static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(1, input_suffixes_)));
  }

  static constexpr std::uint64_t kPiece = 1 << 20;  // tokens, or documents, written at a time

  std::span<const MergeInput> inputs_;
  const MergeSettings& settings_;
  const Progress& progress_;
  std::vector<Suffixes> segments_;
  SuffixOrder order_;
  std::vector<KeptTokens> kept_;
  std::uint64_t tokens_ = 0;  // tokens of the output
  std::uint64_t documents_ = 0;
  std::uint64_t input_suffixes_ = 0;
};

}  // namespace

SegmentSummary merge_segments(const std::string& path, std::span<const MergeInput> inputs, std::span<const std::byte> document_table,
                              const MergeSettings& settings, const Progress& progress) {
  check(inputs);
  return Merger(inputs, settings, progress).run(path, document_table);
}

}  // namespace suffolk
