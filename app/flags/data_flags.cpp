#include "app/flags/training_flags.hpp"
#include "app/flags/validation_data.hpp"

namespace mpzero {
namespace {

Choice document_mask() {
  return {
      .choices = {"auto", "true", "false"},
      .alone = "true",
      .set = [](Settings& settings,
                size_t chosen) { settings.document_mask = chosen == 0 ? std::nullopt : std::optional(chosen == 1); },
      .get = [](const Settings& settings) -> std::optional<size_t> {
        if (!settings.document_mask) return 0;
        return *settings.document_mask ? 1 : 2;
      }};
}

}  // namespace

FlagGroup data_flags() {
  return {
      "Data",
      {{.name = "train_data",
        .value = Text{field<&Settings::train_data>},
        .help = "token file from app/prepare_data.py, or a mixture FILE:WEIGHT,FILE:WEIGHT",
        .unit = "FILE",
        .required = true},
       {.name = "validation_data",
        .value = Custom{.read = read_validation_data, .show = show_validation_data},
        .help =
            "validation token file, or FILE,FILE or NAME=FILE,NAME=FILE for one loss per file and their mean; prefix a "
            "single path that contains = with ./",
        .unit = "FILE",
        .default_text = "no validation"},
       {.name = "dataset",
        .value = Text{field<&Settings::dataset>},
        .help = "dataset that the scripts prepare if --train_data is missing: Hugging Face name or path",
        .unit = "NAME"},
       {.name = "dataset_config_name",
        .value = Text{field<&Settings::dataset_config_name>},
        .help = "configuration of a Hugging Face dataset, e.g. en",
        .unit = "NAME"},
       {.name = "local_dataset",
        .value = Boolean{field<&Settings::local_dataset>},
        .help = "whether --dataset is a local file or folder",
        .default_text = "true if it exists"},
       {.name = "tokenizer",
        .value = Text{field<&Settings::tokenizer>},
        .help = "tokenizer that the scripts prepare --dataset with: Hugging Face name, path or bytes",
        .unit = "NAME",
        .default_text = "Qwen/Qwen3-0.6B"},
       {.name = "seq_length",
        .value = Integer{.field = field<&Settings::seq_length>, .minimum = 1},
        .help = "tokens per sequence",
        .unit = "TOKENS",
        .recorded = Recorded{.key = "seq_length"}},
       {.name = "source_length",
        .value = Integer{.field = field<&Settings::source_length>, .minimum = 0},
        .help = "tokens of each sequence that the encoder (T5) reads; the rest is the target",
        .unit = "TOKENS",
        .default_text = "none: no encoder",
        .recorded = Recorded{.key = "source_length"}},
       {.name = "document_mask",
        .value = document_mask(),
        .help = "restrict attention to each document and restart its positions at 0: true, false, or auto (only in "
                "packed token files)",
        .recorded = Recorded{.key = "document_mask"}},
       {.name = "shuffle",
        .value = Boolean{field<&Settings::shuffle>},
        .help = "reshuffle the sequences each epoch",
        .recorded = Recorded{.key = "shuffle"}},
       {.name = "seed",
        .value = Unsigned{field<&Settings::seed>},
        .help = "random seed for weights, shuffling and dropout"}}};
}

}  // namespace mpzero
