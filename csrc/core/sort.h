// Suffix sorting, bounded by depth and parallel.
#pragma once

#include <cstdint>
#include <span>

#include "core/parallel.h"

namespace suffolk {

// At most this many tokens are sorted in one go: the highest bit of a position is needed while sorting.
inline constexpr std::uint64_t kMaxSortedTokens = 0x80000000;

// Sorts the suffixes of `tokens` by their first `order_depth` tokens, ties by position. A suffix ends at the separator (the
// largest value of Token) that ends its document; none starts there.
//
//   tokens        [0..n-1]           ids below vocab_size and separators; the last is a separator; n <= kMaxSortedTokens
//   positions     [0..suffixes-1]    out: start of each suffix in suffix order; suffixes = n less the separators
//   first_ranks   [0..vocab_size]    out: rank of the first suffix with each first token; the last entry is `suffixes`
//   threads       1 or more
//
// Token ids are cut into groups. A suffix whose second token lies in a lower group than its first is not sorted at all. Once the
// suffixes of the lower group are in order, reading them in that order gives the order of those one token longer: the induced
// copying of Itoh and Tanaka ("An efficient method for in memory construction of suffix arrays", SPIRE 1999), made parallel by
// groups. The other half are sorted directly, many tokens at a time as one number (sort_run.h).
//
// Memory beside the arguments: at most 1 byte per token (all threads together) and 4 MiB, 16 bytes per id and 4 more for each
// thread.
// Time: bounded by order_depth, however long the repeats. Throws kInvalidArgument for an id out of range (naming it), and
// kResourceExhausted if a thread cannot be started.
template <typename Token>  // uint16_t or uint32_t
void sort_suffixes(std::span<const Token> tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads,
                   std::span<std::uint32_t> positions, std::span<std::uint32_t> first_ranks, const Progress& progress);

}  // namespace suffolk
