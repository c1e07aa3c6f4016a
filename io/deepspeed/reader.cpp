#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "base/words.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/deepspeed/checkpoint.hpp"
#include "io/deepspeed/descriptions.hpp"
#include "io/deepspeed/folder.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/deepspeed/rank_file.hpp"
#include "io/deepspeed/without_zero.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

using pickle::Kind;
using pickle::Value;

// Upper bound on the number of ranks.
constexpr int64_t kMaxRanks = 1 << 20;

// Returns the name of the file that exists. Throws if both files or neither file exist.
std::string only_one(const DeepSpeedFolder& files, const std::string& first, const std::string& second) {
  const bool has_first = files.holds(first);
  const bool has_second = files.holds(second);
  if (has_first && has_second) {
    throw_incomplete(
        "{} and {} are in the same folder, which therefore contains files from two runs; delete the files of the older "
        "run",
        files.path_of(first).string(), second);
  }
  if (!has_first && !has_second) {
    throw_incomplete("{} and {} are missing, so the checkpoint is incomplete; {}", files.path_of(first).string(),
                     second, kChooseAnother);
  }
  return has_first ? first : second;
}

bool is_empty(const Value& value) {
  if (value.is_none()) return true;
  return value.kind() == Kind::kDict ? value.entries().empty() : value.elements().empty();
}

int64_t not_negative(const Value& value) {
  if (value.integer() < 0) value.throw_unexpected("a number of at least 0");
  return value.integer();
}

// Returns the number of weight updates recorded in the model states.
int64_t updates_of(const Value& model) {
  const int64_t updates = not_negative(model.at("global_steps")) - not_negative(model.at("skipped_steps"));
  if (updates < 0) model.at("skipped_steps").throw_unexpected("at most global_steps");
  return updates;
}

// Returns true if the run's ds_config enables the "bf16" or "fp16" section.
bool is_enabled(const Value& model, const char* type) {
  const auto config = model.find("ds_config");
  if (!config || config->kind() != Kind::kDict) return false;
  const auto section = config->find(type);
  if (!section || section->kind() != Kind::kDict) return false;
  const auto enabled = section->find("enabled");
  return enabled && enabled->kind() == Kind::kBool && enabled->boolean();
}

bool has_zenflow(const Value& model) {
  const auto config = model.find("ds_config");
  if (!config || config->kind() != Kind::kDict) return false;
  const auto zero = config->find("zero_optimization");
  if (!zero || zero->kind() != Kind::kDict) return false;
  const auto zenflow = zero->find("zenflow");
  return zenflow && !zenflow->is_none();
}

// Returns the common prefix of the parameter names, for example "module." of a wrapped model, or an empty string.
std::string common_prefix(const std::vector<DeepSpeedLayout::Group>& groups,
                          const std::vector<StoredCheckpoint::Alias>& aliases) {
  std::vector<std::string_view> names;
  for (const DeepSpeedLayout::Group& group : groups) {
    for (const ParameterSpec& parameter : group.parameters) names.emplace_back(parameter.name);
  }
  for (const StoredCheckpoint::Alias& alias : aliases) names.emplace_back(alias.name);
  const auto embedding = std::ranges::find_if(
      names, [](std::string_view name) { return name.ends_with(std::string(".") + kEmbeddingWeight); });
  if (embedding == names.end()) return "";
  const std::string_view prefix = embedding->substr(0, embedding->size() - std::string_view(kEmbeddingWeight).size());
  const bool everywhere = std::ranges::all_of(names, [&](std::string_view name) { return name.starts_with(prefix); });
  return everywhere ? std::string(prefix) : "";
}

std::vector<DeepSpeedLayout::Group> read_groups(const Value& model, const DeepSpeedPartition& partition,
                                                const fs::path& file) {
  std::vector<DeepSpeedLayout::Group> groups;
  for (const Value& of_group : model.at("param_shapes").elements()) {
    DeepSpeedLayout::Group& group = groups.emplace_back();
    for (const auto& [name, shape] : of_group.entries()) group.parameters.push_back({name, shape.integers()});
  }
  if (partition.paddings.empty()) return groups;
  if (partition.paddings.size() != groups.size()) {
    throw_damaged(file, "the number of parameter groups differs from the number in the optimizer file");
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    groups[g].paddings = partition.paddings[g];
    const bool fit = groups[g].paddings.size() == groups[g].parameters.size() &&
                     std::all_of(groups[g].paddings.begin(), groups[g].paddings.end(),
                                 [](int64_t padding) { return padding >= 0 && padding < (1 << 20); });
    if (!fit) throw_damaged(file, "the parameters do not match the optimizer's param_alignment_paddings");
  }
  return groups;
}

