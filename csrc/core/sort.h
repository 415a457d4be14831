// Suffix sorting, bounded by depth and parallel over first tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace suffolk {

// Told the share done (0..1) from the calling thread every tenth of a second; may throw, which ends the work and leaves
// through the function that was called.
using Progress = std::function<void(double)>;

// Sorts the suffixes of `tokens` by their first `order_depth` tokens, ties by position. A suffix ends at the separator (the
// largest value of Token) that ends its document; none starts there.
//
//   tokens        [0..n-1]           ids below vocab_size and separators; the last is a separator; n < 2^32
//   positions     [0..suffixes-1]    out: start of each suffix in suffix order; suffixes = n less the separators
//   first_ranks   [0..vocab_size]    out: rank of the first suffix with each first token; the last entry is `suffixes`
//   threads       1 or more
//
// Memory beside the arguments: 16 bytes per suffix of the largest first-token bucket of each thread.
// Time: bounded by order_depth, however long the repeats. Throws kInvalidArgument for an id out of range (naming it).
template <typename Token>  // uint16_t or uint32_t
void sort_suffixes(std::span<const Token> tokens, std::uint32_t vocab_size, std::uint32_t order_depth, unsigned threads,
                   std::span<std::uint32_t> positions, std::span<std::uint32_t> first_ranks, const Progress& progress);

}  // namespace suffolk
