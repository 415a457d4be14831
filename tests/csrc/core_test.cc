// The core against a brute-force oracle, without Python, so that sanitizers see every access: random corpora, one to four
// segments, damaged files, and queries from several threads. Exit code 0: all agree.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "core/context_index.h"
#include "core/crc32c.h"
#include "core/draft.h"
#include "core/error.h"
#include "core/merge.h"
#include "core/segment.h"
#include "core/segment_writer.h"
#include "core/thread_pool.h"

namespace {

using namespace suffolk;
using Path = std::vector<std::uint32_t>;
using Documents = std::vector<Path>;
using Segments = std::vector<std::unique_ptr<Segment>>;

int failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  ++failures;
  std::printf("FAILED: %s\n", what);
}

std::vector<Suffixes> views(const Segments& segments) {
  std::vector<Suffixes> all;
  for (const auto& segment : segments) all.push_back(segment->suffixes());
  return all;
}

// What draft must answer: (path, count), best first.
std::vector<std::pair<Path, std::uint64_t>> brute_force(const Documents& corpus, const Path& context, const QueryBounds& bounds) {
  for (std::size_t length = std::min<std::size_t>(bounds.max_match, context.size()); length >= bounds.min_match && length > 0; --length) {
    std::map<Path, std::uint64_t> counts;
    bool found = false;
    for (const Path& document : corpus) {
      for (std::size_t end = length; end <= document.size(); ++end) {
        if (!std::equal(context.end() - static_cast<std::ptrdiff_t>(length), context.end(), document.begin() + static_cast<std::ptrdiff_t>(end - length))) continue;
        found = true;
        Path path;
        for (std::size_t at = end; at < document.size() && path.size() < bounds.max_depth; ++at) {
          path.push_back(document[at]);
          ++counts[path];
        }
      }
    }
    if (!found) continue;
    std::vector<std::pair<Path, std::uint64_t>> nodes(counts.begin(), counts.end());
    std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
      if (a.second != b.second) return a.second > b.second;
      return a.first.size() != b.first.size() ? a.first.size() < b.first.size() : a.first < b.first;
    });
    nodes.resize(std::min<std::size_t>(nodes.size(), bounds.max_nodes));
    return nodes;
  }
  return {};
}

std::vector<std::pair<Path, std::uint64_t>> nodes_of(const DraftTree& tree) {
  std::vector<std::pair<Path, std::uint64_t>> nodes;
  for (std::size_t i = 0; i < tree.tokens.size(); ++i) {
    Path path = tree.parents[i] < 0 ? Path{} : nodes[static_cast<std::size_t>(tree.parents[i])].first;
    path.push_back(tree.tokens[i]);
    nodes.emplace_back(std::move(path), tree.counts[i]);
  }
  return nodes;
}

template <typename Token>
std::unique_ptr<Segment> write(const std::string& path, const Documents& corpus, std::uint32_t vocab_size, unsigned threads) {
  std::vector<Token> tokens;
  for (const Path& document : corpus) {
    for (const std::uint32_t id : document) tokens.push_back(static_cast<Token>(id));
    tokens.push_back(static_cast<Token>(-1));
  }
  const SegmentSettings settings = {.vocab_size = vocab_size, .order_depth = 64, .fingerprint = {}, .threads = threads};
  write_segment<Token>(path, tokens, {}, settings, {});
  return std::make_unique<Segment>(path);
}