class DeepSpeedCheckpoint final : public StoredCheckpoint {
 public:
  explicit DeepSpeedCheckpoint(std::shared_ptr<const OpenFolder> opened)
      : files_(std::move(opened)),
        folder_(files_.folder().path()),
        model_file_(files_.open(only_one(files_, deepspeed_model_file(2, 0), deepspeed_model_file(3, 0)))),
        model_(*model_file_) {
    const Value root = model_.root();
    if (is_without_zero(root)) {
      read_without_zero(root);
    } else {
      read_zero(root);
    }
    parameters_ = layout_->parameters();
    if (parameters_.empty()) throw_damaged(model_.path(), "the file lists no parameters");
    rank_files_.resize(static_cast<size_t>(layout_->ranks()));
    read_progress(root);
    check_complete();
  }

  const fs::path& folder() const override { return folder_; }
  const RunRecord& run() const override {
    static const RunRecord kNotKnown;
    return files_.manifest() ? files_.manifest()->run : kNotKnown;
  }
  const TrainingProgress& progress() const override { return progress_; }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  std::span<const Alias> aliases() const override { return aliases_; }
  bool made_by_mpzero() const override { return made_by_mpzero_; }
  std::optional<double> next_lr() const override { return next_lr_; }
  std::span<const std::string> warnings() const override { return warnings_; }
  void verify_what_was_read(ProcessGroup& group) const override;
  void verify() const override;

 private:
  void read_values(const ParameterSpec& parameter, StateKind kind, int64_t begin, std::span<float> out) const override;
  void read_zero(const Value& root) {
    first_optimizer_file_ = only_one(files_, deepspeed_optimizer_file(true, 0), deepspeed_optimizer_file(false, 0));
    bf16_ = first_optimizer_file_ == deepspeed_optimizer_file(true, 0);
    const DeepSpeedPartition partition = read_deepspeed_partition(*files_.open(first_optimizer_file_));
    check_supported(root, partition);
    for (const auto& [name, holder] : root.at("shared_params").entries()) aliases_.push_back({name, holder.text()});
    set_layout(read_groups(root, partition, model_.path()), partition.stage, static_cast<int>(partition.ranks));
  }

  void read_without_zero(const Value& root) {
    for (const bool is_bf16 : {true, false}) {
      const std::string other = deepspeed_optimizer_file(is_bf16, 0);
      if (!files_.holds(other)) continue;
      throw_incomplete(
          "{} was saved without ZeRO, but {} was saved with ZeRO: the folder contains files from two runs; {}",
          model_.path().string(), other, kChooseAnother);
    }
    first_optimizer_file_ = model_.path().filename();
    bf16_ = is_enabled(root, "bf16");
    check_supported(root, {.stage = 0, .ranks = 1, .paddings = {}});
    StatesWithoutZero states = read_states_without_zero(root, model_.path());
    if (states.has_own_masters) {
      check_masters_are_weights(model_, states);
    } else {
      warnings_.push_back(
          fmt::format("{} has no parameter names for the optimizer states; mpzero assumes the model's parameter order.",
                      model_.path().string()));
    }
    aliases_ = std::move(states.aliases);
    set_layout(std::move(states.groups), 0, 1);
  }

  void set_layout(std::vector<DeepSpeedLayout::Group> groups, int stage, int ranks) {
    if (const std::string prefix = common_prefix(groups, aliases_); !prefix.empty()) {
      warnings_.push_back(fmt::format("{}: removed the prefix {:.100} from all names.", folder_.string(), prefix));
      for (DeepSpeedLayout::Group& group : groups) {
        for (ParameterSpec& parameter : group.parameters) parameter.name.erase(0, prefix.size());
      }
      for (Alias& alias : aliases_) {
        alias.name.erase(0, prefix.size());
        if (alias.parameter.starts_with(prefix)) alias.parameter.erase(0, prefix.size());
      }
    }
    layout_.emplace(std::move(groups), stage, ranks, model_.path().string());
  }

