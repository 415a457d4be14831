// A live index under appends, removals, rebases, evictions and queries from several threads, so that sanitizers see every access.
// Exit code 0: all agrees with brute force.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <thread>

#include "core/error.h"
#include "core/live_index.h"
#include "core/multikey_sort.h"
#include "core/scoped_query.h"
#include "core/text_search.h"

namespace {

thread_local int allocations_left = -1;  // of this thread, before memory is used up; -1: any number

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* const at = std::malloc(size)) return at;
  throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }

namespace {

using namespace suffolk;
using Path = std::vector<std::uint32_t>;

std::atomic<int> failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  ++failures;
  std::printf("FAILED: %s\n", what);
}

Path random_text(std::mt19937& random, std::uint32_t vocab_size, std::size_t size) {
  Path text(size);
  for (std::uint32_t& token : text) token = static_cast<std::uint32_t>(std::min<std::uint64_t>(random() % vocab_size, random() % vocab_size));
  return text;
}

// Appends texts under the keys `group`, `group` + 1, ... and checks that a bad document changes nothing.
std::uint64_t append(LiveIndex& index, const std::vector<Path>& texts, std::uint64_t group, std::span<const std::uint64_t> removed = {}) {
  std::vector<Document> documents;
  for (const Path& text : texts) documents.push_back({.tokens = text, .group = group++, .time = 7, .origin = "origin"});
  return index.append(documents, removed);
}

std::uint64_t occurrences(const Path& text, const Path& pattern) {
  std::uint64_t count = 0;
  for (auto at = text.begin(); (at = std::search(at, text.end(), pattern.begin(), pattern.end())) != text.end(); ++at) ++count;
  return count;
}

// The counts of all patterns of up to three tokens, in the store and in a group, against the texts.
void check_counts(const LiveIndex& index, const std::map<std::uint64_t, std::pair<Path, std::uint64_t>>& texts, std::uint32_t vocab_size) {
  const auto snapshot = index.snapshot();
  expect(snapshot->corpus().suffixes.size() <= kMaxSearched, "at most 16 segments");
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const Path pattern = random_text(random, vocab_size, 1 + random() % 3);
    const std::uint64_t group = 1 + random() % 3;
    std::uint64_t all = 0, grouped = 0, holders = 0, group_holders = 0;
    for (const auto& [sequence, text] : texts) {
      const std::uint64_t count = occurrences(text.first, pattern);
      all += count;
      grouped += text.second == group ? count : 0;
      holders += count > 0;
      group_holders += count > 0 && text.second == group;
    }
    const auto length = static_cast<std::uint32_t>(pattern.size());
    const ScopedQuery query = {.context = pattern, .bounds = {.max_match = length, .min_match = length, .max_depth = 4}, .scope = Scope::kStore, .groups = {&group, 1}};
    ScopedQuery of_group = query;
    of_group.scope = Scope::kGroup;
    ScopedSearch search(*snapshot, vocab_size);
    expect(search.lookup(query).second == all, "the count of a pattern");
    expect(search.lookup(of_group).second == grouped, "the count of a pattern in a group");
    const std::uint64_t most = 1 + random() % 20;
    const std::uint64_t counted = search.count_documents(query, most);
    expect(counted == std::min(most, holders) || (counted < std::min(most, holders) && all > 16 * most), "the documents of a pattern");
    expect(search.count_documents(of_group, most) == std::min(most, group_holders), "the documents of a pattern in a group");
    search.draft(of_group);
    const std::uint64_t limit = 1 + random() % 8;
    const auto places = search.occurrences(of_group, limit);
    expect(places.size() == std::min(limit, grouped), "the number of occurrences in a group");
    for (const auto& [place, position] : places) {
      const MemorySegment& segment = *snapshot->memory()[place - snapshot->files().segments.size()].segment;
      const std::size_t document = segment.documents().at(position);
      const std::uint64_t offset = position - segment.documents().range(document).lo;
      expect(segment.documents().group(document) == group, "the group of an occurrence");
      expect(segment.read(document, offset, pattern.size()) == pattern, "the tokens of an occurrence");
    }
  }
}

void test_random_changes(std::uint32_t vocab_size, std::size_t size) {
  std::mt19937 random(vocab_size);
  LiveIndex index({vocab_size, 32}, 2);
  std::map<std::uint64_t, std::pair<Path, std::uint64_t>> texts;  // by number: tokens, group
  for (int step = 0; step < 120; ++step) {
    std::vector<Path> batch;
    for (std::size_t i = 0; i < 1 + random() % 4; ++i) batch.push_back(random_text(random, std::min(vocab_size, 40U), 1 + random() % size));
    std::vector<std::uint64_t> removed;
    for (const auto& [sequence, text] : texts) {
      if (random() % 10 == 0) removed.push_back(sequence);
    }
    const std::uint64_t group = random() % 3, first = append(index, batch, group, removed);
    for (const std::uint64_t sequence : removed) texts.erase(sequence);
    for (std::size_t i = 0; i < batch.size(); ++i) texts[first + i] = {batch[i], group + i};
    if (step % 40 == 39) {
      const std::uint64_t through = first - random() % 20;
      index.rebase(std::make_shared<FileSet>(), through);
      texts.erase(texts.begin(), texts.upper_bound(through));
    }
    if (step % 40 == 20) {
      index.drop_before(first / 2);
      const std::uint64_t oldest = index.stats().oldest_sequence;
      expect(oldest > 0, "the newest documents stay");
      texts.erase(texts.begin(), texts.lower_bound(oldest));
    }
    if (step % 10 == 0) check_counts(index, texts, std::min(vocab_size, 40U));
  }
  index.settle();
  check_counts(index, texts, std::min(vocab_size, 40U));
  expect(index.stats().documents == texts.size(), "the number of documents");
}