void test_random_corpora(const std::filesystem::path& folder) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  for (int round = 0; round < 150; ++round) {
    const bool wide = round % 2 == 1;
    const std::uint32_t vocab_size = wide ? 70'000 : 500, alphabet = 1 + below(5);
    Documents corpus;
    Segments segments;
    for (std::uint32_t s = 0; s <= round % 4U; ++s) {
      Documents part;
      for (std::uint32_t d = 0; d <= below(6); ++d) {
        Path document(below(40));
        for (auto& id : document) id = vocab_size - 1 - below(alphabet);
        for (std::uint32_t copies = 0; copies <= below(3); ++copies) part.push_back(document);
      }
      part.push_back(Path(below(300), vocab_size - 1));  // one token, over and over
      const std::string path = folder / (std::to_string(round) + "-" + std::to_string(s));
      segments.push_back(wide ? write<std::uint32_t>(path, part, vocab_size, 1 + s) : write<std::uint16_t>(path, part, vocab_size, 1 + s));
      segments.back()->verify(Depth::kFull, {});
      corpus.insert(corpus.end(), part.begin(), part.end());
    }
    const std::vector<Suffixes> all = views(segments);
    const auto query = [&](std::uint32_t seed) {
      std::mt19937 own(seed);
      Path context(own() % 20);
      for (auto& id : context) id = vocab_size - 1 - own() % alphabet;
      const QueryBounds bounds = {.max_match = 1 + static_cast<std::uint32_t>(own() % 16), .min_match = 1, .max_depth = 1 + static_cast<std::uint32_t>(own() % 10), .max_nodes = static_cast<std::uint32_t>(own() % 50)};
      return nodes_of(draft(Corpus(all), longest_match(Corpus(all), context, bounds), bounds)) == brute_force(corpus, context, bounds);
    };
    std::vector<char> agrees(8);
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t i = 0; i < agrees.size(); ++i) threads.emplace_back([&, i] { agrees[i] = query(static_cast<std::uint32_t>(round) * 8 + i); });
    }
    for (const char ok : agrees) expect(ok, "draft equals the oracle");
  }
}

void test_damaged_files(const std::filesystem::path& folder) {
  std::mt19937 random(2);
  Documents corpus(6, Path(200));
  for (auto& document : corpus) {
    for (auto& id : document) id = random() % 30;
  }
  const std::string path = folder / "sound", damaged = folder / "damaged";
  write<std::uint16_t>(path, corpus, 300, 2);
  std::ifstream file(path, std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(file)), {});
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = sound;
    for (std::size_t i = 0; i <= random() % 64; ++i) bytes[256 + random() % (bytes.size() - 256 - 200)] = static_cast<char>(random());
    std::filesystem::remove(damaged);
    std::ofstream(damaged, std::ios::binary) << bytes;
    const Segment segment(damaged);
    const std::vector<Suffixes> all = {segment.suffixes()};
    for (std::uint32_t token = 0; token < 30; ++token) {
      const Path context = {static_cast<std::uint32_t>(random() % 30), token};
      const QueryBounds bounds;
      expect(draft(Corpus(all), longest_match(Corpus(all), context, bounds), bounds).tokens.size() <= bounds.max_nodes, "a damaged file keeps the budget");
    }
    for (std::uint64_t document = 0; document < segment.header().document_count; ++document) segment.document_range(document);
    segment.document_at(random() % 3000);
    try {
      segment.verify(Depth::kFull, {});
      expect(bytes == sound, "verify finds the damage");
    } catch (const Error& error) {
      expect(error.code() == Code::kCorruption, "damage is called corruption");
    }
  }
}

void test_thread_pool() {
  ThreadPool pool(4);
  for (std::size_t count = 0; count < 200; ++count) {
    std::vector<int> calls(count);  // of plain ints: two calls for one place, or one too late, are races that are reported
    pool.parallel_for(count, 1 + count % 5, [&](std::size_t i) { ++calls[i]; });
    expect(std::count(calls.begin(), calls.end(), 1) == static_cast<std::ptrdiff_t>(count), "each piece is done once");
  }
  const auto self = std::this_thread::get_id();
  pool.parallel_for(3, 3, [&](std::size_t) { expect(std::this_thread::get_id() == self, "small work wakes nobody"); });

  std::atomic<std::size_t> total = 0;
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 8; ++caller) {
      callers.emplace_back([&] {
        for (int round = 0; round < 100; ++round) pool.parallel_for(20, 2, [&](std::size_t) { ++total; });
      });
    }
  }
  expect(total == 8 * 100 * 20, "many callers share a pool");

  for (std::size_t bad = 0; bad < 50; ++bad) {
    try {
      pool.parallel_for(50, 1, [&](std::size_t i) { if (i == bad) throw Error(Code::kCorruption, std::to_string(i)); });
      expect(false, "an exception leaves");
    } catch (const Error& error) {
      expect(error.what() == std::to_string(bad), "with what it says");
    }
  }
  for (int round = 0; round < 50; ++round) ThreadPool(3).parallel_for(9, 1, [](std::size_t) {});
}

