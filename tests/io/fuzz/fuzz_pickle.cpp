// A libFuzzer target: the pickle of a torch.save file.
#include "tests/io/fuzz/fuzz_pickle.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpzero;
  using namespace mpzero::io;
  try {
    const pickle::Document document = pickle::read({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    walk(pickle::root_of(document));
  } catch (const Error&) {
  }
  return 0;
}
