#include "core/segment.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"

namespace suffolk {
namespace {

using format::Section;

template <typename T>
T read_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Turns read-ahead on for a reader of the whole file; the destructor turns it off.
class SequentialRead {
 public:
  explicit SequentialRead(const MappedFile& file) : file_(file) { file_.expect(Access::kSequential); }
  SequentialRead(const SequentialRead&) = delete;
  SequentialRead& operator=(const SequentialRead&) = delete;
  ~SequentialRead() { file_.expect(Access::kRandom); }

 private:
  const MappedFile& file_;
};

}  // namespace

Segment::Segment(const std::string& path) : path_(path), file_(std::make_shared<const MappedFile>(path)) {
  validate();
  suffixes_.tokens = {.data = section(Section::kTokens).data(), .size = header_.token_count, .width = header_.token_width};
  suffixes_.positions = numbers(Section::kPositions).data();
  suffixes_.count = header_.suffix_count;
  suffixes_.first_ranks = numbers(Section::kFirstRanks).data();
  suffixes_.vocab_size = header_.vocab_size;
  const auto directory = section(Section::kDirectory);
  suffixes_.directory = reinterpret_cast<const SuffixKey*>(directory.data());  // sections are 64-byte aligned
  suffixes_.directory_count = directory.size() / sizeof(SuffixKey);
}

template <typename... Parts>
void Segment::corrupt(const Parts&... problem) const {
  fail(Code::kCorruption, path_, ": ", problem..., "; restore the file from a copy, or build the datastore again");
}

void Segment::validate() {
  using format::Header, format::Trailer, format::SectionEntry;
  const auto bytes = file_->bytes();
  if (bytes.size() < sizeof(Header)) corrupt("is no segment file: it has ", bytes.size(), " bytes, a header alone has ", sizeof(Header));
  header_ = read_at<Header>(bytes, 0);
  if (header_.magic != format::kMagic) corrupt("is no segment file: it does not begin with the magic number");
  if (header_.version != format::kVersion || (header_.reader_flags & ~format::kKnownReaderFlags) != 0) {
    fail(Code::kUnsupported, path_, ": format version ", header_.version, ", reader flags ", header_.reader_flags, "; this program reads version ",
         format::kVersion, " without flags: use a newer Suffolk");
  }
  if (header_.header_bytes != sizeof(Header)) corrupt("header length is ", header_.header_bytes, ", not ", sizeof(Header));
  if (crc32c(bytes.first(offsetof(Header, checksum))) != header_.checksum) corrupt("the header's checksum does not agree");
  if (header_.file_bytes != bytes.size()) corrupt("the file has ", bytes.size(), " bytes, its header says ", header_.file_bytes);

  const bool width_fits = header_.token_width == 4 || (header_.token_width == 3 && header_.vocab_size <= 0xFFFFFF) ||
                          (header_.token_width == 2 && header_.vocab_size <= 0xFFFF);
  if (!width_fits) corrupt("token width ", header_.token_width, " for ", header_.vocab_size, " ids");
  if (header_.position_width != 4) corrupt("position width ", header_.position_width);
  if (header_.vocab_size == 0 || header_.vocab_size == kEnd) corrupt("vocabulary size ", header_.vocab_size);
  if (header_.order_depth == 0 || header_.order_depth > format::kMaxOrderDepth) corrupt("order depth ", header_.order_depth);
  if (header_.token_count > format::kMaxTokens || header_.document_count > header_.token_count ||
      header_.suffix_count != header_.token_count - header_.document_count) {
    corrupt("counts do not agree: ", header_.token_count, " tokens, ", header_.suffix_count, " suffixes, ", header_.document_count, " documents");
  }

  // From here on all counts are below 2^32, so no product overflows 64 bits.
  const std::uint64_t end = header_.table_offset;
  const std::uint64_t chunks = end / format::kChunkBytes + (end % format::kChunkBytes != 0 ? 1 : 0);
  const std::uint64_t table_bytes = sizeof(SectionEntry) * format::kSections;
  if (end > bytes.size() || bytes.size() - end != table_bytes + chunks * 4 + sizeof(Trailer)) corrupt("the section table does not fit the file");
  const auto trailer = read_at<Trailer>(bytes, bytes.size() - sizeof(Trailer));
  if (trailer.magic != format::kTrailerMagic) corrupt("is truncated or overwritten: it does not end with the magic number");
  const auto covered = bytes.subspan(end, bytes.size() - end - sizeof(Trailer) + offsetof(Trailer, checksum));
  if (crc32c(covered) != trailer.checksum || trailer.header_checksum != header_.checksum || trailer.table_offset != end ||
      trailer.file_bytes != bytes.size()) {
    corrupt("the trailer's checksum does not agree");
  }
  checksum_ = trailer.checksum;

  table_ = read_at<SectionTable>(bytes, end);
  const std::uint64_t document_table_bytes = std::min(end, table_[static_cast<std::size_t>(Section::kDocumentTable) - 1].bytes);
  const SectionTable expected = lay_out({.vocab_size = header_.vocab_size,
                                         .token_count = header_.token_count,
                                         .document_count = header_.document_count,
                                         .document_table_bytes = document_table_bytes},
                                        header_.token_width);
  for (std::uint32_t i = 0; i < format::kSections; ++i) {
    const auto& entry = table_[i];
    if (entry.id != expected[i].id || entry.offset != expected[i].offset || entry.bytes != expected[i].bytes) {
      corrupt("section ", i + 1, " has offset ", entry.offset, " and ", entry.bytes, " bytes, which does not fit");
    }
  }
  if (table_offset(table_) != end) corrupt("the sections end at byte ", table_offset(table_), ", the section table begins at ", end);
}

std::span<const std::byte> Segment::section(Section id) const noexcept {
  const auto& entry = table_[static_cast<std::uint32_t>(id) - 1];
  return file_->bytes().subspan(entry.offset, entry.bytes);
}

std::span<const std::uint32_t> Segment::numbers(Section id) const noexcept {
  const auto bytes = section(id);
  return {reinterpret_cast<const std::uint32_t*>(bytes.data()), bytes.size() / 4};  // sections are 64-byte aligned
}

std::uint64_t Segment::document_at(std::uint64_t position) const noexcept {
  const auto starts = numbers(Section::kDocumentStarts);
  const auto after = std::upper_bound(starts.begin(), starts.end(), position);
  const auto index = after - starts.begin();
  return index == 0 || position >= header_.token_count ? header_.document_count
                                                       : std::min(header_.document_count, static_cast<std::uint64_t>(index - 1));
}

Interval Segment::document_range(std::uint64_t index) const noexcept {
  const auto starts = numbers(Section::kDocumentStarts);
  const std::uint64_t lo = std::min<std::uint64_t>(starts[index], header_.token_count);
  const std::uint64_t hi = std::min<std::uint64_t>(starts[index + 1], header_.token_count);
  return {lo, std::max(lo + 1, hi) - 1};
}

void Segment::require_documents(std::span<const std::uint32_t> deleted) const {
  const bool rising = std::adjacent_find(deleted.begin(), deleted.end(), std::greater_equal<>()) == deleted.end();
  if (!rising || (!deleted.empty() && deleted.back() >= header_.document_count)) {
    refuse("deleted documents of ", path_, " must rise and be below ", header_.document_count);
  }
}

void Segment::verify(Depth depth, const Progress& progress) const {
  if (depth == Depth::kHeaders) return;
  {
    const SequentialRead reading(*file_);
    verify_checksums(progress);
    if (depth == Depth::kChecksums) return;
    verify_documents();
  }
  verify_order(progress);
  verify_directory();
}

void Segment::verify_checksums(const Progress& progress) const {
  const auto covered = file_->bytes().first(header_.table_offset);
  const std::uint64_t sums = header_.table_offset + sizeof(table_);
  for (std::uint64_t chunk = 0, at = 0; at < covered.size(); ++chunk, at += format::kChunkBytes) {
    const auto bytes = covered.subspan(at, std::min<std::size_t>(format::kChunkBytes, covered.size() - at));
    if (crc32c(bytes) != read_at<std::uint32_t>(file_->bytes(), sums + chunk * 4)) {
      corrupt("the checksum of bytes ", at, " to ", at + bytes.size() - 1, " does not agree");
    }
    if (progress) progress(static_cast<double>(at + bytes.size()) / static_cast<double>(covered.size()));
  }
}

void Segment::verify_documents() const {
  const auto starts = numbers(Section::kDocumentStarts);
  const std::uint32_t separator = header_.token_width == 2 ? 0xFFFF : header_.token_width == 3 ? 0xFFFFFF : 0xFFFFFFFF;
  if (starts.front() != 0 || starts.back() != header_.token_count) corrupt("document starts do not span the tokens");
  std::uint64_t document = 1;
  for (std::uint64_t at = 0; at < header_.token_count; ++at) {
    const std::uint32_t token = suffixes_.tokens[at];
    if (token == separator) {
      if (document > header_.document_count || starts[document] != at + 1) corrupt("the separator at token ", at, " ends no document");
      ++document;
    } else if (token >= header_.vocab_size) {
      corrupt("token ", at, " is ", token, "; the vocabulary has ", header_.vocab_size, " ids");
    }
  }
  if (document != header_.document_count + 1) corrupt("there are fewer separators than documents");
}

void Segment::verify_order(const Progress& progress) const {
  const auto positions = numbers(Section::kPositions);
  const auto first_ranks = numbers(Section::kFirstRanks);
  std::vector<bool> seen(header_.token_count);
  std::uint32_t expected = 0;  // the first ranks of lower tokens are checked
  for (std::uint64_t rank = 0; rank < positions.size(); ++rank) {
    if (positions[rank] >= header_.token_count || seen[positions[rank]]) { corrupt("position of rank ", rank, " is out of range or stands twice"); }
    seen[positions[rank]] = true;
    const std::uint32_t first = suffixes_.token(rank, 0);
    if (first == kEnd) corrupt("the suffix of rank ", rank, " begins at a separator");
    for (; expected <= first; ++expected) {
      if (first_ranks[expected] != rank) corrupt("the first rank of token ", expected, " is wrong");
    }
    if (rank > 0) {
      std::uint32_t depth = 0, before = 0, here = 0;
      while (depth < header_.order_depth) {
        before = suffixes_.token(rank - 1, depth);
        here = suffixes_.token(rank, depth);
        if (before != here || here == kEnd) break;
        ++depth;
      }
      const bool equal = depth == header_.order_depth || before == here;
      if (equal ? positions[rank - 1] >= positions[rank] : before > here) {
        corrupt("the suffixes of ranks ", rank - 1, " and ", rank, " are out of order");
      }
    }
    if (progress && rank % 1048576 == 0) progress(static_cast<double>(rank) / static_cast<double>(positions.size()));
  }
  for (; expected <= header_.vocab_size; ++expected) {
    if (first_ranks[expected] != positions.size()) corrupt("the first rank of token ", expected, " is wrong");
  }
}

void Segment::verify_directory() const {
  const std::span<const SuffixKey> directory(suffixes_.directory, suffixes_.directory_count);
  for (std::uint64_t rank = 0; rank < suffixes_.count; rank += kDirectoryStride) {
    const SuffixKey key = suffix_key(suffixes_.tokens, suffixes_.positions[rank], header_.vocab_size, header_.token_width);
    if (directory[rank / kDirectoryStride] != key) corrupt("the directory's key of rank ", rank, " is wrong");
  }
}

}  // namespace suffolk
