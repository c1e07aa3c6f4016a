// A libFuzzer target: ds_config.json.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "io/ds_config/ds_config.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mpzero;
  using namespace mpzero::io;
  try {
    (void)parse_ds_config(std::string(text_of(data, size)), "ds_config.json");
  } catch (const Error&) {
  }
  return 0;
}
