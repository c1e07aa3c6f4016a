#include "io/checkpoint_dir/formats.hpp"

#include <array>
#include <chrono>
#include <exception>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/reader.hpp"
#include "io/checkpoint/shard_files.hpp"
#include "io/deepspeed/checkpoint.hpp"
#include "io/deepspeed/folder.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;

bool looks_like_checkpoint(const OpenFolder& folder) {
  return folder.holds(kManifestName) || is_deepspeed_checkpoint(folder);
}

bool looks_like_checkpoint(const fs::path& folder) {
  return is_folder(folder) && looks_like_checkpoint(OpenFolder(folder));
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(const fs::path& folder) {
  return open_checkpoint(std::make_shared<OpenFolder>(folder));
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(std::shared_ptr<const OpenFolder> folder) {
  if (!folder->holds(kManifestName)) refuse_foreign(*folder);
  if (is_deepspeed_checkpoint(*folder)) return open_deepspeed_checkpoint(std::move(folder));
  return open_hdf5_checkpoint(std::move(folder));
}

std::unique_ptr<CheckpointWriter> make_writer(const CheckpointFormat& format, const TrainingProgress& progress,
                                              std::span<const UnitShard> shards, const CarriedState* carried) {
  if (const auto* deepspeed = std::get_if<DeepSpeedSettings>(&format)) {
    return make_deepspeed_writer(progress, shards, *deepspeed);
  }
  return std::make_unique<Hdf5Writer>(progress, shards, carried);
}

namespace {

constexpr std::string_view kExport =
    "export the weights as safetensors with the original framework and pass them as --init_from";

struct Foreign {
  std::string_view mark;  // a file or folder that identifies the format
  std::string_view kind;
  std::string_view remedy;
};

// Sorted from outer to inner folders because the first match is used.
constexpr std::array kForeign = {
    Foreign{"zero/optimizer_state.pt", "a DeepSpeed universal checkpoint (ds_to_universal)",
            "resume from the original ZeRO checkpoint, on any number of ranks"},
    Foreign{"latest_universal", "a folder with DeepSpeed universal checkpoints (ds_to_universal)",
            "resume from the original ZeRO checkpoint, on any number of ranks"},
    Foreign{"mp_rank_01_model_states.pt", "a DeepSpeed checkpoint with tensor or pipeline parallelism", kExport},
    Foreign{"latest_checkpointed_iteration.txt", "a folder with Megatron-LM checkpoints", kExport},
    Foreign{"mp_rank_00/model_optim_rng.pt", "a Megatron-LM checkpoint", kExport},
    Foreign{"common.pt", "a Megatron-LM distributed checkpoint", kExport},
    Foreign{"pytorch_model_fsdp_0", "an FSDP checkpoint (torch.distributed.checkpoint)",
            "convert it with `accelerate merge-weights` and pass the result as --init_from"},
    Foreign{"pytorch_model_fsdp.bin", "an FSDP checkpoint with a full state_dict", kExport},
    Foreign{".metadata", "a torch.distributed.checkpoint checkpoint (.distcp)", kExport},
    Foreign{"trainer_state.json", "a Hugging Face Trainer checkpoint",
            "start a new run from its weights with --init_from"},
};

}  // namespace

void refuse_foreign(const OpenFolder& folder) {
  for (const Foreign& foreign : kForeign) {
    if (!folder.holds(std::string(foreign.mark))) continue;
    throw_user_error("{} is {} (it contains {}), which mpzero does not support; {}", folder.path().string(),
                     foreign.kind, foreign.mark, foreign.remedy);
  }
}

namespace {

// Returns the change of the folder that explains a read error, or kNone if the folder is unchanged.
OpenFolder::Change change_of(const OpenFolder* folder, const fs::path& path) {
  if (folder != nullptr) return folder->change();
  std::error_code error;
  const bool found = fs::exists(path, error);
  return found || error ? OpenFolder::Change::kNone : OpenFolder::Change::kRemoved;
}

// If `removed` is set, reports a UserError of `find` as the removal of this folder.
fs::path find_again(const std::function<fs::path()>& find, const std::optional<fs::path>& removed) {
  if (!removed) return find();
  try {
    return find();
  } catch (const UserError&) {
    throw ReplacedWhileRead(*removed, OpenFolder::Change::kRemoved);
  }
}

}  // namespace

void read_checkpoint(const std::function<fs::path()>& find, const std::function<void(const StoredCheckpoint&)>& read,
                     const std::function<void(const std::string&)>& on_restart) {
  std::optional<fs::path> removed;
  for (int attempt = 1;; ++attempt) {
    const fs::path path = find_again(find, removed);
    std::shared_ptr<const OpenFolder> folder;
    OpenFolder::Change change = OpenFolder::Change::kNone;
    try {
      folder = std::make_shared<OpenFolder>(path);
      const std::unique_ptr<StoredCheckpoint> checkpoint = open_checkpoint(folder);
      read(*checkpoint);
      return;
    } catch (const ReplacedWhileRead& replaced) {
      change = replaced.change();
    } catch (const Error&) {
      change = change_of(folder.get(), path);
      if (change == OpenFolder::Change::kNone) throw;
    }
    if (attempt == kMaxReads || (change == OpenFolder::Change::kRemoved && removed == path)) {
      throw ReplacedWhileRead(path, change);
    }
    if (change == OpenFolder::Change::kRemoved) removed = path;
    on_restart(fmt::format("{} {} by another process while it was being read; reading it again", path.string(),
                           name_of(change)));
  }
}

void open_on_all_ranks(ProcessGroup& group, const std::function<void()>& open, const Patience& patience) {
  std::chrono::milliseconds pause = patience.pause;
  for (int attempt = 1;; ++attempt) {
    std::exception_ptr error;
    bool is_damage = false;
    try {
      open();
    } catch (const Damaged&) {
      error = std::current_exception();
      is_damage = true;
    } catch (...) {
      error = std::current_exception();
    }
    const bool some_damaged = any(group, is_damage);
    const bool some_opened = any(group, !error);
    const bool may_pass = some_damaged && some_opened && attempt < patience.attempts;
    if (!may_pass) {
      return run_on_all_ranks(group, [&] {
        if (error) std::rethrow_exception(error);
      });
    }
    patience.sleep(pause);
    pause *= 2;
  }
}

bool replaced_on_any_rank(const OpenFolder* folder, ProcessGroup& group) {
  bool replaced = false;
  try {
    replaced = folder != nullptr && folder->change() != OpenFolder::Change::kNone;
  } catch (const Error&) {
    // The state is unknown. The error that caused this check is reported instead.
  }
  return any(group, replaced);
}

}  // namespace mpzero::io
