#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "base/process_group.hpp"
#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/files/open_folder.hpp"
#include "io/files/retry.hpp"

// The one place that chooses between the formats of checkpoints: mpzero's own (io/checkpoint) and DeepSpeed's
// (io/deepspeed). A new format needs a StoredCheckpoint that reads it, a CheckpointWriter that writes it, an
// alternative of CheckpointFormat, and a line for each in formats.cpp.
namespace mpzero::io {

struct Hdf5Format {};
// The format of a new checkpoint.
using CheckpointFormat = std::variant<Hdf5Format, DeepSpeedSettings>;

// Whether open_checkpoint() recognizes a checkpoint in `folder`, complete or not. Without a manifest, another program
// saved it.
bool looks_like_checkpoint(const OpenFolder& folder);
bool looks_like_checkpoint(const std::filesystem::path& folder);

// Opens a checkpoint's folder (not the one that holds `latest`). Throws UserError if it matches no format. If other
// processes may replace the folder, use read_checkpoint().
std::unique_ptr<StoredCheckpoint> open_checkpoint(std::shared_ptr<const OpenFolder> folder);
std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::filesystem::path& folder);

// The other arguments must outlive the writer. `carried`: see Hdf5Writer; DeepSpeed's format omits it. Throws Failure
// if the format cannot represent the others.
std::unique_ptr<CheckpointWriter> make_writer(const CheckpointFormat& format, const TrainingProgress& progress,
                                              std::span<const UnitShard> shards, const CarriedState* carried = nullptr);

// Throws UserError naming the kind of checkpoint and the remedy if the folder holds an unsupported checkpoint of
// another trainer or of DeepSpeed.
void refuse_foreign(const OpenFolder& folder);

// Reading a checkpoint while other processes save and prune. A reader holds the folder open, so that everything it
// reads is of one save. If the folder was replaced, removed or rewritten before everything was read, no error about its
// files is reported: the full read starts again.

// Maximum number of attempts to read a checkpoint.
inline constexpr int kMaxReads = 10;

// Opens the checkpoint in the folder that `find` returns and passes it to `read`, which verifies what it reads. If
// either fails and the folder has changed since it was opened, both start again, up to kMaxReads times in total;
// `on_restart` receives one sentence on what happened. Throws ReplacedWhileRead if the last attempt ended that way, or
// if `find` returns the same folder again and it no longer exists. Otherwise throws what `find` and `read` throw.
void read_checkpoint(const std::function<std::filesystem::path()>& find,
                     const std::function<void(const StoredCheckpoint&)>& read,
                     const std::function<void(const std::string&)>& on_restart);

// Retries of a rank that does not see what other ranks see: for 12.75 s in total.
inline const Patience kPatienceWithOtherHosts{.attempts = 9};

// Collective: runs `open` on all ranks. A network file system may show a file or a folder later on one host than on
// another. So, if `open` throws Damaged on some ranks and succeeds on others, all ranks retry after a pause. Throws the
// errors of run_on_all_ranks, immediately if no rank succeeds.
void open_on_all_ranks(ProcessGroup& group, const std::function<void()>& open,
                       const Patience& patience = kPatienceWithOtherHosts);

// Collective: whether any rank's folder was replaced, removed or rewritten since it was opened. A rank that could not
// open it passes null. Does not throw exceptions of its own.
bool replaced_on_any_rank(const OpenFolder* folder, ProcessGroup& group);

}  // namespace mpzero::io
