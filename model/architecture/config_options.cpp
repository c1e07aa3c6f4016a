#include "model/architecture/config_options.hpp"

#include <string>

#include "base/config_keys.hpp"
#include "base/error.hpp"

namespace mpzero::model {
namespace {

using nlohmann::json;

constexpr const char* kUseAnother = "use a model without this option";

// Throws UserError for options of other families or of custom model code, unless their value has no effect. If no such
// value exists (null), the key must be missing. The model's family has already read its own options.
void check_computation(ConfigReader& reader, bool encoder_decoder) {
  reader.only("hidden_act", "silu", "use a model with \"silu\"");
  for (const char* key : {"attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop", "residual_dropout"}) {
    reader.only(key, 0.0, "set it to 0");
  }
  for (const char* key :
       {"embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale", "scale_emb"}) {
    if (!reader.knows(key)) reader.only(key, 1.0, kUseAnother);
  }
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "num_nextn_predict_layers"}) {
    reader.only(key, 0, kUseAnother);
  }
  for (const char* key :
       {"add_cross_attention", "alibi", "rope_interleaved", "use_bidirectional_attention", "use_mrope"}) {
    reader.only(key, false, kUseAnother);
  }
  reader.only("is_encoder_decoder", encoder_decoder, kUseAnother);
  reader.only("is_causal", true, kUseAnother);
  reader.only("pruned_heads", json::object(), kUseAnother);
  for (const char* key : {"attention_multiplier", "attn_logit_softcapping", "clip_qkv", "dual_chunk_attention_config",
                          "final_logit_softcapping", "no_rope_layer_interval", "no_rope_layers",
                          "query_pre_attn_scalar", "scale_depth"}) {
    if (!reader.knows(key)) reader.only(key, nullptr, kUseAnother);
  }
  reader.only("quantization_config", nullptr, "use unquantized weights in bf16 or fp32");
  reader.only("auto_map", nullptr, "remove it if the model does not need custom code");
}

void check_layer_types(ConfigReader& reader) {
  const json* types = reader.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) reader.wrong("layer_types", *types, "a list");
  for (const json& type : *types) {
    if (type.is_string() && type.get_ref<const std::string&>() == "full_attention") continue;
    throw_user_error("{}: layer_types contains {}, which is not supported; use \"full_attention\".", reader.source(),
                     type.dump());
  }
  if (const int64_t layers = reader.integer("num_hidden_layers"); static_cast<int64_t>(types->size()) != layers) {
    throw_user_error("{}: layer_types has {} entries, but num_hidden_layers is {}; change one of them.",
                     reader.source(), types->size(), layers);
  }
}

// Registers other keys that transformers and model publishers write to config.json: origin, storage, text generation
// and choice of kernels.
void pass_over(ConfigReader& reader) {
  reader.harmless({"_attn_implementation",
                   "_attn_implementation_autoset",
                   "_commit_hash",
                   "_experts_implementation",
                   "_flash_attn_2_enabled",
                   "_from_model_config",
                   "_name_or_path",
                   "architectures",
                   "attn_implementation",
                   "chunk_size_feed_forward",
                   "dtype",
                   "experts_implementation",
                   "finetuning_task",
                   "gradient_checkpointing",
                   "id2label",
                   "is_decoder",
                   "is_llama_config",
                   "label2id",
                   "max_sequence_length",
                   kExportedTokenizer,
                   "output_attentions",
                   "output_hidden_states",
                   "prefix",
                   "pretraining_tp",
                   "problem_type",
                   "return_dict",
                   "task_specific_params",
                   "tie_encoder_decoder",
                   "tokenizer_class",
                   "torch_dtype",
                   "torchscript",
                   "transformers.js_config",
                   "transformers_version",
                   "unsloth_fixed",
                   "unsloth_version",
                   "use_bfloat16",
                   "use_cache",
                   "tf_legacy_loss",
                   "cross_attention_hidden_size"});
  reader.harmless({"bad_words_ids",
                   "begin_suppress_tokens",
                   "decoder_start_token_id",
                   "diversity_penalty",
                   "do_sample",
                   "early_stopping",
                   "encoder_no_repeat_ngram_size",
                   "exponential_decay_length_penalty",
                   "forced_bos_token_id",
                   "forced_eos_token_id",
                   "length_penalty",
                   "max_length",
                   "max_new_tokens",
                   "min_length",
                   "no_repeat_ngram_size",
                   "num_beam_groups",
                   "num_beams",
                   "num_return_sequences",
                   "output_scores",
                   "pad_token_id",
                   "remove_invalid_values",
                   "repetition_penalty",
                   "return_dict_in_generate",
                   "sep_token_id",
                   "suppress_tokens",
                   "temperature",
                   "top_k",
                   "top_p",
                   "typical_p"});
}

}  // namespace

void check_common_options(ConfigReader& reader, bool encoder_decoder) {
  check_computation(reader, encoder_decoder);
  check_layer_types(reader);
  pass_over(reader);
}

}  // namespace mpzero::model
