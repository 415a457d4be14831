// The closed set of errors of the core. Python's datastore/errors.py and gRPC's codes mirror it one to one.
#pragma once

#include <stdexcept>
#include <string>

namespace suffolk {

enum class Code {
  kInvalidArgument,    // a value the caller gave is out of its bounds
  kNotFound,           // a named file does not exist
  kCorruption,         // a Suffolk file is damaged, truncated or of the wrong kind
  kUnsupported,        // a format version or feature this version cannot read
  kResourceExhausted,  // disk, memory or address space is used up
  kUnavailable,
  kDeadlineExceeded,
  kPermissionDenied,
  kInternal,
};

// The only exception the core throws on purpose. The message names the file or field, the value, the limit and the next
// thing to try. std::bad_alloc may also leave the core; the bindings turn it into kResourceExhausted.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

}  // namespace suffolk