// Neither the thread sanitizer nor QEMU can follow children that are forked by a process with threads.
#if !defined(__SANITIZE_THREAD__) && !defined(SUFFOLK_EMULATED)
void test_thread_pool_in_a_forked_child() {
  ThreadPool pool(4);
  int sum = 0;
  std::mutex adding;
  const auto add = [&](std::size_t i) { const std::lock_guard lock(adding); sum += static_cast<int>(i); };
  pool.parallel_for(10, 1, add);
  const pid_t child = ::fork();
  if (child == 0) {
    pool.parallel_for(10, 1, add);
    ThreadPool(2).parallel_for(10, 1, add);
    ::_exit(sum == 3 * 45 ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  expect(status == 0, "a forked child does the work by itself");
}
#endif

void test_residency(const std::filesystem::path& folder) {
  const std::string path = folder / "resident";
  write<std::uint32_t>(path, Documents(40, Path(5000, 7)), 70'000, 2);
  for (const bool locked : {false, true}) {
    const Segment first(path), second(path);  // closed while the thread may still be reading
    if (locked) {
      first.file()->lock();
    } else {
      warm({first.hot_parts()[1], {first.file(), first.file()->bytes()}, {second.file(), second.file()->bytes()}});
    }
    first.verify(Depth::kFull, {});
    expect(first.file()->resident_bytes() == first.header().file_bytes, "what was read just now is in memory");
  }
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Merged in slices of a few suffixes and by several threads, a file is the one that sorting makes.
void test_merging(const std::filesystem::path& folder) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    Documents left;
    Segments segments;
    std::vector<std::vector<std::uint32_t>> deleted(1 + random() % 5);
    for (auto& gone : deleted) {
      Documents part(1 + random() % 8);
      for (std::uint32_t d = 0; d < part.size(); ++d) {
        part[d].resize(random() % 100);
        for (auto& id : part[d]) id = random() % 3;
        if (random() % 4 == 0) {
          gone.push_back(d);
        } else {
          left.push_back(part[d]);
        }
      }
      segments.push_back(write<std::uint16_t>(folder / ("m" + std::to_string(segments.size())), part, 300, 1));
    }
    if (left.empty()) continue;
    std::vector<MergeInput> inputs;
    for (std::size_t i = 0; i < segments.size(); ++i) inputs.push_back({segments[i].get(), deleted[i]});
    const MergeSettings settings = {.threads = 1 + static_cast<unsigned>(round % 3), .slice_suffixes = 1 + random() % 200};
    merge_segments(folder / "merged", inputs, {}, settings, {});
    write<std::uint16_t>(folder / "sorted", left, 300, 1);
    expect(content_of(folder / "merged") == content_of(folder / "sorted"), "merging equals sorting");
  }
}

void test_context_index() {
  ContextIndex index(100);
  index.append(Path{1, 2, 3, 1, 2, 4, 1, 2});
  const DraftTree tree = index.draft({.max_match = 4, .min_match = 1, .max_depth = 2, .max_nodes = 10});
  expect(tree.match_length == 2 && tree.match_count == 2, "the context's end is found earlier in it");
  expect(nodes_of(tree) == std::vector<std::pair<Path, std::uint64_t>>{{{3}, 1}, {{4}, 1}, {{3, 1}, 1}, {{4, 1}, 1}}, "and what followed it");
}

}  // namespace

int main() {
  const std::string check = "123456789";
  expect(crc32c(std::as_bytes(std::span(check))) == 0xE3069283, "CRC-32C check value");
  const auto folder = std::filesystem::temp_directory_path() / ("suffolk-core-test-" + std::to_string(std::random_device()()));
  std::filesystem::create_directory(folder);
  test_random_corpora(folder);
  test_damaged_files(folder);
  test_thread_pool();
#if !defined(__SANITIZE_THREAD__) && !defined(SUFFOLK_EMULATED)
  test_thread_pool_in_a_forked_child();
#endif
  test_residency(folder);
  test_merging(folder);
  test_context_index();
  std::filesystem::remove_all(folder);
  std::printf("core_test: %s\n", failures == 0 ? "passed" : "FAILED");
  return failures == 0 ? 0 : 1;
}
