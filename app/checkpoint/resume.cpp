#include "app/checkpoint/resume.hpp"

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "app/checkpoint/carried_states.hpp"
#include "app/checkpoint/resume_checks.hpp"
#include "app/checkpoint/resume_choice.hpp"
#include "base/error.hpp"
#include "base/rank_failure.hpp"
#include "io/adapters/checkpoint_with_base.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/damaged.hpp"
#include "io/files/retry.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

// Thrown for a damaged or unfinished checkpoint. The message contains the path and the reason.
class Unusable : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs `work`, which reads a checkpoint. Converts Damaged on all ranks to Unusable.
void read_or_give_up(const std::function<void()>& work) {
  try {
    work();
  } catch (const Damaged& error) {
    if (error.scope() != ErrorScope::kAllRanks) throw;
    throw Unusable(error.what());
  }
}

struct Resumption {
  const RunSetup& setup;
  const std::vector<UnitSpec>& units;
  const ReadStates& read_states;
  WeightsCheck weights_check;
  ProcessGroup& group;
  std::vector<std::string>& warnings;

  bool names_checkpoint() const { return !setup.config.resume_from_checkpoint.empty(); }
};

// Calls `check` on all ranks. Unless the user selected the checkpoint, a UserError also suggests starting a new run.
void refuse_with_remedy(const Resumption& resumption, const std::function<void()>& check) {
  run_on_all_ranks(resumption.group, [&] {
    try {
      check();
    } catch (const Damaged&) {
      throw;
    } catch (const UserError& error) {
      if (resumption.names_checkpoint()) throw;
      std::string sentence = error.what();
      if (sentence.ends_with('.')) sentence.pop_back();
      throw UserError(sentence + start_new_run(resumption.setup.config));
    }
  });
}

// Resumes from one checkpoint. Throws Unusable on all ranks if the checkpoint is damaged. Throws the errors of
// run_on_all_ranks() if the run cannot resume from the checkpoint or a system error occurs. `opened`: set if the folder
// could be opened.
Resumed restore(const fs::path& checkpoint, std::shared_ptr<const io::OpenFolder>& opened,
                const io::RunRecord& of_candidates, const Resumption& resumption) {
  const auto& [setup, units, read_states, weights_check, group, warnings] = resumption;
  std::unique_ptr<io::StoredCheckpoint> stored;
  io::RunRecord run;
  read_or_give_up([&] {
    io::open_on_all_ranks(group, [&] {
      opened = std::make_shared<io::OpenFolder>(checkpoint);
      stored = io::open_checkpoint(opened);
      run = stored->run();
    });
  });
  const bool has_id = !run.id.empty();
  if (!has_id) run = of_candidates;
  refuse_with_remedy(resumption, [&] { check_resumable(*stored, setup, units); });
  read_or_give_up([&] { read_states(*stored); });
  Continuation continuation;
  refuse_with_remedy(resumption, [&] {
    continuation = continue_run(*stored, setup);
    check_unfinished(*stored, setup, continuation);
  });
  for (const std::string& warning : stored->warnings()) warnings.push_back(warning);
  warnings.insert(warnings.end(), continuation.warnings.begin(), continuation.warnings.end());
  return {.checkpoint = checkpoint,
          .config = std::move(continuation.config),
          .position = continuation.position,
          .run = run,
          .checkpoint_has_id = has_id,
          .changes = std::move(continuation.changes),
          .recompute = std::move(continuation.recompute)};
}

// Retries restore() after system errors. If the error persists, the run ends instead of resuming from an older
// checkpoint. All ranks retry together, since they observe the same error.
Resumed restore_patiently(const fs::path& checkpoint, const std::function<Resumed()>& restore_it) {
  std::optional<Resumed> resumed;
  std::exception_ptr of_this_rank;
  try {
    io::retry_reading([&] {
      try {
        resumed = restore_it();
      } catch (const Error& error) {
        if (error.scope() == ErrorScope::kAllRanks) throw;
        of_this_rank = std::current_exception();
      }
    });
  } catch (const Error& error) {
    if (error.system_error() == 0) throw;
    const std::string sentence = fmt::format(
        "cannot read {}: {}; the checkpoint may be intact: fix the error and restart, or pass an older checkpoint with "
        "--resume_from_checkpoint DIR",
        checkpoint.string(), error.what());
    if (const auto* of_hosts = dynamic_cast<const RankFailure*>(&error)) {
      throw RankFailure(sentence, error.scope(), of_hosts->culprits(), error.system_error());
    }
    if (error.exit_code() == kUserErrorExitCode) throw UserError(sentence, error.scope(), error.system_error());
    throw Failure(sentence, error.scope(), error.system_error());
  }
  if (of_this_rank) std::rethrow_exception(of_this_rank);
  return *resumed;
}

