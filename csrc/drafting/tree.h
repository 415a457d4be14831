// Draft trees as columns. A column has an entry for each node, and parents come before their children.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace suffolk::drafting {

// A view of the caller's memory; all columns have one length.
struct ScoredTree {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> parents;
  std::span<const float> scores;           // in 0..1; a child's score is at most its parent's
  std::span<const std::uint32_t> sources;  // a bit for each source that proposed the node
};

// Throws kInvalidArgument, naming the first bad node, unless each entry is -1 (a child of the context's last token) or the index of
// an earlier entry. Also throws kInvalidArgument for 2^31 entries or more. O(n)
void require_parents(std::span<const std::int32_t> parents);

// Throws kInvalidArgument, naming the first bad node, unless all tokens are in 0..vocab_size-1. O(n)
void require_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab_size);

// Throws kInvalidArgument, naming the first bad node, unless all scores are within 0..1. NaN is refused. O(n)
void require_scores(std::span<const float> scores);

// Throws kInvalidArgument, naming the rule, unless `tree` keeps the rules of ScoredTree. O(n)
void require_scored(const ScoredTree& tree);

// Writes the depth of each node: 1 for a child of the context's last token. O(n)
// REQUIRES: parents passed require_parents; depths has the same length
void find_depths(std::span<const std::int32_t> parents, std::span<std::int32_t> depths);

// The nodes on the longest path from the root whose tokens are the first tokens of `text`. If siblings have the same token, the
// first one counts. O(n)
// REQUIRES: parents passed require_parents; tokens has the same length
std::vector<std::int64_t> path_along(std::span<const std::int32_t> tokens, std::span<const std::int32_t> parents, std::span<const std::int32_t> text);

// The accepted nodes, from the top down. A node is accepted if it equals the token that was sampled after its accepted parent.
// `sampled` has the token sampled after the context, then the token sampled after each node. An entry below 0 means that no token
// is allowed after the node; then the node itself is not accepted. If siblings have the same token, the first one counts. O(n)
// REQUIRES: parents passed require_parents; tokens has the same length, and sampled has one entry more
std::vector<std::int64_t> accepted_path(std::span<const std::int32_t> tokens, std::span<const std::int32_t> parents,
                                        std::span<const std::int64_t> sampled);

// Whether each node is the child of the one before it. O(n)
bool is_chain(std::span<const std::int32_t> parents) noexcept;

// Writes the attention mask, row by row, 1 or 0. Row 0 is the context's last token; row i + 1 is node i. A row sees itself, its
// parent's row, and all rows that the parent's row sees. O((n + 1)^2)
// REQUIRES: parents passed require_parents; visible has (n + 1)^2 entries
void find_visible(std::span<const std::int32_t> parents, std::span<std::uint8_t> visible);

}  // namespace suffolk::drafting
