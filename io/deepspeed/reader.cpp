#include "io/deepspeed/reader.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/parameter_names.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/deepspeed/client_state.hpp"
#include "io/deepspeed/file_names.hpp"
#include "io/deepspeed/folder.hpp"
#include "io/deepspeed/layout.hpp"
#include "io/deepspeed/rank_file.hpp"
#include "io/deepspeed/without_zero.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

using pickle::Kind;
using pickle::Value;

// More than any cluster has.
constexpr int64_t kMaxRanks = 1 << 20;

// The one of two files that is there.
std::string only_one(const DeepSpeedFolder& files, const std::string& first, const std::string& second) {
  const bool has_first = files.holds(first);
  const bool has_second = files.holds(second);
  if (has_first && has_second) {
    throw_incomplete("{} and {} lie side by side, so the folder holds files of two runs: remove those of the older one",
                     files.path_of(first).string(), second);
  }
  if (!has_first && !has_second) {
    throw_incomplete("{} is missing, and so is {}: the checkpoint is not complete; {}", files.path_of(first).string(),
                     second, kChooseAnother);
  }
  return has_first ? first : second;
}

bool is_empty(const Value& value) {
  if (value.is_none()) return true;
  return value.kind() == Kind::kDict ? value.entries().empty() : value.elements().empty();
}

int64_t not_negative(const Value& value) {
  if (value.integer() < 0) value.throw_unexpected("a number from 0 on");
  return value.integer();
}

// The updates of the weights that model states are of.
int64_t updates_of(const Value& model) {
  const int64_t updates = not_negative(model.at("global_steps")) - not_negative(model.at("skipped_steps"));
  if (updates < 0) model.at("skipped_steps").throw_unexpected("no more than global_steps");
  return updates;
}

// Whether the run's ds_config enables "bf16" or "fp16".
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

// What precedes the names of transformers in all of these, as where the model was wrapped or compiled: "module.".
// Empty: nothing, or not the same everywhere.
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
    throw_damaged(file, "it has another number of parameter groups than the optimizer's file");
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    groups[g].paddings = partition.paddings[g];
    const bool fit = groups[g].paddings.size() == groups[g].parameters.size() &&
                     std::all_of(groups[g].paddings.begin(), groups[g].paddings.end(),
                                 [](int64_t padding) { return padding >= 0 && padding < (1 << 20); });
    if (!fit) throw_damaged(file, "its parameters do not fit the optimizer's param_alignment_paddings");
  }
  return groups;
}

}  // namespace

struct DeepSpeedCheckpoint::Impl {
  explicit Impl(std::shared_ptr<const OpenFolder> opened)
      : files(std::move(opened)),
        folder(files.folder().path()),
        model_file(files.open(only_one(files, deepspeed_model_file(2, 0), deepspeed_model_file(3, 0)))),
        model(*model_file) {
    const Value root = model.root();
    if (is_without_zero(root)) {
      read_without_zero(root);
    } else {
      read_zero(root);
    }
    parameters = layout->parameters();
    if (parameters.empty()) throw_damaged(model.path(), "it lists no parameters");
    rank_files.resize(static_cast<size_t>(layout->ranks()));
    read_progress(root);
    check_complete();
  }

  void read_zero(const Value& root) {
    first_optimizer_file = only_one(files, deepspeed_optimizer_file(true, 0), deepspeed_optimizer_file(false, 0));
    bf16 = first_optimizer_file == deepspeed_optimizer_file(true, 0);
    const DeepSpeedPartition partition = read_deepspeed_partition(*files.open(first_optimizer_file));
    check_supported(root, partition);
    for (const auto& [name, holder] : root.at("shared_params").entries()) aliases.push_back({name, holder.text()});
    set_layout(read_groups(root, partition, model.path()), partition.stage, static_cast<int>(partition.ranks));
  }

