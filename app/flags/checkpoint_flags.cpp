#include "app/flags/training_flags.hpp"

namespace mpzero {

FlagGroup checkpoint_flags() {
  return {
      "Checkpoints",
      {{.name = "checkpoint_dir", .value = Text{field<&Settings::checkpoint_dir>}, .help = "", .unit = "DIR"},
       {.name = "checkpoint_freq",
        .value = Integer{.field = field<&Settings::checkpoint_freq>},
        .help = "steps between checkpoints; 0: only at the end",
        .unit = "STEPS",
        .trainer = TrainersFlag{.name = "save_steps"}},
       {.name = "save_strategy",
        .value = choice<SaveStrategy>(
            field<&Settings::save_strategy>,
            {{"no", SaveStrategy::kNo}, {"steps", SaveStrategy::kSteps}, {"epoch", SaveStrategy::kEpoch}}),
        .help = "as the Trainer has it: steps: as --checkpoint_freq says, and at the end; epoch: whenever --train_data "
                "has been seen, and at the end; no: never, as --checkpoint_freq 0 --save_final=false",
        .trainer = TrainersFlag{}},
       {.name = "keep_last",
        .value = Integer{.field = field<&Settings::keep_last>},
        .help = "whole checkpoints of this run to keep, those saved last; 0: all",
        .trainer = TrainersFlag{.name = "save_total_limit"}},
       {.name = "save_final",
        .value = Boolean{field<&Settings::save_final>},
        .help = "save the state after the last step; a run that is stopped before it saves all the same"},
       {.name = "async_save",
        .value = Boolean{field<&Settings::async_save>},
        .help = "write a copy of the training state while training continues, where host memory has room for the copy"},
       {.name = "checkpoint_format",
        .value = choice<bool>(field<&Settings::deepspeed_format>, {{"hdf5", false}, {"deepspeed", true}}),
        .help = "hdf5, or deepspeed: files that DeepSpeed and its zero_to_fp32.py read"},
       {.name = "resume_from_checkpoint",
        .value = Text{field<&Settings::resume_from_checkpoint>},
        .help =
            "a checkpoint folder; true: the newest of --checkpoint_dir, which must exist; none or false: start anew",
        .unit = "DIR",
        .default_text = "resume from --checkpoint_dir if it holds a checkpoint, none with --overwrite",
        .trainer = TrainersFlag{}},
       {.name = "allow_changed",
        .value = Names{.field = field<&Settings::allow_changed>, .remark = "; write it as rope_theta,rms_norm_eps"},
        .help =
            "keys of the model that may differ from the checkpoint's, of rope_theta, rope_scaling and rms_norm_eps, "
            "as when a context is extended; and tokenizer, where the token files may be of another one than the "
            "model, or than those that the run had before",
        .unit = "KEYS",
        .default_text = "none"},
       {.name = "overwrite",
        .value = Boolean{field<&Settings::overwrite>},
        .help = "move what another run has left in --checkpoint_dir into a folder old-<n> there; without it a new run "
                "does not start among another's checkpoints"},
       {.name = "resume_strict",
        .value = Boolean{field<&Settings::resume_strict>},
        .help = "stop where the newest checkpoint is damaged instead of resuming from the one before"}}};
}

}  // namespace mpzero
