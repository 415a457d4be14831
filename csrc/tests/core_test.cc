// The core against a brute-force oracle, without Python, so that sanitizers see every access: random corpora, one to four
// segments, damaged files, and queries from several threads. Exit code 0: all agree.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "core/context_index.h"
#include "core/crc32c.h"
#include "core/draft.h"
#include "core/error.h"
#include "core/segment.h"
#include "core/segment_writer.h"

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

void test_residency(const std::filesystem::path& folder) {
  const std::string path = folder / "resident";
  write<std::uint32_t>(path, Corpus(40, Path(5000, 7)), 70'000, 2);
  for (const Residency residency : {Residency::kMapped, Residency::kWarm, Residency::kLocked}) {
    const Segment segment(path, residency);  // closed while its thread may still be reading
    segment.verify(Depth::kFull, {});
    expect(segment.resident_bytes() == segment.header().file_bytes, "what was read just now is in memory");
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
  test_residency(folder);
  test_context_index();
  std::filesystem::remove_all(folder);
  std::printf("core_test: %s\n", failures == 0 ? "passed" : "FAILED");
  return failures == 0 ? 0 : 1;
}
