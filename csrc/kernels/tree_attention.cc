#include "kernels/tree_attention.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/attention_backend.h"
#include "kernels/workers.h"

namespace suffolk::kernels {
namespace {

constexpr std::size_t kQueries = 96;          // queries of a block: their numbers stay in the caches
constexpr std::size_t kBlocksPerThread = 4;   // so that a delayed thread does not delay the others
constexpr std::size_t kLeastWork = 1U << 16;  // multiplications for which another thread is worth its start
constexpr std::int64_t kPieceTokens = kPiece;

const AttentionBackend& best_backend(Element element, std::size_t key_width, std::size_t value_width) noexcept {
  for (const AttentionBackend* backend : {amx_attention(element, key_width, value_width), avx512_attention(element), avx2_attention(element)}) {
    if (backend != nullptr) return *backend;
  }
  return *portable_attention(element);
}

std::size_t element_bytes(Element element) noexcept { return element == Element::kFloat32 ? 4 : 2; }

// The floats in memory that `Sums` of `queries` queries take.
std::size_t floats_of(std::size_t queries, std::size_t width) { return queries * (width + 2); }

Sums sums_at(float* memory, std::size_t queries, std::size_t width) {
  return {.out = memory, .peaks = memory + queries * width, .sums = memory + queries * (width + 1), .width = width};
}

// Some rows of a span, for the query heads that share one key head.
struct Block {
  const AttentionSpan* span;
  std::int64_t begin, end;  // rows of the span
  std::size_t head;         // key head
  std::int64_t first_piece, end_piece;
};

// Memory that is kept between calls, because a pass attends in every layer. It begins at a cache line.
class Memory {
 public:
  float* floats(std::size_t count) {
    if (kept_.size() < count + kFloatsPerLine) kept_.resize(count + kFloatsPerLine);
    void* at = kept_.data();
    std::size_t space = kept_.size() * sizeof(float);
    return static_cast<float*>(std::align(kFloatsPerLine * sizeof(float), count * sizeof(float), at, space));
  }

 private:
  std::vector<float> kept_;
};

// The memory of a thread.
struct Scratch {
  Memory queries, scores, wide, piece, all;
  std::vector<Seen> each;
};

class Layer {
 public:
  explicit Layer(const TreeAttention& layer)
      : at_(layer),
        backend_(best_backend(layer.element, layer.key_width, layer.value_width)),
        fold_(layer.heads / layer.key_heads),
        bytes_(element_bytes(layer.element)) {}

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
  std::size_t width() const { return padded_width(at_.value_width); }

  // Multiplications of a block, roughly.
  std::size_t work(const Block& block) const {
    return queries(block) * static_cast<std::size_t>(block.end_piece - block.first_piece) * kPiece * (at_.key_width + at_.value_width);
  }

  // Computes the pieces [begin, end) of a block. Merges each piece into `all`, the sums of the queries. If `apart`, writes each
  // piece to its own sums, one after another from `all` on.
  void attend(const Block& block, std::int64_t begin, std::int64_t end, float* all, bool apart, Scratch& scratch) const {
    const std::size_t count = queries(block), floats = floats_of(count, width());
    const float* query = read_queries(block, scratch.queries.floats((count + kQuerySlack) * padded_width(at_.key_width)));
    float* const piece_sums = scratch.piece.floats(floats);
    if (backend_.start != nullptr) backend_.start();
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const Sums found = sums_at(apart ? all + static_cast<std::size_t>(piece - begin) * floats : piece_sums, count, width());
      std::fill_n(found.sums, count, 0.0F);
      attend_piece(block, piece, query, found, scratch);
      if (!apart) merge(sums_at(all, count, width()), found, count);
    }
    if (backend_.stop != nullptr) backend_.stop();
  }

  void merge(const Sums& all, const Sums& later, std::size_t count) const { backend_.merge(all, later, count); }

  void write(const Block& block, const Sums& all) const {
    auto* out = static_cast<std::byte*>(at_.out);
    for (std::size_t query = 0; query < queries(block); ++query) {
      const std::size_t row = static_cast<std::size_t>(block.span->begin + block.begin) + query / fold_;
      const std::size_t place = (row * at_.heads + block.head * fold_ + query % fold_) * at_.value_width;
      backend_.finish(all.out + query * all.width, all.sums[query], at_.value_width, out + place * bytes_);
    }
  }

 private:
  std::int64_t oldest(std::int64_t position) const { return at_.window == 0 ? 0 : std::max<std::int64_t>(0, position - at_.window + 1); }

  std::int64_t position_of(const AttentionSpan& span, std::int64_t row) const {
    if (span.chain != 0) return span.cached + row;
    const std::int64_t* offset = at_.offsets + span.begin + row;
    return span.cached + offset[1] - offset[0] - 1;
  }

  const float* read_queries(const Block& block, float* memory) const {
    const auto* query = static_cast<const std::byte*>(at_.query);
    float* to = memory;
    for (std::int64_t row = block.begin; row < block.end; ++row) {
      for (std::size_t head = block.head * fold_; head < (block.head + 1) * fold_; ++head, to += padded_width(at_.key_width)) {
        const std::size_t place = static_cast<std::size_t>(block.span->begin + row) * at_.row_stride + head * at_.head_stride;
        backend_.read_query(query + place * bytes_, at_.key_width, to);
      }
    }
    return memory;
  }

  // The positions of `piece` that a row sees; begin >= end if it sees none.
  Seen seen_by(const Block& block, std::int64_t row, std::int64_t piece) const {
    const std::int64_t position = position_of(*block.span, row), first = piece * kPieceTokens;
    return {.begin = static_cast<std::uint32_t>(std::clamp<std::int64_t>(oldest(position) - first, 0, kPieceTokens)),
            .end = static_cast<std::uint32_t>(std::clamp<std::int64_t>(position + 1 - first, 0, kPieceTokens))};
  }

