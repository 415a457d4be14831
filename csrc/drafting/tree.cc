#include "drafting/tree.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace suffolk::drafting {

void require_parents(std::span<const std::int32_t> parents) {
  if (parents.size() > std::numeric_limits<std::int32_t>::max()) {
    refuse("draft tree: ", parents.size(), " nodes; there must be fewer than 2147483648");
  }
  for (std::size_t node = 0; node < parents.size(); ++node) {
    if (parents[node] < -1 || parents[node] >= static_cast<std::int32_t>(node)) {
      refuse("draft tree: node ", node, " has parent ", parents[node], "; a parent must be -1 or come before its child");
    }
  }
}

void require_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab_size) {
  for (std::size_t node = 0; node < tokens.size(); ++node) {
    if (tokens[node] < 0 || tokens[node] >= vocab_size) {
      refuse("draft tree: node ", node, " has token id ", tokens[node], "; the vocabulary has ", vocab_size, " ids");
    }
  }
}

void require_scores(std::span<const float> scores) {
  for (std::size_t node = 0; node < scores.size(); ++node) {
    if (!(scores[node] >= 0 && scores[node] <= 1)) { refuse("draft tree: node ", node, " has score ", scores[node], "; it must be within 0..1"); }
  }
}

void require_scored(const ScoredTree& tree) {
  const std::size_t size = tree.tokens.size();
  if (tree.parents.size() != size || tree.scores.size() != size || tree.sources.size() != size) {
    refuse("draft tree: ", size, " tokens have ", tree.parents.size(), " parents, ", tree.scores.size(), " scores and ", tree.sources.size(),
           " sources; the numbers must be equal");
  }
  require_parents(tree.parents);
  require_scores(tree.scores);
  for (std::size_t node = 0; node < size; ++node) {
    if (tree.parents[node] >= 0 && tree.scores[node] > tree.scores[static_cast<std::size_t>(tree.parents[node])]) {
      refuse("draft tree: node ", node, " has score ", tree.scores[node], ", more than its parent; a path is never likelier than its beginning");
    }
  }
}

void find_depths(std::span<const std::int32_t> parents, std::span<std::int32_t> depths) {
  for (std::size_t node = 0; node < parents.size(); ++node) {
    depths[node] = parents[node] < 0 ? 1 : depths[static_cast<std::size_t>(parents[node])] + 1;
  }
}

namespace {

// The path of nodes for which `follows(node, parent, depth)` holds. For children of the root, the parent is -1 and the depth 0.
template <typename Follows>
std::vector<std::int64_t> path_of(std::span<const std::int32_t> parents, const Follows& follows) {
  std::vector<std::int64_t> path;
  std::int32_t last = -1;
  for (std::size_t node = 0; node < parents.size(); ++node) {  // children come after their parents, so one pass finds the whole path
    if (parents[node] != last || !follows(node, last, path.size())) continue;
    path.push_back(static_cast<std::int64_t>(node));
    last = static_cast<std::int32_t>(node);
  }
  return path;
}

}  // namespace

std::vector<std::int64_t> path_along(std::span<const std::int32_t> tokens, std::span<const std::int32_t> parents,
                                     std::span<const std::int32_t> text) {
  return path_of(parents, [&](std::size_t node, std::int32_t, std::size_t depth) { return depth < text.size() && tokens[node] == text[depth]; });
}

std::vector<std::int64_t> accepted_path(std::span<const std::int32_t> tokens, std::span<const std::int32_t> parents,
                                        std::span<const std::int64_t> sampled) {
  return path_of(parents, [&](std::size_t node, std::int32_t parent, std::size_t) {
    return tokens[node] == sampled[static_cast<std::size_t>(parent + 1)] && sampled[node + 1] >= 0;
  });
}

bool is_chain(std::span<const std::int32_t> parents) noexcept {
  std::int32_t before = -1;
  return std::all_of(parents.begin(), parents.end(), [&](std::int32_t parent) { return parent == before++; });
}

void find_visible(std::span<const std::int32_t> parents, std::span<std::uint8_t> visible) {
  const std::size_t rows = parents.size() + 1;
  std::fill(visible.begin(), visible.end(), std::uint8_t{0});
  visible[0] = 1;
  for (std::size_t row = 1; row < rows; ++row) {
    const auto above = static_cast<std::size_t>(parents[row - 1] + 1);
    std::copy_n(visible.begin() + static_cast<std::ptrdiff_t>(above * rows), above + 1, visible.begin() + static_cast<std::ptrdiff_t>(row * rows));
    visible[row * rows + row] = 1;
  }
}

}  // namespace suffolk::drafting
