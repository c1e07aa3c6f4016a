// A libFuzzer target: the files that --init_from reads. In an input that begins with 'i' the bytes after it are an
// index, next to two valid shards. Any other input is model.safetensors.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "io/weights/folder_weights.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"

namespace {

using namespace mpzero;
using namespace mpzero::io;

std::string shard(const std::string& tensor) {
  const std::string header = R"({")" + tensor + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto length = static_cast<char>(header.size());
  return std::string{length, 0, 0, 0, 0, 0, 0, 0} + header + std::string(8, '\1');
}

void read_all(const std::filesystem::path& folder) {
  constexpr int64_t kMost = 1 << 16;
  try {
    const FolderWeights source(folder);
    for (const ParameterSpec& parameter : source.parameters()) {
      try {
        if (parameter.numel() < 0 || parameter.numel() > kMost) continue;
        std::vector<float> values(static_cast<size_t>(parameter.numel()));
        source.read(parameter, 0, values);
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FuzzFolder single, sharded;
  const std::string_view bytes = text_of(data, size);
  if (bytes.starts_with('i')) {
    sharded.write("a.safetensors", shard("a"));
    sharded.write("b.safetensors", shard("b"));
    sharded.write("model.safetensors.index.json", bytes.substr(1));
    read_all(sharded.path());
  } else {
    single.write("model.safetensors", bytes);
    read_all(single.path());
  }
  return 0;
}
