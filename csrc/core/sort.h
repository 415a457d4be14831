// Sorts suffixes by a bounded number of tokens, in parallel.
#pragma once

#include <cstdint>
#include <span>

#include "core/parallel.h"

namespace suffolk {

// The largest number of tokens in one sort. The limit exists because the sort uses the highest bit of a position as a mark.
inline constexpr std::uint64_t kMaxSortedTokens = 0x80000000;

// Sorts the suffixes of `tokens` by their first `order_depth` tokens, and equal suffixes by position. A suffix ends at the
// separator (the largest value of Token) of its document. Separators themselves start no suffix.
//
//   tokens        [0..n-1]           ids below vocab_size, or the separator; the last is the separator; n <= kMaxSortedTokens
//   positions     [0..suffixes-1]    out: start of each suffix in suffix order; suffixes = n minus the number of separators
//   first_ranks   [0..vocab_size]    out: rank of the first suffix that begins with each token; the last entry is `suffixes`
//   threads       1 or more
//
// Token ids are divided into groups. If the second token of a suffix is in a lower group than its first token, the suffix is not
// compared with others. Its order follows from the suffix that begins at the second token. Once the suffixes of the lower group
// are sorted, they are read in order. Each of them gives the place of the suffix that begins one token before it. This is the
// induced copying of Itoh and Tanaka ("An efficient method for in memory construction of suffix arrays", SPIRE 1999), made
// parallel by groups. The other suffixes, about half, are sorted directly, many tokens at a time as one number (sort_run.h).
//
// Memory beside the arguments: 4 MiB; up to 1 byte for each token of `tokens`, for all threads together; 16 bytes for each id of
// the vocabulary; and 4 bytes for each id and thread. order_depth bounds the time even if the text has long repeats. Throws
// kInvalidArgument, naming the id, for an id out of range, and kResourceExhausted if a thread cannot be started.
template <typename Token>  // uint16_t or uint32_t
void sort_suffixes(std::span<const Token> tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads,
                   std::span<std::uint32_t> positions, std::span<std::uint32_t> first_ranks, const Progress& progress);

}  // namespace suffolk