// Repeats restore() if another run replaced the checkpoint while it was being read.
Resumed restore_stable(const fs::path& checkpoint, const io::RunRecord& of_candidates, const Resumption& resumption) {
  for (int attempt = 1;; ++attempt) {
    std::shared_ptr<const io::OpenFolder> opened;
    const auto is_last = [&] {
      return !io::replaced_on_any_rank(opened.get(), resumption.group) || attempt == io::kMaxReads;
    };
    try {
      return restore(checkpoint, opened, of_candidates, resumption);
    } catch (const Unusable&) {
      if (is_last()) throw;
    } catch (const Error& error) {
      if (error.scope() != ErrorScope::kAllRanks || is_last()) throw;
    }
    resumption.warnings.push_back(
        fmt::format("{} was replaced by another process while being read; reading it again.", checkpoint.string()));
  }
}

}  // namespace

std::optional<Resumed> resume_with(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                   const ReadStates& read_states, WeightsCheck weights_check, ProcessGroup& group,
                                   std::vector<std::string>& warnings) {
  const RunConfig& config = setup.config;
  const Resumption resumption{setup, units, read_states, weights_check, group, warnings};
  if (config.resume_from_checkpoint == "none") return std::nullopt;
  const ResumeChoices choices = choose_checkpoints(config, group);
  if (choices.folders.empty() && !choices.problem.empty()) throw UserError(choices.problem, ErrorScope::kAllRanks);

  const std::string left_out = choices.left_out.empty() ? "" : " (" + choices.left_out + ")";
  std::string first_problem = without_remedy(choices.problem);
  for (const fs::path& folder : choices.folders) {
    try {
      Resumed resumed = restore_patiently(folder, [&] { return restore_stable(folder, choices.run, resumption); });
      const std::string other_weights =
          problem_of_initial_weights(setup, resumed.run, folder, weights_check, group, warnings);
      if (!other_weights.empty()) {
        throw UserError(other_weights + (resumption.names_checkpoint() ? "" : start_new_run(resumption.setup.config)),
                        ErrorScope::kAllRanks);
      }
      if (!first_problem.empty()) {
        const std::string who =
            choices.problem_of_run.empty() ? ": the run" : ", so its run is unknown: " + io::show_run(resumed.run.id);
        warnings.push_back(fmt::format("{}{} resumes from {}, the newest complete checkpoint{}.", first_problem, who,
                                       folder.string(), left_out));
      }
      return resumed;
    } catch (const Unusable& error) {
      if (config.resume_strict || (choices.folders.size() == 1 && left_out.empty())) {
        throw UserError(error.what(), ErrorScope::kAllRanks);
      }
      if (first_problem.empty()) {
        first_problem = without_remedy(error.what());
      } else {
        warnings.push_back(without_remedy(error.what()) + ".");
      }
    }
  }
  if (first_problem.empty()) return std::nullopt;
  throw UserError(fmt::format("{}; the run has no other complete checkpoint{}; pass a checkpoint with "
                              "--resume_from_checkpoint, or start a new run with --overwrite",
                              first_problem, left_out),
                  ErrorScope::kAllRanks);
}

std::optional<Resumed> resume_run(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                  parallel::ZeroEngine& engine, ProcessGroup& group,
                                  std::vector<std::string>& warnings) {
  // If --init_from is a folder of checkpoints, `latest` may have changed since the run started.
  const std::string base = setup.model.lora && !setup.init_from_latest ? setup.config.init_from : "";
  const auto fill = [&](const io::StoredCheckpoint& stored) {
    // Collect these warnings separately: they are discarded if the checkpoint is damaged or must be read again.
    std::vector<std::string> about_carried;
    const std::vector<parallel::Carried> carried = read_carried(stored, setup, units, engine, group, about_carried);
    const io::CheckpointWithBase whole(stored, base, group);
    engine.restore([&](size_t unit, StateKind kind, int64_t begin,
                       std::span<float> out) { whole.read_unit(units[unit], kind, begin, out); },
                   group, carried);
    whole.verify_what_was_read(group);
    warnings.insert(warnings.end(), about_carried.begin(), about_carried.end());
  };
  std::optional<Resumed> resumed = resume_with(setup, units, fill, WeightsCheck::kContent, group, warnings);
  // The weights were compared by their hash, so new checkpoints refer to the base model's current folder.
  if (resumed && !base.empty() && !resumed->run.init_from_hash.empty()) {
    resumed->run.init_from = absolute_init_from(base);
  }
  return resumed;
}

}  // namespace mpzero
