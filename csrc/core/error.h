// The closed set of errors of the core. Python's datastore/errors.py and gRPC's codes mirror it one to one.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace suffolk {

enum class Code {
  kInvalidArgument,    // a value from the caller is out of bounds
  kNotFound,           // a named file does not exist
  kCorruption,         // a Suffolk file is damaged, truncated or of the wrong kind
  kUnsupported,        // a format version or feature that this version of Suffolk cannot read
  kResourceExhausted,  // disk, memory or address space is used up
  kUnavailable,
  kDeadlineExceeded,
  kPermissionDenied,
  kInternal,
};

// The only type of exception that the core itself throws. The message names the file or field, the value, the limit and the next
// step. The core may also throw std::bad_alloc, which the bindings turn into kResourceExhausted.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

// Throws an Error whose message is made of `parts`: texts and numbers.
template <typename... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(Code code, const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(code, message.str());
}

template <typename... Parts>
[[noreturn, gnu::cold]] void refuse(const Parts&... parts) {
  fail(Code::kInvalidArgument, parts...);
}

}  // namespace suffolk
