#include "app/tokens/encoder_checks.hpp"

#include <string>

#include "base/error.hpp"

namespace mpzero {

void check_encoder(const Settings& settings, const model::ModelConfig& model) {
  if (!model.t5) {
    if (settings.source_length == 0) return;
    throw_user_error("--source_length {}: {} has no encoder; leave it out", settings.source_length, model.model_type);
  }
  if (settings.source_length < 1 || settings.source_length >= settings.seq_length) {
    throw_user_error(
        "--source_length is {}, but for a T5 must be at least 1 and less than --seq_length {}, which counts source and "
        "target: 640 and 512 for sources of 512 tokens and targets of 128",
        settings.source_length, settings.seq_length);
  }
  if (settings.fp8 != "none") throw_user_error("--fp8 {}: a T5 does not train in FP8; leave it out", settings.fp8);
  if (settings.document_mask) throw_user_error("--document_mask: the pairs of a T5 are no documents; leave it out");
}

void check_pairs(const io::TokenDataset& data, const Settings& settings, const model::ModelConfig& model) {
  const std::string path = data.path().string();
  const auto& t5 = model.t5;
  if (t5.has_value() != data.pairs().has_value()) {
    throw_user_error("{} {}; {}", path, t5 ? "is no file of pairs, which a T5 trains on" : "is a file of pairs",
                     t5 ? "make one with app/prepare_data.py --format pairs" : "train a T5 on it");
  }
  if (!t5) return;
  if (const int64_t length = data.pairs()->source_length; length != settings.source_length) {
    throw_user_error("{} has sources of {} tokens, not the {} of --source_length; give --source_length {}", path,
                     length, settings.source_length, length);
  }
  if (const int64_t padding = data.pairs()->pad_token_id; padding != t5->pad_token_id) {
    throw_user_error(
        "{} is padded with token {}, but pad_token_id of the model is {}; prepare it with the model's "
        "tokenizer",
        path, padding, t5->pad_token_id);
  }
}

}  // namespace mpzero