  void check_supported(const Value& root, const DeepSpeedPartition& partition) const {
    const auto refuse = [&](const std::string& what) {
      throw_user_error("{}: {}; convert it with DeepSpeed's zero_to_fp32.py and pass the result as --init_from",
                       model_.path().string(), what);
    };
    if (partition.ranks < 1 || partition.ranks > kMaxRanks) {
      throw_damaged(files_.path_of(first_optimizer_file_), fmt::format("the file records {} ranks", partition.ranks));
    }
    if ((model_.path().filename() == deepspeed_model_file(3, 0)) != (partition.stage == 3)) {
      throw_incomplete(
          "{} has ZeRO stage {}, but {} has a different stage: the folder contains files from two runs; {}",
          files_.path_of(first_optimizer_file_).string(), partition.stage, model_.path().filename().string(),
          kChooseAnother);
    }
    if (const auto count = root.find("mp_world_size"); count && count->kind() == Kind::kInt && count->integer() != 1) {
      refuse(
          fmt::format("the checkpoint was saved with tensor parallelism over {} ranks, which mpzero does not support",
                      count->integer()));
    }
    if (const auto frozen = root.find("frozen_param_shapes"); frozen && !is_empty(*frozen)) {
      refuse(fmt::format("parameter {:.100} was frozen, which mpzero does not support in DeepSpeed checkpoints",
                         frozen->entries()[0].first));
    }
  }

