#include "app/tokens/encoder_checks.hpp"

#include <string>

#include "base/error.hpp"

namespace mpzero {

void check_encoder(const Settings& settings, const model::ModelConfig& model) {
  if (!model.t5) {
    if (settings.source_length == 0) return;
    throw_user_error("--source_length {}: {} has no encoder; omit the flag", settings.source_length, model.model_type);
  }
  if (settings.source_length < 1 || settings.source_length >= settings.seq_length) {
    throw_user_error(
        "--source_length is {}, but T5 requires at least 1 and less than --seq_length {} (source + target), e.g. "
        "--source_length 512 --seq_length 640",
        settings.source_length, settings.seq_length);
  }
  if (settings.fp8 != "none") throw_user_error("--fp8 {}: T5 does not support FP8; omit the flag", settings.fp8);
  if (settings.document_mask)
    throw_user_error("--document_mask: T5 is trained on pairs instead of documents; omit the flag");
}

void check_pairs(const io::TokenDataset& data, const Settings& settings, const model::ModelConfig& model) {
  const std::string path = data.path().string();
  const auto& t5 = model.t5;
  if (t5.has_value() != data.pairs().has_value()) {
    throw_user_error("{} {}; {}", path, t5 ? "does not contain pairs for T5" : "contains pairs",
                     t5 ? "create pairs with app/prepare_data.py --format pairs" : "use a T5 model");
  }
  if (!t5) return;
  if (const int64_t length = data.pairs()->source_length; length != settings.source_length) {
    throw_user_error("{} has sources of {} tokens, but --source_length is {}; pass --source_length {}", path, length,
                     settings.source_length, length);
  }
  if (const int64_t padding = data.pairs()->pad_token_id; padding != t5->pad_token_id) {
    throw_user_error(
        "{} is padded with token {}, but the model's pad_token_id is {}; prepare the data with the model's tokenizer",
        path, padding, t5->pad_token_id);
  }
}

}  // namespace mpzero
