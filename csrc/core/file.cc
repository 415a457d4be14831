#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"

namespace suffolk {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path, int error) {
  const std::string reason = path + ": " + what + ": " + std::strerror(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      throw Error(Code::kNotFound, reason + "; check the path");
    case EACCES:
    case EPERM:
    case EROFS:
      throw Error(Code::kPermissionDenied, reason + "; check who may read and write there");
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      throw Error(Code::kResourceExhausted, reason + "; free disk space or choose another folder, then run the same command again");
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      throw Error(Code::kResourceExhausted, reason + "; raise the limit of memory maps or open files");
    default:
      throw Error(Code::kInternal, reason);
  }
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (value_ < 0) fail("cannot open", path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value_); }
  int get() const noexcept { return value_; }

 private:
  int value_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(path, O_RDONLY);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("cannot read its size", path, errno);
  if (!S_ISREG(status.st_mode)) throw Error(Code::kInvalidArgument, path + " is not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    fail("cannot map into memory", path, errno);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

FileWriter::FileWriter(const std::string& path, std::uint64_t size, std::size_t chunk_bytes)
    : path_(path), temporary_(path + ".tmp"), chunk_bytes_(chunk_bytes) {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("cannot create", temporary_, errno);
  if (::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size)) != 0 && (errno == ENOSPC || errno == EDQUOT)) {
    const int error = errno;
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
    fail("cannot reserve " + std::to_string(size) + " bytes", path_, error);
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
    if (written < 0) fail("cannot write", temporary_, errno);
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
  if (::fsync(descriptor_) != 0) fail("cannot flush", temporary_, errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot close", temporary_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename to its final name", temporary_, errno);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const Descriptor directory(folder.empty() ? "." : folder.string(), O_RDONLY | O_DIRECTORY);
  if (::fsync(directory.get()) != 0) fail("cannot flush the folder", folder.string(), errno);
}

}  // namespace suffolk