  void read_progress(const Value& root) {
    progress_.step = updates_of(root);
    counts_otherwise_ = has_zenflow(root);
    if (const auto samples = root.find("global_samples")) progress_.sequences_seen = not_negative(*samples);
    progress_.dtype = bf16_ ? "bf16" : is_enabled(root, "fp16") ? "fp16" : "fp32";
    progress_.zero_stage = layout_->stage();
    if (const auto config = root.find("ds_config"); config && config->kind() == Kind::kDict) {
      progress_.run_config_json = config->to_json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    if (const auto names = root.find("buffer_names"); names && !is_empty(*names)) {
      warnings_.push_back(fmt::format("{} has buffers ({:.100}, ...), which are not trained and are ignored.",
                                      model_.path().string(), names->elements()[0].text()));
    }
    DeepSpeedRankFile& first = rank_file(0);
    const auto& groups = first.param_groups();
    if (!groups.empty()) next_lr_ = groups[0].lr;
    for (const DeepSpeedParamGroup& group : groups) {
      if (group.weight_decay == groups[0].weight_decay) continue;
      warnings_.push_back(
          fmt::format("{} was trained with weight decay {} for some parameters and {} for others; this run applies "
                      "--weight_decay to all parameters that do not match --no_decay.",
                      folder_.string(), *groups[0].weight_decay, group.weight_decay.value_or(0)));
      break;
    }
    progress_.settings_json = shared_settings(groups);
    if (const auto own = root.find(kClientStateKey)) read_own_state(*own);
    adamw_updates_ = progress_.step;
    if (!made_by_mpzero_ && !counts_otherwise_ && first.optimizer_step() == progress_.step + 1) count_one_more();
  }

  // DeepSpeed counts one extra AdamW update during initialization before version 0.13.5, and in bf16 or fp16 without
  // ZeRO.
  void count_one_more() {
    adamw_updates_ = progress_.step + 1;
    if (layout_->stage() == 0) {
      warnings_.push_back(
          fmt::format("{} is at step {}, but records {} AdamW updates, which is normal without ZeRO in bf16 or fp16; "
                      "AdamW resumes with an update count of {}.",
                      folder_.string(), progress_.step, adamw_updates_, progress_.step));
      return;
    }
    warnings_.push_back(fmt::format(
        "{} is at step {}, but every rank records {} AdamW updates: DeepSpeed versions before 0.13.5 count one "
        "extra update, or the AdamW states are from a save one step later; the run resumes from step {}.",
        folder_.string(), progress_.step, adamw_updates_, progress_.step));
  }

  void read_own_state(const Value& own) {
    // DeepSpeed never writes a manifest. Complete mpzero checkpoints always contain one.
    made_by_mpzero_ = files_.manifest() || is_of_save(own, progress_.sequences_seen);
    if (made_by_mpzero_ && !files_.manifest()) throw_no_manifest(folder_);
    if (made_by_mpzero_) return read_client_state(own, progress_);
    // DeepSpeed resumed from an mpzero checkpoint and saved this one. The recorded model configuration still applies,
    // but the data position is outdated.
    progress_.model_config_json = own.at("model_config").text();
  }

  // Detects missing files early.
  void check_complete() const {
    for (int rank = 0; rank < layout_->ranks(); ++rank) {
      require_file(optimizer_file(rank));
      if (layout_->stage() == 3) require_file(deepspeed_model_file(3, rank));
    }
    if (layout_->stage() != 0 && files_.holds(optimizer_file(layout_->ranks()))) {
      throw_incomplete("{} does not belong to this checkpoint of {}: the folder contains files from two runs; {}",
                       files_.path_of(optimizer_file(layout_->ranks())).string(), counted(layout_->ranks(), "rank"),
                       kChooseAnother);
    }
  }

  void require_file(const std::string& name) const {
    if (!files_.holds(name)) {
      throw_incomplete("{} is missing, so the checkpoint of {} is incomplete; {}", files_.path_of(name).string(),
                       counted(layout_->ranks(), "rank"), kChooseAnother);
    }
    if (!files_.manifest() || files_.manifest()->find(name) != nullptr) return;
    throw_damaged(folder_ / kManifestName, fmt::format("the file does not list {}, which a checkpoint of {} requires",
                                                       name, counted(layout_->ranks(), "rank")));
  }

  std::string optimizer_file(int rank) const {
    return layout_->stage() == 0 ? first_optimizer_file_ : deepspeed_optimizer_file(bf16_, rank);
  }

  DeepSpeedRankFile& rank_file(int rank) const {
    const std::scoped_lock lock(opening_);
    auto& file = rank_files_[static_cast<size_t>(rank)];
    if (!file) file = std::make_unique<DeepSpeedRankFile>(files_.open(optimizer_file(rank)), *layout_, rank);
    return *file;
  }

  // File index and TorchZipReader::checksums_of_what_was_read() for each file that was read.
  using ReadLines = std::pair<size_t, std::vector<std::string>>;
  std::vector<ReadLines> checksums_of_what_was_read() const {
    std::vector<ReadLines> lines;
    for (size_t file = 0; file < rank_files_.size(); ++file) {
      if (rank_files_[file]) lines.emplace_back(file, rank_files_[file]->archive().checksums_of_what_was_read());
    }
    return lines;
  }

  // Throws unless the rank's model states and AdamW states have the same update counts as those of rank 0.
  void check_steps_of(int rank) const {
    if (layout_->stage() == 3 && rank > 0) check_steps(deepspeed_model_file(3, rank));
    check_steps(rank_file(rank), optimizer_file(rank));
  }

  void check_steps(const std::string& name) const {
    const std::unique_ptr<TorchZipReader> other = files_.open(name);
    const int64_t found = updates_of(other->root());
    if (found == progress_.step) return;
    throw_damaged(
        files_.path_of(name),
        fmt::format(
            "the file was saved after {} updates, but {} was saved after {}: the files are from different saves", found,
            model_.path().filename().string(), progress_.step));
  }

  void check_steps(const DeepSpeedRankFile& file, const std::string& name) const {
    const int64_t found = file.optimizer_step().value_or(0);
    if (found == adamw_updates_ || counts_otherwise_) return;
    if (adamw_updates_ != progress_.step) {
      throw_damaged(
          files_.path_of(name),
          fmt::format("the file records {} AdamW updates, but {} records {}: the files are from different saves", found,
                      first_optimizer_file_, adamw_updates_));
    }
    // If DeepSpeed discards the AdamW states on load, the AdamW step count restarts at 0, but the run's step count does
    // not. The result looks like a file from an older save.
    throw_damaged(
        files_.path_of(name),
        fmt::format("the file records {} AdamW updates, but {} records step {}: the files are from different saves{}",
                    found, model_.path().filename().string(), progress_.step,
                    found < progress_.step ? " (or DeepSpeed resumed with load_optimizer_states=False; in this case, "
                                             "run DeepSpeed's zero_to_fp32.py and pass the result as --init_from)"
                                           : ""));
  }

  // Compares the update counts in DeepSpeed's files. mpzero checkpoints have a manifest instead.
  void check_one_save(ProcessGroup& group) const {
    run_on_all_ranks(group, [&] {
      for (int rank = group.rank(); rank < layout_->ranks(); rank += group.world_size()) check_steps_of(rank);
      for (size_t rank = 0; rank < rank_files_.size(); ++rank) {
        if (rank_files_[rank]) check_steps(*rank_files_[rank], optimizer_file(static_cast<int>(rank)));
      }
      files_.check_unchanged();
    });
    const std::map<std::string, std::string> checksums = check_same_files(folder_, files_.fingerprints(), group);
    run_on_all_ranks(group, [&] { check_no_twins(checksums); });
  }

  // DeepSpeed's files do not record their rank, but each rank has different weights.
  void check_no_twins(const std::map<std::string, std::string>& checksums) const {
    if (files_.manifest()) return;
    std::map<std::string, std::string> names;  // key: checksum
    for (int rank = 0; rank < layout_->ranks() && layout_->holds_weights(rank); ++rank) {
      const std::string name = optimizer_file(rank);
      const auto [other, is_new] = names.emplace(checksums.at(name), name);
      if (is_new) continue;
      throw_damaged(files_.path_of(name),
                    fmt::format("the file is identical to {}, so one rank's file was overwritten or copied twice",
                                other->second));
    }
  }

  DeepSpeedFolder files_;
  fs::path folder_;
  std::unique_ptr<TorchZipReader> model_file_;
  TorchZipReader& model_;
  std::string first_optimizer_file_;  // the model file without ZeRO
  bool bf16_ = false;
  std::optional<DeepSpeedLayout> layout_;
  std::vector<ParameterSpec> parameters_;
  std::vector<Alias> aliases_;
  TrainingProgress progress_;
  bool made_by_mpzero_ = false;
  int64_t adamw_updates_ = 0;      // AdamW step count of every rank
  bool counts_otherwise_ = false;  // ZenFlow updates only some columns per step, so AdamW's step count differs
  std::optional<double> next_lr_;
  std::vector<std::string> warnings_;
  mutable std::mutex opening_;
  mutable std::vector<std::unique_ptr<DeepSpeedRankFile>> rank_files_;
};

void DeepSpeedCheckpoint::read_values(const ParameterSpec& parameter, StateKind kind, int64_t begin,
                                      std::span<float> out) const {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  layout_->visit(parameter.name, begin, end, [&](const DeepSpeedLayout::Slice& slice) {
    rank_file(slice.rank)
        .read(slice.group, kind, slice.offset,
              out.subspan(static_cast<size_t>(slice.begin - begin), static_cast<size_t>(slice.count)));
  });
}

void DeepSpeedCheckpoint::verify_what_was_read(ProcessGroup& group) const {
  check_one_save(group);
  const auto of_ranks = all_gather(group, checksums_of_what_was_read());
  run_on_all_ranks(group, [&] {
    std::vector<std::vector<std::string>> lines_of(rank_files_.size());
    for (const std::vector<ReadLines>& of_rank : of_ranks) {
      for (const auto& [file, lines] : of_rank) {
        if (file >= lines_of.size()) throw_failure("the ranks read different checkpoints");
        lines_of[file].insert(lines_of[file].end(), lines.begin(), lines.end());
      }
    }
    for (size_t file = 0; file < lines_of.size(); ++file) {
      if (lines_of[file].empty() || static_cast<int>(file % static_cast<size_t>(group.world_size())) != group.rank()) {
        continue;
      }
      rank_file(static_cast<int>(file)).archive().verify(lines_of[file]);
    }
  });
}

void DeepSpeedCheckpoint::verify() const {
  model_.verify();
  for (int rank = 0; rank < layout_->ranks(); ++rank) {
    rank_file(rank).archive().verify();
    if (layout_->stage() == 3 && rank > 0) files_.open(deepspeed_model_file(3, rank))->verify();
  }
  SingleProcess alone;
  check_one_save(alone);
}

}  // namespace

std::unique_ptr<StoredCheckpoint> open_deepspeed_checkpoint(std::shared_ptr<const OpenFolder> folder) {
  return std::make_unique<DeepSpeedCheckpoint>(std::move(folder));
}

}  // namespace mpzero::io
