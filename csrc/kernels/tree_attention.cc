#include "kernels/tree_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention_backend.h"
#include "kernels/workers.h"

namespace suffolk::kernels {
namespace {

constexpr std::size_t kQueries = 48;           // queries of a block: their numbers stay in the caches
constexpr std::size_t kBlocksPerThread = 4;    // so that a delayed thread does not delay the others
constexpr std::size_t kLeastWork = 1U << 16;   // multiplications for which another thread is worth its start
constexpr std::int64_t kPieceTokens = kPiece;

const AttentionBackend& best_backend(Element element) noexcept {
  for (const AttentionBackend* backend : {avx512_attention(element), avx2_attention(element)}) {
    if (backend != nullptr) return *backend;
  }
  return *portable_attention(element);
}

std::size_t element_bytes(Element element) noexcept { return element == Element::kFloat32 ? 4 : 2; }

std::size_t padded(std::size_t width) { return (width + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine; }

// The weighted values of queries over some keys: what is merged.
struct Sums {
  float* out;    // [queries, width]
  float* peaks;  // [queries]
  float* sums;   // [queries]; 0 if there are no keys
  std::size_t width;

  static std::size_t floats(std::size_t queries, std::size_t width) { return queries * (width + 2); }
  static Sums at(float* memory, std::size_t queries, std::size_t width) {
    return {.out = memory, .peaks = memory + queries * width, .sums = memory + queries * (width + 1), .width = width};
  }
  Sums from(std::size_t query) const { return {.out = out + query * width, .peaks = peaks + query, .sums = sums + query, .width = width}; }
};

// Merges `later` keys into `all`, for one query. Both have their own peak.
void merge(const Sums& all, const Sums& later) {
  if (*later.sums == 0.0F) return;
  if (*all.sums == 0.0F) {
    std::copy_n(later.out, all.width, all.out);
    *all.peaks = *later.peaks;
    *all.sums = *later.sums;
    return;
  }
  const float peak = std::max(*all.peaks, *later.peaks);
  const float before = std::exp(*all.peaks - peak), after = std::exp(*later.peaks - peak);
  for (std::size_t i = 0; i < all.width; ++i) all.out[i] = all.out[i] * before + later.out[i] * after;
  *all.sums = *all.sums * before + *later.sums * after;
  *all.peaks = peak;
}

// Some rows of a span, for the query heads that share one key head.
struct Block {
  const AttentionSpan* span;
  std::int64_t begin, end;  // rows of the span
  std::size_t head;         // key head
  std::int64_t first_piece, end_piece;
};

// The memory of a thread, kept between calls.
struct Scratch {
  std::vector<float> queries, scores, wide, piece, all;
};

class Layer {
 public:
  explicit Layer(const TreeAttention& layer)
      : at_(layer), backend_(best_backend(layer.element)), fold_(layer.heads / layer.key_heads), bytes_(element_bytes(layer.element)) {}

  std::vector<Block> blocks() const {
    std::vector<Block> found;
    const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(1, kQueries / fold_));
    for (const AttentionSpan* span = at_.spans; span != at_.spans + at_.span_count; ++span) {
      for (std::int64_t begin = 0; begin < span->rows; begin += rows) {
        Block block{.span = span, .begin = begin, .end = std::min(begin + rows, span->rows), .head = 0, .first_piece = INT64_MAX, .end_piece = 0};
        for (std::int64_t row = block.begin; row < block.end; ++row) {
          const std::int64_t position = position_of(*span, row);
          block.first_piece = std::min(block.first_piece, oldest(position) / kPieceTokens);
          block.end_piece = std::max(block.end_piece, position / kPieceTokens + 1);
        }
        for (; block.head < at_.key_heads; ++block.head) found.push_back(block);
      }
    }
    return found;
  }

  std::size_t queries(const Block& block) const { return static_cast<std::size_t>(block.end - block.begin) * fold_; }
  std::size_t width() const { return padded(at_.value_width); }

  // Multiplications of a block, roughly.
  std::size_t work(const Block& block) const {
    return queries(block) * static_cast<std::size_t>(block.end_piece - block.first_piece) * kPiece * (at_.key_width + at_.value_width);
  }

  // Computes the pieces [begin, end) of a block. Each is merged into `all`, [queries], or, if `apart`, written to the next of them.
  void attend(const Block& block, std::int64_t begin, std::int64_t end, float* all, bool apart, Scratch& scratch) const {
    const std::size_t count = queries(block), floats = Sums::floats(count, width()), wide = padded(at_.key_width);
    grow(scratch.queries, count * wide);
    grow(scratch.scores, count * kPiece);
    grow(scratch.wide, kPiece * (wide + width()));
    grow(scratch.piece, floats);
    read_queries(block, scratch.queries.data());
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const Sums found = Sums::at(apart ? all + static_cast<std::size_t>(piece - begin) * floats : scratch.piece.data(), count, width());
      std::fill_n(found.sums, count, 0.0F);
      attend_piece(block, piece, found, scratch);
      if (!apart) merge_all(Sums::at(all, count, width()), found, count);
    }
  }

