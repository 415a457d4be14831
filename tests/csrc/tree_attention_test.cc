// The attention kernel against sums in fp64, and against itself: the same bits for a row in a tree, in a chain and alone, for any
// number of threads. Without Python, so that sanitizers see every access. Exit code 0: all agree.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/elements.h"
#include "kernels/skinny_gemm.h"
#include "kernels/tree_attention.h"

namespace {

using namespace suffolk::kernels;

int failures = 0;

void expect(bool condition, const char* what, std::size_t width) {
  if (condition) return;
  ++failures;
  std::printf("FAILED: %s, heads of %zu numbers\n", what, width);
}

void set(float& to, float value) { to = value; }
void set(BFloat16& to, float value) { narrow(value, to); }
double value_of(float value) { return value; }
double value_of(BFloat16 value) { return widen(value); }

constexpr std::size_t kHeads = 6, kKeyHeads = 2;
constexpr std::int64_t kCached = 130, kSpare = 7;  // the cache rows begin after spare ones

// A tree in which each row's parent is drawn from the rows before it, behind kCached tokens.
template <class T>
struct Tree {
  std::size_t rows, key_width, value_width;
  std::int64_t window;
  float softcap;
  std::vector<T> query, keys, values;
  std::vector<std::int64_t> offsets{0}, ancestors;

  Tree(std::size_t count, std::size_t width, std::int64_t seen, float cap, std::mt19937& random)
      : rows(count), key_width(width), value_width(width + 32), window(seen), softcap(cap), query(numbers(count * kHeads * width, random)),
        keys(numbers((places() + count) * kKeyHeads * width, random)), values(numbers((places() + count) * kKeyHeads * value_width, random)) {
    std::vector<std::vector<std::int64_t>> paths;
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<std::int64_t> path = row == 0 ? std::vector<std::int64_t>{} : paths[random() % row];
      path.push_back(static_cast<std::int64_t>(places() + row));
      ancestors.insert(ancestors.end(), path.begin(), path.end());
      offsets.push_back(static_cast<std::int64_t>(ancestors.size()));
      paths.push_back(std::move(path));
    }
  }

  static std::size_t places() { return static_cast<std::size_t>(kSpare + kCached); }

  static std::vector<T> numbers(std::size_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<T> drawn(count);
    for (T& number : drawn) set(number, normal(random));
    return drawn;
  }

  TreeAttention layer(const std::vector<AttentionSpan>& spans, const T* queries, const T* all_keys, const T* all_values, std::vector<T>& out) const {
    return {.element = std::is_same_v<T, float> ? Element::kFloat32 : Element::kBFloat16, .query = queries, .row_stride = kHeads * key_width, .head_stride = key_width,
            .keys = all_keys, .values = all_values, .out = out.data(), .heads = kHeads, .key_heads = kKeyHeads, .key_width = key_width, .value_width = value_width,
            .spans = spans.data(), .span_count = spans.size(), .offsets = offsets.data(), .ancestors = ancestors.data(), .scaling = 0.2F, .softcap = softcap, .window = window};
  }

  std::vector<T> whole(unsigned threads) const {
    std::vector<T> out(rows * kHeads * value_width);
    const std::vector<AttentionSpan> spans{{.begin = 0, .rows = static_cast<std::int64_t>(rows), .first = kSpare, .cached = kCached, .chain = 0}};
    attend(layer(spans, query.data(), keys.data(), values.data(), out), threads);
    return out;
  }

