#include "app/tokens/token_checks.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"

namespace mpzero {
namespace {

constexpr const char* kBytes = "bytes";

// Result of comparing two tokenizers by their recorded names and hashes.
enum class Comparison : uint8_t { kSame, kOther, kProbablyOther, kUnknown };

// Returns false for files from older versions, which do not record add_bos.
bool is_recorded(const io::Tokenization& tokens) { return tokens.add_bos.has_value(); }

bool are_bytes(const io::Tokenization& tokens) { return tokens.tokenizer == kBytes && tokens.tokenizer_hash.empty(); }

Comparison compare_with(const io::Tokenization& tokens, const std::string& hash) {
  if (hash.empty()) return Comparison::kUnknown;
  if (!tokens.tokenizer_hash.empty()) {
    return tokens.tokenizer_hash == hash ? Comparison::kSame : Comparison::kOther;
  }
  if (!are_bytes(tokens)) return Comparison::kUnknown;
  return is_recorded(tokens) ? Comparison::kOther : Comparison::kProbablyOther;
}

Comparison compare(const io::Tokenization& one, const io::Tokenization& other) {
  if (!other.tokenizer_hash.empty()) return compare_with(one, other.tokenizer_hash);
  if (!one.tokenizer_hash.empty()) return compare_with(other, one.tokenizer_hash);
  if (one.tokenizer == other.tokenizer) return Comparison::kSame;
  return are_bytes(one) || are_bytes(other) ? Comparison::kProbablyOther : Comparison::kUnknown;
}

// Throws UserError, or adds a warning, if the tokenizer of `file` differs from the tokenizer of `other`.
void judge(Comparison comparison, const TokenFile& file, const std::string& other, bool may_differ,
           std::vector<std::string>& warnings) {
  if (comparison != Comparison::kOther && comparison != Comparison::kProbablyOther) return;
  const std::string problem = fmt::format("the tokenizer of {} {}, {}, differs from the tokenizer of {}", file.flag,
                                          file.path, file.tokens.tokenizer, other);
  if (comparison == Comparison::kOther && !may_differ) {
    throw_user_error("{}; prepare the file with that tokenizer, or pass --allow_changed {} if the change is intended",
                     problem, kTokenizerKey);
  }
  warnings.push_back(problem + ".");
}

bool is_among(const std::vector<int64_t>& ids, int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::vector<std::string> check_tokens(const TokenFile& file, const ExpectedTokens& expected) {
  std::vector<std::string> warnings;
  const io::Tokenization& tokens = file.tokens;
  judge(compare_with(tokens, expected.tokenizer_hash), file, expected.weights, expected.may_differ, warnings);
  const std::string where = fmt::format("{} {}", file.flag, file.path);
  if (tokens.eos_token_id && !expected.eos_token_ids.empty() &&
      !is_among(expected.eos_token_ids, *tokens.eos_token_id)) {
    warnings.push_back(fmt::format(
        "{}: documents end with id {}, but eos_token_id in {} is {}; prepare the data with the model's "
        "tokenizer, or pass a --model_config with eos_token_id {}.",
        where, *tokens.eos_token_id, expected.model, fmt::join(expected.eos_token_ids, ", "), *tokens.eos_token_id));
  }
  if (tokens.add_bos.value_or(false) && tokens.bos_token_id && expected.bos_token_id &&
      *tokens.bos_token_id != *expected.bos_token_id) {
    warnings.push_back(
        fmt::format("{}: documents begin with id {}, but bos_token_id in {} is {}; prepare the data with the model's "
                    "tokenizer, or correct bos_token_id.",
                    where, *tokens.bos_token_id, expected.model, *expected.bos_token_id));
  }
  if (tokens.vocab_size > expected.vocab_size) {
    warnings.push_back(
        fmt::format("{}: vocab_size is {}, but {} has {}; the file was not prepared with the model's tokenizer.", where,
                    tokens.vocab_size, expected.model, expected.vocab_size));
  }
  return warnings;
}

bool are_of_other_tokenizers(const io::Tokenization& one, const io::Tokenization& other) {
  if (one.tokenizer_hash.empty() && other.tokenizer_hash.empty()) return false;
  const Comparison comparison = compare(one, other);
  return comparison == Comparison::kOther || comparison == Comparison::kProbablyOther;
}

std::string show_tokenizer(const io::Tokenization& tokens) {
  return tokens.tokenizer_hash.empty() ? tokens.tokenizer
                                       : fmt::format("{} ({})", tokens.tokenizer, tokens.tokenizer_hash);
}

std::vector<std::string> check_same_tokenizer(const TokenFile& file, const TokenFile& train, bool may_differ) {
  std::vector<std::string> warnings;
  const std::string other = fmt::format("{} {} ({})", train.flag, train.path, train.tokens.tokenizer);
  judge(compare(file.tokens, train.tokens), file, other, may_differ, warnings);
  if (file.tokens.eos_token_id && train.tokens.eos_token_id &&
      *file.tokens.eos_token_id != *train.tokens.eos_token_id) {
    warnings.push_back(fmt::format("{} {}: documents end with id {}, but the documents of {} end with id {}.",
                                   file.flag, file.path, *file.tokens.eos_token_id, other, *train.tokens.eos_token_id));
  }
  if (file.tokens.add_bos.value_or(false) != train.tokens.add_bos.value_or(false)) {
    const auto begin = [](const io::Tokenization& tokens) {
      return tokens.add_bos.value_or(false) ? "with" : "without";
    };
    warnings.push_back(fmt::format("{} {}: documents begin {} BOS, but the documents of {} begin {} BOS.", file.flag,
                                   file.path, begin(file.tokens), other, begin(train.tokens)));
  }
  return warnings;
}

void check_one_tokenizer(const TokenFile& source, const TokenFile& first) {
  const io::Tokenization &tokens = source.tokens, &others = first.tokens;
  if (!are_of_other_tokenizers(tokens, others) && tokens.vocab_size == others.vocab_size &&
      tokens.eos_token_id == others.eos_token_id) {
    return;
  }
  const auto shown = [](const io::Tokenization& of) {
    return fmt::format("{}, vocab_size {}, eos_token_id {}", show_tokenizer(of), of.vocab_size, *of.eos_token_id);
  };
  throw_user_error(
      "--train_data: {} ({}) and {} ({}) have different tokenizers; prepare both files with the same tokenizer.",
      first.path, shown(others), source.path, shown(tokens));
}

}  // namespace mpzero