  static void merge_all(const Sums& all, const Sums& later, std::size_t count) {
    for (std::size_t query = 0; query < count; ++query) merge(all.from(query), later.from(query));
  }

  void write(const Block& block, const Sums& all) const {
    auto* out = static_cast<std::byte*>(at_.out);
    for (std::size_t query = 0; query < queries(block); ++query) {
      const std::size_t row = static_cast<std::size_t>(block.span->begin + block.begin) + query / fold_;
      const std::size_t place = (row * at_.heads + block.head * fold_ + query % fold_) * at_.value_width;
      backend_.finish(all.out + query * all.width, all.sums[query], at_.value_width, out + place * bytes_);
    }
  }

  static void grow(std::vector<float>& memory, std::size_t floats) {
    if (memory.size() < floats) memory.resize(floats);
  }

 private:
  std::int64_t oldest(std::int64_t position) const { return at_.window == 0 ? 0 : std::max<std::int64_t>(0, position - at_.window + 1); }

  std::int64_t position_of(const AttentionSpan& span, std::int64_t row) const {
    if (span.chain != 0) return span.cached + row;
    const std::int64_t* offset = at_.offsets + span.begin + row;
    return span.cached + offset[1] - offset[0] - 1;
  }

  void read_queries(const Block& block, float* to) const {
    const auto* query = static_cast<const std::byte*>(at_.query);
    for (std::int64_t row = block.begin; row < block.end; ++row) {
      for (std::size_t head = block.head * fold_; head < (block.head + 1) * fold_; ++head, to += padded(at_.key_width)) {
        const std::size_t place = static_cast<std::size_t>(block.span->begin + row) * at_.row_stride + head * at_.head_stride;
        backend_.widen(query + place * bytes_, at_.key_width, to);
      }
    }
  }

  // The positions of a piece that a row sees.
  struct Range {
    std::int64_t begin, end;
    bool shared;  // whether all of them lie in the rows after `first`, so that other rows may see the same keys
    bool operator==(const Range&) const = default;
  };

  Range range(const Block& block, std::int64_t row, std::int64_t piece) const {
    const std::int64_t position = position_of(*block.span, row), end = std::min((piece + 1) * kPieceTokens, position + 1);
    return {.begin = std::max(piece * kPieceTokens, oldest(position)), .end = end, .shared = block.span->chain != 0 || end <= block.span->cached};
  }

  void attend_piece(const Block& block, std::int64_t piece, const Sums& found, Scratch& scratch) const {
    const void* keys[kPiece + kPieceSlack];
    const void* values[kPiece];
    for (std::int64_t row = block.begin, end = row; row < block.end; row = end) {
      const Range seen = range(block, row, piece);
      for (end = row + 1; end < block.end && seen.shared && range(block, end, piece) == seen;) ++end;
      if (seen.begin >= seen.end) continue;
      const std::size_t first = static_cast<std::size_t>(row - block.begin) * fold_;
      Piece work{.queries = scratch.queries.data() + first * padded(at_.key_width),
                 .count = static_cast<std::size_t>(end - row) * fold_,
                 .keys = keys,
                 .values = values,
                 .begin = static_cast<std::size_t>(seen.begin - piece * kPieceTokens),
                 .end = static_cast<std::size_t>(seen.end - piece * kPieceTokens),
                 .key_width = at_.key_width,
                 .value_width = at_.value_width,
                 .scaling = at_.scaling,
                 .softcap = at_.softcap,
                 .scores = scratch.scores.data(),
                 .wide = scratch.wide.data(),
                 .out = found.out + first * found.width,
                 .peaks = found.peaks + first,
                 .sums = found.sums + first};
      find_keys(block, row, seen, work, keys, values);
      backend_.attend(work);
    }
  }

