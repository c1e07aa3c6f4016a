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
            .help = "token file of app/prepare_data.py to train on, or a mixture: FILE:WEIGHT,FILE:WEIGHT",
            .unit = "FILE",
            .required = true},
           {.name = "validation_data",
            .value = Custom{.read = read_validation_data, .show = show_validation_data},
            .help = "token file to validate on, or several with a loss each, and their mean: FILE,FILE or "
                    "NAME=FILE,NAME=FILE; a single path with = before any / is written ./PATH",
            .unit = "FILE",
            .default_text = "no validation"},
           {.name = "dataset",
            .value = Text{field<&Settings::dataset>},
            .help = "the text that the scripts prepare when --train_data is missing: a Hugging Face name or a path",
            .unit = "NAME"},
           {.name = "dataset_config_name",
            .value = Text{field<&Settings::dataset_config_name>},
            .help = "the data set's configuration, e.g. en",
            .unit = "NAME"},
           {.name = "local_dataset",
            .value = Boolean{field<&Settings::local_dataset>},
            .help = "--dataset is a local folder or file",
            .default_text = "if it exists"},
           {.name = "tokenizer",
            .value = Text{field<&Settings::tokenizer>},
            .help = "the tokenizer that the scripts prepare with: a Hugging Face name, a path, or bytes",
            .unit = "NAME",
            .default_text = "Qwen/Qwen3-0.6B"},
           {.name = "seq_length",
            .value = Integer{.field = field<&Settings::seq_length>, .minimum = 1},
            .help = "tokens in a sequence",
            .unit = "TOKENS",
            .recorded = Recorded{.key = "seq_length"}},
           {.name = "source_length",
            .value = Integer{.field = field<&Settings::source_length>, .minimum = 0},
            .help = "of the tokens in a sequence, those of the source, which an encoder (T5) reads; the others are the "
                    "target",
            .unit = "TOKENS",
            .default_text = "the model has no encoder",
            .recorded = Recorded{.key = "source_length"}},
           {.name = "document_mask",
            .value = document_mask(),
            .help = "whether tokens attend only within their document, whose positions start at 0: auto: in packed "
                    "token files; true: in all; false: in none",
            .recorded = Recorded{.key = "document_mask"}},
           {.name = "shuffle",
            .value = Boolean{field<&Settings::shuffle>},
            .help = "another order of the sequences in each epoch",
            .recorded = Recorded{.key = "shuffle"}},
           {.name = "seed", .value = Unsigned{field<&Settings::seed>}, .help = "of the weights, shuffle and dropout"}}};
}

}  // namespace mpzero