  // Whether other rows may see the same keys at these positions.
  bool is_shared(const Block& block, std::int64_t piece, const Seen& seen) const {
    return block.span->chain != 0 || piece * kPieceTokens + seen.end <= block.span->cached;
  }

  // The rows [row, end) that see the same keys of `piece` as `row`, as far as they see any. Lists the positions of each query in
  // `each`.
  std::int64_t find_rows(const Block& block, std::int64_t row, std::int64_t piece, Seen& seen, std::vector<Seen>& each) const {
    each.clear();
    for (std::int64_t next = row; next < block.end; ++next) {
      const Seen own = seen_by(block, next, piece);
      const bool joins = next == row || own == seen || backend_.separates;
      if (!joins || (next != row && !(is_shared(block, piece, seen) && is_shared(block, piece, own)))) return next;
      seen = next == row ? own : Seen{.begin = std::min(seen.begin, own.begin), .end = std::max(seen.end, own.end)};
      each.insert(each.end(), fold_, own);
    }
    return block.end;
  }

  void attend_piece(const Block& block, std::int64_t piece, const float* query, const Sums& found, Scratch& scratch) const {
    const void* keys[kPiece + kPieceSlack];
    const void* values[kPiece];
    for (std::int64_t row = block.begin, end = row; row < block.end; row = end) {
      Seen seen{};
      end = find_rows(block, row, piece, seen, scratch.each);
      if (seen.begin >= seen.end) continue;
      const std::size_t first = static_cast<std::size_t>(row - block.begin) * fold_, count = scratch.each.size();
      find_keys(block, row, piece, seen, keys, values);
      backend_.attend({.queries = query + first * padded_width(at_.key_width),
                       .count = count,
                       .keys = keys,
                       .values = values,
                       .seen = seen,
                       .each = scratch.each.data(),
                       .key_width = at_.key_width,
                       .value_width = at_.value_width,
                       .scaling = at_.scaling,
                       .softcap = at_.softcap,
                       .scores = scratch.scores.floats((count + kQuerySlack) * kPiece),
                       .wide = scratch.wide.floats(kPiece * (padded_width(at_.key_width) + width())),
                       .to = found.from(first)});
    }
  }

  void find_keys(const Block& block, std::int64_t row, std::int64_t piece, const Seen& seen, const void** keys, const void** values) const {
    const AttentionSpan& span = *block.span;
    const bool shared = is_shared(block, piece, seen);
    const std::int64_t* path = span.chain != 0 ? nullptr : at_.ancestors + at_.offsets[span.begin + row] - span.cached;
    const auto* all_keys = static_cast<const std::byte*>(at_.keys);
    const auto* all_values = static_cast<const std::byte*>(at_.values);
    for (std::size_t j = seen.begin; j < seen.end; ++j) {
      const std::int64_t position = piece * kPieceTokens + static_cast<std::int64_t>(j);
      const std::int64_t place = shared || position < span.cached ? span.first + position : path[position];
      const std::size_t entry = static_cast<std::size_t>(place) * at_.key_heads + block.head;
      keys[j] = all_keys + entry * at_.key_width * bytes_;
      values[j] = all_values + entry * at_.value_width * bytes_;
    }
    std::fill_n(keys + seen.end, kPieceSlack, keys[seen.end - 1]);
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
    float* const memory = mine.all.floats(floats_of(count, layer.width()));
    const Sums all = sums_at(memory, count, layer.width());
    std::fill_n(all.sums, count, 0.0F);
    layer.attend(block, block.first_piece, block.end_piece, memory, false, mine);
    layer.write(block, all);
  });
}

// Computes blocks by several threads: the pieces of a block are divided into `parts`, which are merged afterwards.
void attend_parts(const Layer& layer, const std::vector<Block>& blocks, std::int64_t parts, unsigned threads) {
  thread_local Memory kept;
  std::vector<std::size_t> begins{0};
  for (const Block& block : blocks) {
    const auto pieces = static_cast<std::size_t>(block.end_piece - block.first_piece);
    begins.push_back(begins.back() + pieces * floats_of(layer.queries(block), layer.width()));
  }
  float* const memory = kept.floats(begins.back());
  share(blocks.size() * static_cast<std::size_t>(parts), threads, [&](std::size_t number) {
    const Block& block = blocks[number / static_cast<std::size_t>(parts)];
    const std::int64_t part = static_cast<std::int64_t>(number) % parts, pieces = block.end_piece - block.first_piece;
    const std::int64_t begin = pieces * part / parts, end = pieces * (part + 1) / parts;
    float* to =
        memory + begins[number / static_cast<std::size_t>(parts)] + static_cast<std::size_t>(begin) * floats_of(layer.queries(block), layer.width());
    layer.attend(block, block.first_piece + begin, block.first_piece + end, to, true, scratch());
  });
  for (std::size_t number = 0; number < blocks.size(); ++number) {
    const std::size_t count = layer.queries(blocks[number]), floats = floats_of(count, layer.width());
    const Sums all = sums_at(memory + begins[number], count, layer.width());
    for (std::size_t later = begins[number] + floats; later < begins[number + 1]; later += floats) {
      layer.merge(all, sums_at(memory + later, count, layer.width()), count);
    }
    layer.write(blocks[number], all);
  }
}

}  // namespace

const char* attention_instructions(Element element, std::size_t key_width, std::size_t value_width) noexcept {
  return best_backend(element, key_width, value_width).name;
}

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