  void find_keys(const Block& block, std::int64_t row, const Range& seen, const Piece& work, const void** keys, const void** values) const {
    const AttentionSpan& span = *block.span;
    const std::int64_t* path = span.chain != 0 ? nullptr : at_.ancestors + at_.offsets[span.begin + row] - span.cached;
    const auto* all_keys = static_cast<const std::byte*>(at_.keys);
    const auto* all_values = static_cast<const std::byte*>(at_.values);
    std::size_t j = work.begin;
    for (std::int64_t position = seen.begin; position < seen.end; ++position, ++j) {
      const std::int64_t place = seen.shared || position < span.cached ? span.first + position : path[position];
      const std::size_t entry = static_cast<std::size_t>(place) * at_.key_heads + block.head;
      keys[j] = all_keys + entry * at_.key_width * bytes_;
      values[j] = all_values + entry * at_.value_width * bytes_;
    }
    std::fill_n(keys + j, kPieceSlack, keys[j - 1]);
  }

  const TreeAttention& at_;
  const AttentionBackend& backend_;
  std::size_t fold_, bytes_;
};

Scratch& scratch() {
  thread_local Scratch kept;
  return kept;
}

// Computes whole blocks, each by one thread.
void attend_blocks(const Layer& layer, const std::vector<Block>& blocks, unsigned threads) {
  share(blocks.size(), threads, [&](std::size_t number) {
    const Block& block = blocks[number];
    Scratch& mine = scratch();
    const std::size_t count = layer.queries(block);
    Layer::grow(mine.all, Sums::floats(count, layer.width()));
    const Sums all = Sums::at(mine.all.data(), count, layer.width());
    std::fill_n(all.sums, count, 0.0F);
    layer.attend(block, block.first_piece, block.end_piece, mine.all.data(), false, mine);
    layer.write(block, all);
  });
}

// Computes blocks whose pieces are divided into `parts` among the threads, and merges them afterwards.
void attend_parts(const Layer& layer, const std::vector<Block>& blocks, std::int64_t parts, unsigned threads) {
  thread_local std::vector<float> kept;
  std::vector<std::size_t> begins{0};
  for (const Block& block : blocks) {
    const auto pieces = static_cast<std::size_t>(block.end_piece - block.first_piece);
    begins.push_back(begins.back() + pieces * Sums::floats(layer.queries(block), layer.width()));
  }
  Layer::grow(kept, begins.back());
  float* const memory = kept.data();
  share(blocks.size() * static_cast<std::size_t>(parts), threads, [&](std::size_t number) {
    const Block& block = blocks[number / static_cast<std::size_t>(parts)];
    const std::int64_t part = static_cast<std::int64_t>(number) % parts, pieces = block.end_piece - block.first_piece;
    const std::int64_t begin = pieces * part / parts, end = pieces * (part + 1) / parts;
    float* to = memory + begins[number / static_cast<std::size_t>(parts)] + static_cast<std::size_t>(begin) * Sums::floats(layer.queries(block), layer.width());
    layer.attend(block, block.first_piece + begin, block.first_piece + end, to, true, scratch());
  });
  for (std::size_t number = 0; number < blocks.size(); ++number) {
    const std::size_t count = layer.queries(blocks[number]), floats = Sums::floats(count, layer.width());
    const Sums all = Sums::at(memory + begins[number], count, layer.width());
    for (std::size_t later = begins[number] + floats; later < begins[number + 1]; later += floats) {
      Layer::merge_all(all, Sums::at(memory + later, count, layer.width()), count);
    }
    layer.write(blocks[number], all);
  }
}

}  // namespace

void attend(const TreeAttention& layer, unsigned threads) {
  const Layer work(layer);
  const std::vector<Block> blocks = work.blocks();
  std::size_t products = 0;
  std::int64_t pieces = 1;
  for (const Block& block : blocks) {
    products += work.work(block);
    pieces = std::max(pieces, block.end_piece - block.first_piece);
  }
  threads = static_cast<unsigned>(std::clamp<std::size_t>(products / kLeastWork, 1, threads));
  const std::size_t wanted = threads == 1 ? 1 : kBlocksPerThread * threads;
  const auto parts = static_cast<std::int64_t>((wanted + blocks.size() - 1) / std::max<std::size_t>(1, blocks.size()));
  if (parts > 1 && pieces > 1) {
    attend_parts(work, blocks, std::min(parts, pieces), threads);
  } else {
    attend_blocks(work, blocks, threads);
  }
}

}  // namespace suffolk::kernels
