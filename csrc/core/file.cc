#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"

namespace suffolk {
namespace {

constexpr std::size_t kWarmBytes = std::size_t{32} << 20;       // read by `warm` at a time; then it checks whether to stop
constexpr std::size_t kPrefetchBytes = std::size_t{128} << 10;  // per MADV_WILLNEED, which reads at most a device's read-ahead
constexpr std::size_t kSampledPages = std::size_t{1} << 20;     // pages in a sample of resident_bytes
constexpr std::size_t kSampleRun = 256;                         // neighbouring pages in this sample
constexpr int kPopulateRead = 22;                               // MADV_POPULATE_READ, Linux 5.14; older headers lack the name

[[noreturn]] void fail_call(const std::string& what, const std::string& path, int error) {
  const std::string reason = path + ": " + what + ": " + std::strerror(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      fail(Code::kNotFound, reason, "; check the path");
    case EACCES:
    case EPERM:
    case EROFS:
      fail(Code::kPermissionDenied, reason, "; check who may read and write there");
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      fail(Code::kResourceExhausted, reason, "; free disk space or choose another folder, then run the same command again");
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      fail(Code::kResourceExhausted, reason, "; raise the limit of memory maps or open files");
    default:
      fail(Code::kInternal, reason);
  }
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (value_ < 0) fail_call("cannot open", path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value_); }
  int get() const noexcept { return value_; }

 private:
  int value_;
};

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

// The begin and length of the pages that hold `part`, for madvise.
std::pair<void*, std::size_t> whole_pages(std::span<const std::byte> part) {
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t before = begin % page_bytes();
  return {reinterpret_cast<void*>(begin - before), part.size() + before};
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(path, O_RDONLY);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) fail_call("cannot read its size", path, errno);
  if (!S_ISREG(status.st_mode)) refuse(path, " is not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  observable_ = status.st_uid == ::geteuid() || ::access(path.c_str(), W_OK) == 0;
  if (size_ == 0) return;
  data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    fail_call("cannot map into memory", path, errno);
  }
  expect(Access::kRandom);  // before the first read, which would read megabytes ahead on some devices
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedFile::expect(Access access) const noexcept { ::madvise(data_, size_, access == Access::kRandom ? MADV_RANDOM : MADV_SEQUENTIAL); }

void MappedFile::prefetch(std::span<const std::byte> part) const noexcept {
  for (; !part.empty(); part = part.subspan(std::min(kPrefetchBytes, part.size()))) {
    const auto [begin, bytes] = whole_pages(part.first(std::min(kPrefetchBytes, part.size())));
    ::madvise(begin, bytes, MADV_WILLNEED);
  }
}

void MappedFile::populate(std::span<const std::byte> part) const noexcept {
  prefetch(part);  // otherwise madvise below reads one page at a time
  const auto [begin, bytes] = whole_pages(part);
  ::madvise(begin, bytes, kPopulateRead);
}

void MappedFile::lock() const {
  prefetch(bytes());  // as in populate
  if (size_ == 0 || ::mlock(data_, size_) == 0) return;
  const int error = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string allowed = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
  fail(Code::kResourceExhausted, path_, ": cannot lock ", size_, " bytes in memory: ", std::strerror(error),
       "; the limit of locked memory (RLIMIT_MEMLOCK) is ", allowed, ": raise it (ulimit -l, LimitMEMLOCK=), or choose residency 'warm'");
}

std::optional<std::uint64_t> MappedFile::resident_bytes() const {
  if (!observable_) return std::nullopt;
  const std::size_t page = page_bytes(), pages = (size_ + page - 1) / page;
  // A sample is made of runs at equal distances, because sections differ in how much of them is in memory.
  const std::size_t run = pages <= kSampledPages ? pages : kSampleRun;
  const std::size_t stride = pages <= kSampledPages ? std::max<std::size_t>(pages, 1) : run * ((pages + kSampledPages - 1) / kSampledPages);
  std::vector<unsigned char> states(run);
  std::uint64_t seen = 0, resident = 0;
  for (std::size_t at = 0; at < pages; at += stride) {
    const std::size_t count = std::min(run, pages - at);
    if (::mincore(static_cast<char*>(data_) + at * page, std::min(count * page, size_ - at * page), states.data()) != 0) return std::nullopt;
    seen += count;
    for (std::size_t i = 0; i < count; ++i) resident += states[i] & 1U;
  }
  if (seen == 0) return 0;
  return std::min<std::uint64_t>(
      size_, static_cast<std::uint64_t>(static_cast<double>(resident) / static_cast<double>(seen) * static_cast<double>(pages)) * page);
}

void warm(std::vector<FilePart> parts) {
  try {
    std::thread([parts = std::move(parts)] {
      for (const FilePart& part : parts) {
        for (std::size_t at = 0; at < part.bytes.size(); at += kWarmBytes) {
          const auto file = part.file.lock();  // held for one piece at a time, so that closing the datastore ends the work
          if (!file) break;
          file->populate(part.bytes.subspan(at, std::min(kWarmBytes, part.bytes.size() - at)));
        }
      }
    }).detach();
  } catch (const std::system_error& error) {
    fail(Code::kResourceExhausted, "no thread to read the datastore in: ", error.what(),
         "; raise the limit of processes (ulimit -u), or choose residency 'mmap'");
  }
}

FileWriter::FileWriter(const std::string& path, std::uint64_t size, std::size_t chunk_bytes)
    : path_(path), temporary_(path + ".tmp"), chunk_bytes_(chunk_bytes) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_call("cannot create", temporary_, errno);
  if (::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size)) != 0 && (errno == ENOSPC || errno == EDQUOT)) {
    const int error = errno;
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
    fail_call("cannot reserve " + std::to_string(size) + " bytes", path_, error);
  }
  chunk_.reserve(chunk_bytes_);
}

FileWriter::~FileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  offset_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t take = std::min(bytes.size(), chunk_bytes_ - chunk_.size());
    chunk_.insert(chunk_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(take));
    bytes = bytes.subspan(take);
    if (chunk_.size() == chunk_bytes_) flush();
  }
}

void FileWriter::align(std::size_t alignment) {
  const std::vector<std::byte> zeros((alignment - offset_ % alignment) % alignment);
  write(zeros);
}

void FileWriter::flush() {
  checksums_.push_back(crc32c(chunk_));
  for (std::size_t done = 0; done < chunk_.size();) {
    const ssize_t written = ::write(descriptor_, chunk_.data() + done, chunk_.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_call("cannot write", temporary_, errno);
    done += static_cast<std::size_t>(written);
  }
  chunk_.clear();
}

std::vector<std::uint32_t> FileWriter::finish_chunks() {
  if (!chunk_.empty()) flush();
  return checksums_;
}

void FileWriter::commit() {
  if (!chunk_.empty()) flush();
  if (::fsync(descriptor_) != 0) fail_call("cannot sync", temporary_, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_call("cannot close", temporary_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_call("cannot rename to its final name", temporary_, errno);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const Descriptor directory(folder.empty() ? "." : folder.string(), O_RDONLY | O_DIRECTORY);
  if (::fsync(directory.get()) != 0) fail_call("cannot sync the folder", folder.string(), errno);
}

}  // namespace suffolk
