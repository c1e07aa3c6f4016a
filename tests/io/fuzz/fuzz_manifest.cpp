// A libFuzzer target: manifest.json. An input that begins with '{' is the file. Of any other input the bytes after the
// first are the file's content, to which the checksum is added; without it nothing after the checksum test would be
// reached.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/bytes/checksum.hpp"
#include "io/checkpoint/manifest.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"

namespace {

using namespace mpzero;
using namespace mpzero::io;

// Adds the checksum if the content is JSON; otherwise returns it unchanged.
std::string with_checksum(std::string_view content) {
  std::string text(content);
  try {
    text = parse_json(content, kManifestLimits).dump();
  } catch (const JsonError&) {
  } catch (const nlohmann::json::exception&) {
  }
  return "{\"content\":" + text + ",\n\"content_xxh3_64\":\"" + to_hex(checksum(std::as_bytes(std::span(text)))) +
         "\"}\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FuzzFolder folder;
  if (size == 0) return 0;
  const std::string_view text = text_of(data, size);
  folder.write(kManifestName, text[0] == '{' ? std::string(text) : with_checksum(text.substr(1)));
  try {
    const Manifest manifest = read_manifest(folder.path());
    try {
      check_complete(manifest, std::vector<UnitSpec>{{"embedding", {{"w", {4, 2}}}}});
    } catch (const Error&) {
    }
    for (const ManifestFile& file : manifest.files) (void)manifest_file_from_text(to_text(file));
    check_sizes(folder.path(), manifest);
  } catch (const Error&) {
  }
  return 0;
}