  void read_without_zero(const Value& root) {
    for (const bool is_bf16 : {true, false}) {
      const std::string other = deepspeed_optimizer_file(is_bf16, 0);
      if (!files.holds(other)) continue;
      throw_incomplete("{} was saved without ZeRO and does not belong to {}: the folder holds files of two runs; {}",
                       model.path().string(), other, kChooseAnother);
    }
    first_optimizer_file = model.path().filename();
    bf16 = is_enabled(root, "bf16");
    check_supported(root, {.stage = 0, .ranks = 1, .paddings = {}});
    StatesWithoutZero states = read_states_without_zero(root, model.path());
    if (states.has_own_masters) {
      check_masters_are_weights(model, states);
    } else {
      warnings.push_back(fmt::format(
          "{} does not name the parameters of the optimizer's states, which are assumed to be in the model's order.",
          model.path().string()));
    }
    aliases = std::move(states.aliases);
    set_layout(std::move(states.groups), 0, 1);
  }

  void set_layout(std::vector<DeepSpeedLayout::Group> groups, int stage, int ranks) {
    if (const std::string prefix = common_prefix(groups, aliases); !prefix.empty()) {
      warnings.push_back(fmt::format("{}: all names begin with {:.100}, which is left out.", folder.string(), prefix));
      for (DeepSpeedLayout::Group& group : groups) {
        for (ParameterSpec& parameter : group.parameters) parameter.name.erase(0, prefix.size());
      }
      for (Alias& alias : aliases) {
        alias.name.erase(0, prefix.size());
        if (alias.parameter.starts_with(prefix)) alias.parameter.erase(0, prefix.size());
      }
    }
    layout.emplace(std::move(groups), stage, ranks, model.path().string());
  }

  void check_supported(const Value& root, const DeepSpeedPartition& partition) const {
    const auto refuse = [&](const std::string& what) {
      throw_user_error("{}: {}; convert it with DeepSpeed's zero_to_fp32.py and give the result to --init_from",
                       model.path().string(), what);
    };
    if (partition.ranks < 1 || partition.ranks > kMaxRanks) {
      throw_damaged(files.path_of(first_optimizer_file),
                    fmt::format("it says that there were {} ranks", partition.ranks));
    }
    if ((model.path().filename() == deepspeed_model_file(3, 0)) != (partition.stage == 3)) {
      throw_incomplete("{} is of ZeRO stage {}, {} is not: the folder holds files of two runs; {}",
                       files.path_of(first_optimizer_file).string(), partition.stage, model.path().filename().string(),
                       kChooseAnother);
    }
    if (const auto count = root.find("mp_world_size"); count && count->kind() == Kind::kInt && count->integer() != 1) {
      refuse(fmt::format("it was saved with tensor parallelism over {} ranks, which mpzero does not read",
                         count->integer()));
    }
    if (const auto frozen = root.find("frozen_param_shapes"); frozen && !is_empty(*frozen)) {
      refuse(fmt::format("parameter {:.100} was frozen, while mpzero trains all", frozen->entries()[0].first));
    }
  }

