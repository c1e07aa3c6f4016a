#include "app/flags/training_flags.hpp"

namespace mpzero {

FlagGroup checkpoint_flags() {
  return {"Checkpoints",
          {{.name = "checkpoint_dir",
            .value = Text{field<&Settings::checkpoint_dir>},
            .help = "output folder for checkpoints and metrics",
            .unit = "DIR"},
           {.name = "checkpoint_freq",
            .value = Integer{.field = field<&Settings::checkpoint_freq>},
            .help = "number of steps between checkpoints; 0 saves only at the end",
            .unit = "STEPS",
            .trainer = TrainersFlag{.name = "save_steps"}},
           {.name = "save_strategy",
            .value = choice<SaveStrategy>(
                field<&Settings::save_strategy>,
                {{"no", SaveStrategy::kNo}, {"steps", SaveStrategy::kSteps}, {"epoch", SaveStrategy::kEpoch}}),
            .help = "when to save checkpoints, as in the Trainer: steps (every --checkpoint_freq steps and at the "
                    "end), epoch (after each pass over --train_data and at the end) or no (only when the run is "
                    "stopped early)",
            .trainer = TrainersFlag{}},
           {.name = "keep_last",
            .value = Integer{.field = field<&Settings::keep_last>},
            .help = "number of most recent complete checkpoints of this run to keep; 0 keeps all",
            .trainer = TrainersFlag{.name = "save_total_limit"}},
           {.name = "save_final",
            .value = Boolean{field<&Settings::save_final>},
            .help = "save a checkpoint after the last step; a run that is stopped early always saves"},
           {.name = "async_save",
            .value = Boolean{field<&Settings::async_save>},
            .help = "save checkpoints in the background if a copy of the training state fits in host memory"},
           {.name = "checkpoint_format",
            .value = choice<bool>(field<&Settings::deepspeed_format>, {{"hdf5", false}, {"deepspeed", true}}),
            .help = "checkpoint file format: hdf5, or deepspeed (readable by DeepSpeed and its zero_to_fp32.py)"},
           {.name = "resume_from_checkpoint",
            .value = Text{field<&Settings::resume_from_checkpoint>},
            .help = "checkpoint to resume from. true: newest checkpoint in --checkpoint_dir (error if there is none); "
                    "none or false: start a new run",
            .unit = "DIR",
            .default_text = "newest checkpoint in --checkpoint_dir, if any; none with --overwrite",
            .trainer = TrainersFlag{}},
           {.name = "allow_changed",
            .value = Names{.field = field<&Settings::allow_changed>, .remark = "; example: rope_theta,rms_norm_eps"},
            .help = "settings that may differ from the checkpoint's: rope_theta, rope_scaling, rms_norm_eps (e.g. to "
                    "extend the context) and tokenizer (of the token files)",
            .unit = "KEYS",
            .default_text = "none"},
           {.name = "overwrite",
            .value = Boolean{field<&Settings::overwrite>},
            .help = "move files of other runs in --checkpoint_dir to old-<n>. Without this flag, a new run fails if "
                    "the folder contains checkpoints of other runs"},
           {.name = "resume_strict",
            .value = Boolean{field<&Settings::resume_strict>},
            .help = "if the newest checkpoint is damaged, fail instead of resuming from an older one"}}};
}

}  // namespace mpzero