// Each batch has the marker once, and is in order of its appending. So a count is at most the number of batches, and never falls
// while nothing is removed.
void test_threads() {
  constexpr std::uint32_t kVocab = 70000, kMarker = kVocab - 1;
  LiveIndex index({kVocab, 32}, 1);
  std::atomic<bool> writing = true;
  std::atomic<std::uint64_t> removed = 0;
  std::vector<std::thread> threads, readers;
  for (unsigned seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 60; ++i) {
        std::vector<Path> batch = {random_text(random, 500, 600), random_text(random, 500, 400)};
        batch[0][random() % 600] = kMarker;
        const std::uint64_t first = append(index, batch, seed);
        if (i % 4 == 0) removed += index.remove(std::vector{first + 1});
      }
    });
  }
  for (unsigned reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      const Path context = {kMarker};
      std::uint64_t before = 0;
      while (writing) {
        const auto snapshot = index.snapshot();
        const std::uint64_t group = 1;
        const ScopedQuery query = {.context = context, .bounds = {.max_match = 4}, .scope = Scope::kGroupFirst, .groups = {&group, 1}};
        ScopedSearch(*snapshot, kVocab).draft(query);
        const std::uint64_t count = longest_match(snapshot->corpus(), context, {.max_match = 1}).count;
        expect(count >= before && count <= 180, "each batch is visible as a whole, and stays");
        before = count;
        index.stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  writing = false;
  for (std::thread& reader : readers) reader.join();
  expect(removed == 45, "the number of removed documents");
  index.settle();
  expect(index.stats().documents == 3 * 60 * 2 - removed, "the documents that remain");
  expect(index.stats().tokens == 3 * 60 * 1000 - removed * 400, "the tokens that remain");
  std::thread late([&] { expect(append(index, {{1}}, 0) > 0, "an append before the index is closed"); });
  late.join();
  index.close();
  try {
    index.snapshot();
    expect(false, "a closed index has no snapshot");
  } catch (const Error& error) {
    expect(error.code() == Code::kUnavailable, "the error of a closed index");
  }
}

void test_close_while_others_append() {
  LiveIndex index({100, 32}, 1);
  std::thread writer([&] {
    std::mt19937 random(3);
    try {
      for (;;) append(index, {random_text(random, 100, 300)}, 1);
    } catch (const Error& error) {
      expect(error.code() == Code::kUnavailable, "the error of an append to a closed index");
    }
  });
  while (index.stats().documents < 50) std::this_thread::yield();
  const auto snapshot = index.snapshot();
  index.close();
  writer.join();
  const Path context = {1};
  expect(longest_match(snapshot->corpus(), context, {.max_match = 1}).count > 0, "a snapshot outlives its index");
}

void test_the_first_live_document_is_known() {
  LiveIndex index({100, 32}, 1);
  append(index, {{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}, {16}}, 1);
  index.remove(std::vector<std::uint64_t>{1, 3});
  expect(index.snapshot()->memory()[0].first_live == 1, "the first live document after a removed one");
  index.remove(std::vector<std::uint64_t>{2});
  expect(index.snapshot()->memory()[0].first_live == 3, "the first live document after removed ones");
  expect(index.stats().oldest_sequence == 4, "the oldest document");
}

// Repeats a change with memory for 0, 1, ... allocations until it succeeds. A failed one changes nothing and holds no segment.
void fail_until_done(const LiveIndex& index, const std::function<void()>& change) {
  const std::uint64_t documents = index.stats().documents;
  for (int allocations = 0;; ++allocations) {
    allocations_left = allocations;
    try {
      change();
      allocations_left = -1;
      return;
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
    }
    expect(index.stats().documents == documents, "a change without memory changes no document");
    expect(index.stats().merge_debt == 0, "a change without memory holds no segment");
  }
}

void test_changes_without_memory() {
  LiveIndex index({100, 32}, 1);
  std::mt19937 random(11);
  const auto texts = [&](std::size_t count) {
    std::vector<Path> batch;
    for (std::size_t i = 0; i < count; ++i) batch.push_back(random_text(random, 100, 40));
    return batch;
  };
  for (int round = 0; round < 6; ++round) {
    const std::vector<Path> batch = texts(8);
    std::uint64_t first = append(index, batch, 1);
    index.settle();
    fail_until_done(index, [&] { index.remove(std::span(&first, 1)); });
    append(index, texts(1), 1);
    expect(index.stats().merge_debt == 0, "the next append merges what a merge without memory left");
    const std::vector<std::uint64_t> second = {first + 1};
    fail_until_done(index, [&] { append(index, batch, 2, second); });
    append(index, texts(1), 1);
    expect(index.stats().merge_debt == 0, "the next append merges what a merge without memory left");
    const std::uint64_t documents = index.stats().documents;
    const auto files = std::make_shared<FileSet>();
    fail_until_done(index, [&] { index.rebase(files, first + 3); });
    expect(index.stats().documents < documents, "a rebase drops documents once there is memory");
  }
}

// Equal tokens are the most work: every position matches, and all continuations are equal.
void test_equal_tokens_are_compared_twice_at_most() {
  const Path context(60, 7);
  Path text(100'000, 7);
  for (std::size_t i = 1000; i < text.size(); i += 1000) text[i] = 8;
  const TextMatch match = longest_match(text, text.size(), context, {.max_match = 54});
  expect(match.length == 54 && match.ends.size() == (999 - 53) * 100 + 1, "the matches in equal tokens");
  expect(match.compared <= 2 * text.size(), "each token is compared twice at most");
}

void test_equal_continuations_are_read_once_a_depth() {
  constexpr std::uint32_t kDepth = 10;
  std::mt19937 random(5);
  for (const std::uint32_t alphabet : {1U, 2U, 50'000U}) {
    Path text = random_text(random, alphabet, 50'000);
    for (std::size_t i = 99; i < text.size(); i += 100) text[i] = kEnd;
    std::uint64_t reads = 0;
    const auto read = [&](std::uint32_t start, std::uint32_t depth) {
      ++reads;
      return start + depth < text.size() ? text[start + depth] : kEnd;
    };
    Path starts(text.size());
    for (std::uint32_t i = 0; i < starts.size(); ++i) starts[i] = i;
    multikey_sort(starts, kDepth, read);
    expect(reads < text.size() * (kDepth + 2 * std::bit_width(text.size())), "reads of a sort");
    if (alphabet == 1) expect(reads < text.size() * (kDepth + 1), "equal continuations are read once a depth");
    const auto string = [&](std::uint32_t start) {
      Path tokens;
      while (tokens.size() < kDepth && (tokens.empty() || tokens.back() != kEnd)) tokens.push_back(read(start, static_cast<std::uint32_t>(tokens.size())));
      return tokens;
    };
    expect(std::is_sorted(starts.begin(), starts.end(), [&](std::uint32_t a, std::uint32_t b) { return string(a) < string(b); }), "the order");
  }
}

void test_a_group_is_read_once_for_its_queries() {
  LiveIndex index({100, 32}, 1);
  append(index, {{1, 2, 3}, {4, 5}}, 1);
  const auto snapshot = index.snapshot();
  ScopedSearch search(*snapshot, 100);
  const Path context = {1, 2};
  const std::vector<std::uint64_t> one = {1}, other = {2}, both = {2, kNoGroup, 1};
  const std::uint32_t* const text = search.group_text(one).data();
  search.draft({.context = context, .bounds = {}, .scope = Scope::kGroup, .groups = one});
  search.lookup({.context = context, .bounds = {}, .scope = Scope::kGroupFirst, .groups = one});
  expect(search.group_text(one).data() == text, "the text of a group is kept for its next query");
  expect(search.group_text(other).size() == 3 && search.group_text(other)[0] == 4, "the text of another group");
  expect(search.group_text(both).size() == 7 && search.group_text(both)[3] == 1, "the texts of two groups");
  expect(search.lookup({.context = context, .bounds = {}, .scope = Scope::kGroup, .groups = both}).second == 1, "a match in one of two groups");
  expect(search.occurrences({.context = context, .bounds = {}, .scope = Scope::kGroup, .groups = both}, 4).size() == 1, "its occurrence");
}

void test_endings_with_one_match_have_one_draft() {
  LiveIndex index({100, 32}, 1);
  append(index, {{1, 2, 3}, {7, 2, 4}}, 1);
  const auto snapshot = index.snapshot();
  ScopedSearch search(*snapshot, 100);
  const Path context = {9, 9, 1, 2};
  const auto draft = [&](std::size_t size) { return search.draft({.context = std::span(context).last(size), .bounds = {}}); };
  const auto whole = draft(4);
  expect(draft(3) == whole && draft(2) == whole, "the tree of an ending that holds the match");
  expect(draft(1) != whole && draft(1)->tokens == Path({3, 4}), "the tree of a shorter ending");
  expect(draft(4) != whole && draft(4)->tokens == whole->tokens, "the tree of a longer context is searched anew");
}

}  // namespace

int main() {
  test_random_changes(1000, 30);
  test_random_changes(100000, 2500);
  test_threads();
  test_close_while_others_append();
  test_the_first_live_document_is_known();
  test_changes_without_memory();
  test_equal_tokens_are_compared_twice_at_most();
  test_equal_continuations_are_read_once_a_depth();
  test_a_group_is_read_once_for_its_queries();
  test_endings_with_one_match_have_one_draft();
  std::printf("live_test: %s\n", failures == 0 ? "passed" : "FAILED");
  return failures == 0 ? 0 : 1;
}
