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
  return {"Data",
          {{.name = "train_data",
            .value = Text{field<&Settings::train_data>},
            .help = "training token file from app/prepare_data.py, or a weighted mixture FILE:WEIGHT,FILE:WEIGHT",
            .unit = "FILE",
            .required = true},
           {.name = "validation_data",
            .value = Custom{.read = read_validation_data, .show = show_validation_data},
            .help = "validation token file. FILE,FILE or NAME=FILE,NAME=FILE reports one loss per file and the mean "
                    "loss. If a single path contains =, prefix the path with ./",
            .unit = "FILE",
            .default_text = "no validation"},
           {.name = "dataset",
            .value = Text{field<&Settings::dataset>},
            .help = "dataset that the launch scripts tokenize if --train_data does not exist: Hugging Face name or "
                    "path",
            .unit = "NAME"},
           {.name = "dataset_config_name",
            .value = Text{field<&Settings::dataset_config_name>},
            .help = "configuration name of a Hugging Face dataset, e.g. en",
            .unit = "NAME"},
           {.name = "local_dataset",
            .value = Boolean{field<&Settings::local_dataset>},
            .help = "treat --dataset as a local file or folder",
            .default_text = "true if the path exists"},
           {.name = "tokenizer",
            .value = Text{field<&Settings::tokenizer>},
            .help = "tokenizer that the launch scripts use for --dataset: Hugging Face name, path or bytes",
            .unit = "NAME",
            .default_text = "Qwen/Qwen3-0.6B"},
           {.name = "seq_length",
            .value = Integer{.field = field<&Settings::seq_length>, .minimum = 1},
            .help = "number of tokens per sequence",
            .unit = "TOKENS",
            .recorded = Recorded{.key = "seq_length"}},
           {.name = "source_length",
            .value = Integer{.field = field<&Settings::source_length>, .minimum = 0},
            .help = "number of encoder input tokens in each sequence (T5); the remaining tokens are the target",
            .unit = "TOKENS",
            .default_text = "none: no encoder",
            .recorded = Recorded{.key = "source_length"}},
           {.name = "document_mask",
            .value = document_mask(),
            .help = "prevent attention across documents and reset position ids at each document: true, false or auto "
                    "(true for packed token files)",
            .recorded = Recorded{.key = "document_mask"}},
           {.name = "shuffle",
            .value = Boolean{field<&Settings::shuffle>},
            .help = "reshuffle the sequences in each epoch",
            .recorded = Recorded{.key = "shuffle"}},
           {.name = "seed",
            .value = Unsigned{field<&Settings::seed>},
            .help = "random seed for weight initialization, shuffling and dropout"}}};
}

}  // namespace mpzero
