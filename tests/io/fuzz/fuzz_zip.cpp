// A libFuzzer target: the ZIP archive of a torch.save file. The checksum of its pickle rejects most mutations of the
// pickle; fuzz_pickle.cpp covers it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "io/torch_save/zip_reader.hpp"
#include "tests/io/fuzz/fuzz_pickle.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpzero;
  using namespace mpzero::io;
  const int descriptor = ::memfd_create("fuzz", 0);
  if (descriptor < 0 || ::write(descriptor, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    TorchZipReader reader("/proc/self/fd/" + std::to_string(descriptor));
    walk(reader.root());
    reader.verify();
  } catch (const Error&) {
  }
  ::close(descriptor);
  return 0;
}
