#include "io/data/token_identity.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/hdf5/file.hpp"

namespace mpzero::io {
namespace {

constexpr uint64_t kBlock = uint64_t{1} << 20;  // elements
constexpr size_t kShownDigits = 8;

// Hash of the first `count` elements in little-endian byte order.
template <hdf5::Number T>
std::string hash_of(const hdf5::Dataset& dataset, uint64_t count) {
  std::vector<T> values;
  StreamingChecksum sum;
  for (uint64_t begin = 0; begin < count; begin += values.size()) {
    values.resize(static_cast<size_t>(std::min(kBlock, count - begin)));
    dataset.read(begin, std::span(values));
    sum.add(std::as_bytes(std::span(values)));
  }
  return to_hex(sum.value());
}

std::string hash_of(std::string_view text) { return to_hex(checksum(std::as_bytes(std::span(text)))); }

std::string name_of(const TokenIdentity& source) {
  return fmt::format("{} {}{}", source.num_tokens, source.tokens_xxh3, source.documents_xxh3);
}

std::string stored_hash(const hdf5::Dataset& dataset, const char* name, const std::filesystem::path& path) {
  try {
    return to_hex(from_hex(dataset.text_attribute(kTokensHashName)));
  } catch (const std::invalid_argument&) {
    throw_user_error(
        "{}: attribute '{}' of /{} is not 16 hexadecimal digits; prepare the file again (app/prepare_data.py "
        "--overwrite)",
        path.string(), kTokensHashName, name);
  }
}

// Returns the hash of the tokens or, with a loss mask, a hash that also covers weights and documents.
std::string with_mask(const std::string& tokens, const hdf5::File& file, const std::filesystem::path& path) {
  if (!file.contains("loss_mask")) return tokens;
  const hdf5::Dataset mask = file.dataset("loss_mask"), offsets = file.dataset("document_offsets");
  std::string of_mask;
  if (mask.has_attribute(kTokensHashName)) {
    of_mask = stored_hash(mask, "loss_mask", path);
  } else {
    of_mask = mask.holds<uint8_t>() ? hash_of<uint8_t>(mask, mask.size()) : hash_of<float>(mask, mask.size());
  }
  return hash_of(fmt::format("{}\n{}\n{}\n", tokens, of_mask, hash_of<uint64_t>(offsets, offsets.size())));
}

}  // namespace

TokenIdentity read_token_identity(const std::filesystem::path& path, int64_t max_bytes) {
  const hdf5::File file = hdf5::File::open(path);
  const hdf5::Dataset tokens = file.dataset("tokens");
  TokenIdentity identity{
      .num_tokens = static_cast<int64_t>(tokens.size()), .tokens_xxh3 = {}, .documents_xxh3 = {}, .tokenization = {}};
  const auto limit = static_cast<uint64_t>(max_bytes);
  if (tokens.has_attribute(kTokensHashName)) {
    identity.tokens_xxh3 = stored_hash(tokens, "tokens", path);
  } else if (tokens.size() <= limit / tokens.element_size()) {
    identity.tokens_xxh3 =
        tokens.holds<uint16_t>() ? hash_of<uint16_t>(tokens, tokens.size()) : hash_of<uint32_t>(tokens, tokens.size());
  } else {
    const hdf5::Dataset offsets = file.dataset("document_offsets");
    identity.documents_xxh3 = hash_of<uint64_t>(offsets, std::min(offsets.size(), limit / sizeof(uint64_t)));
  }
  if (!identity.tokens_xxh3.empty()) identity.tokens_xxh3 = with_mask(identity.tokens_xxh3, file, path);
  identity.tokenization = read_tokenization(file);
  return identity;
}

TokenIdentity identity_of(std::span<const TokenIdentity> sources) {
  if (sources.size() == 1) return sources.front();
  TokenIdentity all{.num_tokens = 0, .tokens_xxh3 = {}, .documents_xxh3 = {}, .tokenization = {}};
  all.tokenization = sources.front().tokenization;
  std::vector<std::string> names;
  bool has_tokens = true;
  for (const TokenIdentity& source : sources) {
    all.num_tokens += source.num_tokens;
    has_tokens = has_tokens && !source.tokens_xxh3.empty();
    // Plain text sources have neither an end-of-turn token nor a chat template.
    Tokenization& tokens = all.tokenization;
    if (!tokens.end_of_turn_token_id) tokens.end_of_turn_token_id = source.tokenization.end_of_turn_token_id;
    if (tokens.chat_template.empty()) tokens.chat_template = source.tokenization.chat_template;
    names.push_back(name_of(source));
  }
  std::sort(names.begin(), names.end());
  (has_tokens ? all.tokens_xxh3 : all.documents_xxh3) = hash_of(fmt::to_string(fmt::join(names, "\n")));
  return all;
}

uint64_t order_seed(uint64_t seed, const TokenIdentity& source) {
  return from_hex(hash_of(fmt::format("{} {}", seed, name_of(source))));
}

std::optional<bool> same_tokens(const TokenIdentity& a, const TokenIdentity& b) {
  if (a.num_tokens != b.num_tokens) return false;
  if (!a.tokens_xxh3.empty() && !b.tokens_xxh3.empty()) return a.tokens_xxh3 == b.tokens_xxh3;
  if (!a.documents_xxh3.empty() && !b.documents_xxh3.empty()) return a.documents_xxh3 == b.documents_xxh3;
  return std::nullopt;
}

std::string show(const TokenIdentity& identity) {
  const std::string& hash = identity.tokens_xxh3.empty() ? identity.documents_xxh3 : identity.tokens_xxh3;
  return fmt::format("{} tokens ({:.{}})", identity.num_tokens, hash, kShownDigits);
}

}  // namespace mpzero::io
