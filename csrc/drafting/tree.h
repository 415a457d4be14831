// Draft trees as their callers hold them: columns of one length, an entry a node, parents before their children.
#pragma once

#include <cstdint>
#include <span>

namespace suffolk::drafting {

// A tree in the memory of whoever asks; all columns of one length.
struct ScoredTree {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> parents;
  std::span<const float> scores;          // in 0..1; a child's at most its parent's
  std::span<const std::uint8_t> sources;  // who proposed a node: bits
};

// Nothing, if each entry is -1 (a child of the context's last token) or the index of an earlier one, and there are fewer than 2^31;
// else throws kInvalidArgument with the first node that breaks this. O(n)
void require_parents(std::span<const std::int32_t> parents);

// Nothing, if all are ids of the vocabulary; else throws kInvalidArgument with the first node that has none. O(n)
void require_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab_size);

// Nothing, if all are within 0..1; else, and for NaN, throws kInvalidArgument with the first node whose score is not. O(n)
void require_scores(std::span<const float> scores);

// Nothing, if `tree` is as said above; else throws kInvalidArgument with what is wrong. O(n)
void require_scored(const ScoredTree& tree);

// Writes the depth of each node: 1 for a child of the context's last token. O(n)
// REQUIRES: parents passed require_parents; depths has its length
void find_depths(std::span<const std::int32_t> parents, std::span<std::int32_t> depths);

// Whether each node is the child of the one before it. O(n)
bool is_chain(std::span<const std::int32_t> parents) noexcept;

// Writes which rows see which, row by row, 1 or 0: row 0 (the context's last token) itself, row i + 1 (node i) its parent's row, all
// that this sees, and itself. O((n + 1)^2)
// REQUIRES: parents passed require_parents; visible has (n + 1)^2 entries
void find_visible(std::span<const std::int32_t> parents, std::span<std::uint8_t> visible);

}  // namespace suffolk::drafting