  void read_progress(const Value& root) {
    progress.step = updates_of(root);
    counts_otherwise = has_zenflow(root);
    if (const auto samples = root.find("global_samples")) progress.sequences_seen = not_negative(*samples);
    progress.dtype = bf16 ? "bf16" : is_enabled(root, "fp16") ? "fp16" : "fp32";
    progress.zero_stage = layout->stage();
    if (const auto config = root.find("ds_config"); config && config->kind() == Kind::kDict) {
      progress.run_config_json = config->to_json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    if (const auto names = root.find("buffer_names"); names && !is_empty(*names)) {
      warnings.push_back(fmt::format("{} holds buffers ({:.100}, ...), which are left out: they are not trained.",
                                     model.path().string(), names->elements()[0].text()));
    }
    DeepSpeedRankFile& first = rank_file(0);
    const auto& groups = first.param_groups();
    if (!groups.empty()) next_lr = groups[0].lr;
    for (const DeepSpeedParamGroup& group : groups) {
      if (group.weight_decay == groups[0].weight_decay) continue;
      warnings.push_back(
          fmt::format("{} was trained with weight decay {} for some parameters and {} for others; in this "
                      "run --weight_decay is for all whose names --no_decay does not exclude.",
                      folder.string(), *groups[0].weight_decay, group.weight_decay.value_or(0)));
      break;
    }
    progress.settings_json = shared_settings(groups);
    if (const auto own = root.find(kClientStateKey)) read_own_state(*own);
    adamw_updates = progress.step;
    if (!made_by_mpzero && !counts_otherwise && first.optimizer_step() == progress.step + 1) count_one_more();
  }

  // DeepSpeed of before 0.13.5, and any DeepSpeed without ZeRO in bf16 or fp16, lets AdamW take an update when it is
  // set up, which stays in its count for good.
  void count_one_more() {
    adamw_updates = progress.step + 1;
    if (layout->stage() == 0) {
      warnings.push_back(fmt::format(
          "{} has taken {} steps and its AdamW counts {} updates, as DeepSpeed's without ZeRO does in bf16 and fp16; "
          "AdamW resumes with {}.",
          folder.string(), progress.step, adamw_updates, progress.step));
      return;
    }
    warnings.push_back(fmt::format(
        "{} has taken {} steps, but AdamW counts {} updates on every rank: a DeepSpeed of before 0.13.5 counts one "
        "more, or else AdamW's states are of a save one step later; the run resumes from step {}.",
        folder.string(), progress.step, adamw_updates, progress.step));
  }

  void read_own_state(const Value& own) {
    // What DeepSpeed writes never has a manifest, what mpzero writes has one from the moment that it is whole.
    made_by_mpzero = files.manifest() || is_of_save(own, progress.sequences_seen);
    if (made_by_mpzero && !files.manifest()) throw_no_manifest(folder);
    if (made_by_mpzero) return read_client_state(own, progress);
    // DeepSpeed has gone on from a checkpoint of mpzero: the model is the same, the position is not.
    progress.model_config_json = own.at("model_config").text();
  }

  // That every rank's file is there is known before hours have gone by.
  void check_complete() const {
    for (int rank = 0; rank < layout->ranks(); ++rank) {
      require_file(optimizer_file(rank));
      if (layout->stage() == 3) require_file(deepspeed_model_file(3, rank));
    }
    if (layout->stage() != 0 && files.holds(optimizer_file(layout->ranks()))) {
      throw_incomplete("{} does not belong to this checkpoint of {} ranks: the folder holds files of two runs; {}",
                       files.path_of(optimizer_file(layout->ranks())).string(), layout->ranks(), kChooseAnother);
    }
  }

  void require_file(const std::string& name) const {
    if (!files.holds(name)) {
      throw_incomplete("{} is missing, one of the files of {} ranks: the checkpoint is not complete; {}",
                       files.path_of(name).string(), layout->ranks(), kChooseAnother);
    }
    if (!files.manifest() || files.manifest()->find(name) != nullptr) return;
    throw_damaged(folder / kManifestName,
                  fmt::format("it does not list {}, one of the files of {} ranks", name, layout->ranks()));
  }

  std::string optimizer_file(int rank) const {
    return layout->stage() == 0 ? first_optimizer_file : deepspeed_optimizer_file(bf16, rank);
  }

  DeepSpeedRankFile& rank_file(int rank) {
    const std::scoped_lock lock(opening);
    auto& file = rank_files[static_cast<size_t>(rank)];
    if (!file) file = std::make_unique<DeepSpeedRankFile>(files.open(optimizer_file(rank)), *layout, rank);
    return *file;
  }

  // A file's number and TorchZipReader::checksums_of_what_was_read(), of all files that were read.
  using ReadLines = std::pair<size_t, std::vector<std::string>>;
  std::vector<ReadLines> checksums_of_what_was_read() {
    std::vector<ReadLines> lines;
    for (size_t file = 0; file < rank_files.size(); ++file) {
      if (rank_files[file]) lines.emplace_back(file, rank_files[file]->archive().checksums_of_what_was_read());
    }
    return lines;
  }

  // Throws unless the rank's model states count as many updates as rank 0's, and its AdamW as many as it should.
  void check_steps_of(int rank) {
    if (layout->stage() == 3 && rank > 0) check_steps(deepspeed_model_file(3, rank));
    check_steps(rank_file(rank), optimizer_file(rank));
  }

  void check_steps(const std::string& name) const {
    const std::unique_ptr<TorchZipReader> other = files.open(name);
    const int64_t found = updates_of(other->root());
    if (found == progress.step) return;
    throw_damaged(files.path_of(name), fmt::format("it was saved after {} updates, {} after {}, so they are of "
                                                   "different saves",
                                                   found, model.path().filename().string(), progress.step));
  }

  void check_steps(const DeepSpeedRankFile& file, const std::string& name) const {
    const int64_t found = file.optimizer_step().value_or(0);
    if (found == adamw_updates || counts_otherwise) return;
    if (adamw_updates != progress.step) {
      throw_damaged(files.path_of(name), fmt::format("AdamW counts {} updates in it where {} counts {}, so they are of "
                                                     "different saves",
                                                     found, first_optimizer_file, adamw_updates));
    }
    // DeepSpeed can drop AdamW's states on loading, and counts its updates anew then, while its steps go on. Neither
    // run nor converter can tell this from an older file.
    throw_damaged(files.path_of(name),
                  fmt::format("AdamW counts {} updates in it where {} has {}, so they are of different saves{}", found,
                              model.path().filename().string(), progress.step,
                              found < progress.step ? " (or DeepSpeed resumed with load_optimizer_states=False: then "
                                                      "convert it with DeepSpeed's zero_to_fp32.py and give the result "
                                                      "to --init_from)"
                                                    : ""));
  }

  // DeepSpeed's files by what they say of the save; those of mpzero have a manifest, which says more.
  void check_one_save(ProcessGroup& group) {
    run_on_all_ranks(group, [&] {
      for (int rank = group.rank(); rank < layout->ranks(); rank += group.world_size()) check_steps_of(rank);
      for (size_t rank = 0; rank < rank_files.size(); ++rank) {
        if (rank_files[rank]) check_steps(*rank_files[rank], optimizer_file(static_cast<int>(rank)));
      }
      files.check_unchanged();
    });
    const std::map<std::string, std::string> checksums = check_same_files(folder, files.fingerprints(), group);
    run_on_all_ranks(group, [&] { check_no_twins(checksums); });
  }

  // DeepSpeed's files do not say of which rank they are, but no two ranks hold the same weights. `checksums` by name.
  void check_no_twins(const std::map<std::string, std::string>& checksums) const {
    if (files.manifest()) return;
    std::map<std::string, std::string> names;  // by checksum
    for (int rank = 0; rank < layout->ranks() && layout->holds_weights(rank); ++rank) {
      const std::string name = optimizer_file(rank);
      const auto [other, is_new] = names.emplace(checksums.at(name), name);
      if (is_new) continue;
      throw_damaged(
          files.path_of(name),
          fmt::format("it holds the very bytes of {}, so that one of the two ranks' files is missing", other->second));
    }
  }

  DeepSpeedFolder files;
  fs::path folder;
  std::unique_ptr<TorchZipReader> model_file;
  TorchZipReader& model;
  std::string first_optimizer_file;  // without ZeRO the model's file
  bool bf16 = false;
  std::optional<DeepSpeedLayout> layout;
  std::vector<ParameterSpec> parameters;
  std::vector<Alias> aliases;
  TrainingProgress progress;
  bool made_by_mpzero = false;
  int64_t adamw_updates = 0;      // that every rank's AdamW counts
  bool counts_otherwise = false;  // AdamW's updates are not the run's: ZenFlow's are of some columns at a time
  std::optional<double> next_lr;
  std::vector<std::string> warnings;
  std::mutex opening;
  std::vector<std::unique_ptr<DeepSpeedRankFile>> rank_files;
};

DeepSpeedCheckpoint::DeepSpeedCheckpoint(std::shared_ptr<const OpenFolder> folder)
    : impl_(std::make_unique<Impl>(std::move(folder))) {}
DeepSpeedCheckpoint::~DeepSpeedCheckpoint() = default;

const fs::path& DeepSpeedCheckpoint::folder() const { return impl_->folder; }
const RunRecord& DeepSpeedCheckpoint::run() const {
  static const RunRecord kNotKnown;
  return impl_->files.manifest() ? impl_->files.manifest()->run : kNotKnown;
}
const TrainingProgress& DeepSpeedCheckpoint::progress() const { return impl_->progress; }
std::span<const ParameterSpec> DeepSpeedCheckpoint::parameters() const { return impl_->parameters; }
std::span<const StoredCheckpoint::Alias> DeepSpeedCheckpoint::aliases() const { return impl_->aliases; }
bool DeepSpeedCheckpoint::made_by_mpzero() const { return impl_->made_by_mpzero; }
std::optional<double> DeepSpeedCheckpoint::next_lr() const { return impl_->next_lr; }
std::span<const std::string> DeepSpeedCheckpoint::warnings() const { return impl_->warnings; }

void DeepSpeedCheckpoint::read(const std::string& parameter, StateKind kind, int64_t begin,
                               std::span<float> out) const {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  const auto spec = std::find_if(impl_->parameters.begin(), impl_->parameters.end(),
                                 [&](const ParameterSpec& candidate) { return candidate.name == parameter; });
  if (spec == impl_->parameters.end()) {
    throw_user_error("{} is a checkpoint of another model: it has no parameter {}", folder().string(), parameter);
  }
  if (begin < 0 || end > spec->numel()) {
    throw_user_error("{} is a checkpoint of another model: {} has {} elements, [{}, {}) were asked for",
                     folder().string(), parameter, spec->numel(), begin, end);
  }
  impl_->layout->visit(parameter, begin, end, [&](const DeepSpeedLayout::Slice& slice) {
    impl_->rank_file(slice.rank)
        .read(slice.group, kind, slice.offset,
              out.subspan(static_cast<size_t>(slice.begin - begin), static_cast<size_t>(slice.count)));
  });
}

void DeepSpeedCheckpoint::verify_what_was_read(ProcessGroup& group) const {
  impl_->check_one_save(group);
  const auto of_ranks = all_gather(group, impl_->checksums_of_what_was_read());
  run_on_all_ranks(group, [&] {
    std::vector<std::vector<std::string>> lines_of(impl_->rank_files.size());
    for (const std::vector<Impl::ReadLines>& of_rank : of_ranks) {
      for (const auto& [file, lines] : of_rank) {
        if (file >= lines_of.size()) throw_failure("another rank reads another checkpoint");
        lines_of[file].insert(lines_of[file].end(), lines.begin(), lines.end());
      }
    }
    for (size_t file = 0; file < lines_of.size(); ++file) {
      if (lines_of[file].empty() || static_cast<int>(file % static_cast<size_t>(group.world_size())) != group.rank()) {
        continue;
      }
      impl_->rank_file(static_cast<int>(file)).archive().verify(lines_of[file]);
    }
  });
}

void DeepSpeedCheckpoint::verify() const {
  impl_->model.verify();
  for (int rank = 0; rank < impl_->layout->ranks(); ++rank) {
    impl_->rank_file(rank).archive().verify();
    if (impl_->layout->stage() == 3 && rank > 0) impl_->files.open(deepspeed_model_file(3, rank))->verify();
  }
  SingleProcess alone;
  impl_->check_one_save(alone);
}

}  // namespace mpzero::io
