// Sorts suffixes by a bounded number of tokens, in parallel.
#pragma once

#include <cstdint>
#include <span>

#include "core/parallel.h"

namespace suffolk {

// The largest number of tokens that are sorted at once: the highest bit of a position is a mark while sorting.
inline constexpr std::uint64_t kMaxSortedTokens = 0x80000000;

// Sorts the suffixes of `tokens` by their first `order_depth` tokens, ties by position. A suffix ends at the separator (the largest
// value of Token) of its document. No suffix starts at a separator.
//
//   tokens        [0..n-1]           ids below vocab_size and separators; the last is a separator; n <= kMaxSortedTokens
//   positions     [0..suffixes-1]    out: start of each suffix in suffix order; suffixes = n less the separators
//   first_ranks   [0..vocab_size]    out: rank of the first suffix with each first token; the last entry is `suffixes`
//   threads       1 or more
//
// Token ids are cut into groups. A suffix whose second token is in a lower group than its first is not compared. Once the
// suffixes of the lower group are in order, reading them gives the order of the suffixes that are one token longer. This is the
// induced copying of Itoh and Tanaka ("An efficient method for in memory construction of suffix arrays", SPIRE 1999), made
// parallel by groups. The other suffixes, about half, are sorted directly, many tokens at a time as one number (sort_run.h).
//
// Memory beside the arguments: at most 1 byte per token for all threads together, 4 MiB, and 16 bytes per id plus 4 for each
// thread. The time is bounded by order_depth, however long the repeats. Throws kInvalidArgument for an id out of range (naming
// it), and kResourceExhausted if a thread cannot be started.
template <typename Token>  // uint16_t or uint32_t
void sort_suffixes(std::span<const Token> tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads,
                   std::span<std::uint32_t> positions, std::span<std::uint32_t> first_ranks, const Progress& progress);

}  // namespace suffolk
