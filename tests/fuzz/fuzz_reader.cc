// Any bytes as a segment file: opened and verified, as they are and with checksums that agree. Either it is refused as
// damaged or of another version, or it opens, and then `full` finds it sound or damaged.
#include "core/error.h"
#include "core/segment.h"
#include "memory_file.h"

namespace {

using namespace suffolk;

void open_and_verify(std::span<const std::byte> content) {
  const fuzz::MemoryFile file(content);
  try {
    const Segment segment(file.path());
    for (const Depth depth : {Depth::kHeaders, Depth::kChecksums, Depth::kFull}) segment.verify(depth, {});
  } catch (const Error& error) {
    fuzz::require(error.code() == Code::kCorruption || error.code() == Code::kUnsupported, "damage is Corruption or Unsupported");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto content = std::as_bytes(std::span(data, size));
  open_and_verify(content);
  fuzz::Bytes mended(content.begin(), content.end());
  fuzz::mend_checksums(mended);
  open_and_verify(mended);
  return 0;
}
