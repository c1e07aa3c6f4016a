#include "io/weights/tokenizer_files.hpp"

#include <array>
#include <string_view>
#include <system_error>

#include "base/error.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

// Names that transformers gives them.
constexpr std::array<const char*, 9> kNames = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",     "vocab.json",
    "merges.txt",     "tokenizer.model",       "chat_template.jinja",     "generation_config.json"};

}  // namespace

bool holds_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "tokenizer.json", ignored) || fs::exists(folder / "tokenizer.model", ignored) ||
         (fs::exists(folder / "vocab.json", ignored) && fs::exists(folder / "merges.txt", ignored));
}

std::string recorded_tokenizer(const StoredCheckpoint& checkpoint) {
  // "187 sequences of 16 tokens, tokenizer NAME, shuffled"
  constexpr std::string_view kBefore = ", tokenizer ";
  const std::string& order = checkpoint.progress().data_order;
  const size_t begin = order.find(kBefore);
  const size_t end = order.rfind(", ");
  if (begin == std::string::npos || end <= begin) return "";
  return order.substr(begin + kBefore.size(), end - begin - kBefore.size());
}

fs::path tokenizer_folder(const StoredCheckpoint& checkpoint) {
  for (const std::string& name : {checkpoint.run().init_from, recorded_tokenizer(checkpoint)}) {
    if (!name.empty() && holds_tokenizer(name)) return name;
  }
  return {};
}

void check_tokenizer(const fs::path& folder) {
  if (holds_tokenizer(folder)) return;
  throw_user_error(
      "--tokenizer {}: the folder holds neither tokenizer.json nor tokenizer.model nor vocab.json and merges.txt; name "
      "the folder of the tokenizer",
      folder.string());
}

std::vector<std::string> copy_tokenizer(const fs::path& folder, const fs::path& output, bool replaces) {
  check_tokenizer(folder);
  std::vector<std::string> copied;
  for (const char* name : kNames) {
    std::error_code error;
    if (!fs::exists(folder / name, error)) continue;
    const auto how = replaces ? fs::copy_options::overwrite_existing : fs::copy_options::skip_existing;
    const bool is_copied = fs::copy_file(folder / name, output / name, how, error);
    if (error) {
      throw_user_error("{} cannot be copied to {} ({}); copy it by hand, or choose another --tokenizer",
                       (folder / name).string(), output.string(), error.message());
    }
    if (is_copied) copied.emplace_back(name);
  }
  return copied;
}

}  // namespace mpzero::io
