// A libFuzzer target for what is parsed of a torch.save file: the pickle and the ZIP directory. tests/io/test_fuzz.py
// builds it with clang, AddressSanitizer and UndefinedBehaviorSanitizer and runs it for a bounded time.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/error.hpp"
#include "io/pickle_reader.hpp"
#include "io/torch_zip_reader.hpp"

namespace {

using namespace mpzero;
using namespace mpzero::io;

void walk(const pickle::Value& root) {
  (void)root.to_json();
  if (root.kind() != pickle::Kind::kDict) return;
  for (const auto& [name, value] : root.entries()) {
    try {
      (void)value.tensor();
    } catch (const Error&) {
    }
  }
}

void read_pickle(std::span<const std::byte> bytes) {
  try {
    const pickle::Document document = pickle::read(bytes, "fuzz");
    walk(pickle::root_of(document));
  } catch (const Error&) {
  }
}

void read_archive(std::span<const std::byte> bytes) {
  const int descriptor = ::memfd_create("fuzz", 0);
  if (descriptor < 0 || ::write(descriptor, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  try {
    TorchZipReader reader("/proc/self/fd/" + std::to_string(descriptor));
    walk(reader.root());
    reader.verify();
  } catch (const Error&) {
  }
  ::close(descriptor);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  read_pickle(bytes);
  read_archive(bytes);
  return 0;
}