  // The row at the end of its path, whose tokens follow the cached ones without gaps; `length` rows of the path are computed.
  std::vector<T> as_chain(std::size_t row, std::size_t length, unsigned threads) const {
    const auto begin = static_cast<std::size_t>(offsets[row]), end = static_cast<std::size_t>(offsets[row + 1]);
    const std::size_t count = std::min(length, end - begin);
    std::vector<T> chain_keys(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(places() * kKeyHeads * key_width));
    std::vector<T> chain_values(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(places() * kKeyHeads * value_width)), queries;
    for (std::size_t at = begin; at < end; ++at) {
      const auto place = static_cast<std::size_t>(ancestors[at]), node = place - places();
      const auto add = [](std::vector<T>& to, const std::vector<T>& from, std::size_t number, std::size_t size) {
        to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(number * size), from.begin() + static_cast<std::ptrdiff_t>((number + 1) * size));
      };
      add(chain_keys, keys, place, kKeyHeads * key_width);
      add(chain_values, values, place, kKeyHeads * value_width);
      if (end - at <= count) add(queries, query, node, kHeads * key_width);
    }
    std::vector<T> out(count * kHeads * value_width);
    const std::int64_t cached = kCached + static_cast<std::int64_t>(end - begin - count);
    const std::vector<AttentionSpan> spans{{.begin = 0, .rows = static_cast<std::int64_t>(count), .first = kSpare, .cached = cached, .chain = 1}};
    attend(layer(spans, queries.data(), chain_keys.data(), chain_values.data(), out), threads);
    return {out.end() - static_cast<std::ptrdiff_t>(kHeads * value_width), out.end()};
  }

  // One head of a row in fp64.
  std::vector<double> exact(std::size_t row, std::size_t head) const {
    const std::int64_t path = offsets[row + 1] - offsets[row], last = kCached + path - 1;
    std::vector<double> sums(value_width);
    double weights = 0;
    for (std::int64_t position = window == 0 ? 0 : std::max<std::int64_t>(0, last - window + 1); position <= last; ++position) {
      const std::int64_t place = position < kCached ? kSpare + position : ancestors[static_cast<std::size_t>(offsets[row] + position - kCached)];
      const std::size_t entry = static_cast<std::size_t>(place) * kKeyHeads + head / (kHeads / kKeyHeads);
      double score = 0;
      for (std::size_t i = 0; i < key_width; ++i) score += value_of(query[(row * kHeads + head) * key_width + i]) * value_of(keys[entry * key_width + i]);
      score *= static_cast<double>(0.2F);
      if (softcap != 0) score = std::tanh(score / static_cast<double>(softcap)) * static_cast<double>(softcap);
      const double weight = std::exp(score);
      weights += weight;
      for (std::size_t i = 0; i < value_width; ++i) sums[i] += weight * value_of(values[entry * value_width + i]);
    }
    for (double& sum : sums) sum /= weights;
    return sums;
  }
};

template <class T>
void check_tree(const Tree<T>& tree) {
  const std::vector<T> whole = tree.whole(1);
  const std::size_t size = kHeads * tree.value_width;
  const auto same = [&](const std::vector<T>& one, std::size_t row) { return std::memcmp(one.data(), whole.data() + row * size, size * sizeof(T)) == 0; };
  for (const unsigned threads : {2U, 5U}) {
    const std::vector<T> again = tree.whole(threads);
    expect(std::memcmp(again.data(), whole.data(), whole.size() * sizeof(T)) == 0, "threads change the bits", tree.key_width);
  }
  for (std::size_t row = 0; row < tree.rows; ++row) {
    expect(same(tree.as_chain(row, 1, 1), row), "a row alone has other bits", tree.key_width);
    expect(same(tree.as_chain(row, tree.rows, 2), row), "a row in a chain has other bits", tree.key_width);
    for (std::size_t head = 0; head < kHeads; ++head) {
      const std::vector<double> exact = tree.exact(row, head);
      const T* const found = whole.data() + row * size + head * tree.value_width;
      const double limit = std::is_same_v<T, float> ? 1e-5 : 0x1p-6;
      for (std::size_t i = 0; i < exact.size(); ++i) expect(std::abs(value_of(found[i]) - exact[i]) < limit, "a value is off", tree.key_width);
    }
  }
}

template <class T>
void check_type() {
  std::mt19937 random(5);
  for (const std::size_t rows : {1, 2, 40}) {
    for (const std::size_t width : {20, 32, 64}) {
      check_tree(Tree<T>(rows, width, 0, 0, random));
      check_tree(Tree<T>(rows, width, 70, 5, random));
    }
  }
}

}  // namespace

int main() {
  check_type<float>();
  check_type<BFloat16>();
  if (failures == 0) std::printf("tree_attention_test: all agree (%s)\n", attention_instructions(Element::kBFloat16, 32, 64));
  return failures == 0 ? 0 : 1;
}
