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

// Selects the checkpoint format: mpzero's HDF5 (io/checkpoint) or DeepSpeed's (io/deepspeed). A new format needs a
// StoredCheckpoint for reading, a CheckpointWriter for writing, an alternative in CheckpointFormat, and entries in
// formats.cpp.
namespace mpzero::io {

struct Hdf5Format {};
// The format of a new checkpoint.
using CheckpointFormat = std::variant<Hdf5Format, DeepSpeedSettings>;

// Returns true if open_checkpoint() recognizes the format of the possibly incomplete checkpoint in `folder`.
bool looks_like_checkpoint(const OpenFolder& folder);
bool looks_like_checkpoint(const std::filesystem::path& folder);

// Opens the checkpoint in `folder`, which must not be the parent folder that contains `latest`. Throws UserError if the
// format is not recognized. Use read_checkpoint() if other processes may replace the folder.
std::unique_ptr<StoredCheckpoint> open_checkpoint(std::shared_ptr<const OpenFolder> folder);
std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::filesystem::path& folder);

// Returns a writer for checkpoints in `format`. All other arguments must outlive the writer. `carried`: see Hdf5Writer;
// ignored by DeepSpeed's format. Throws Failure if the format cannot represent `progress` or `shards`.
std::unique_ptr<CheckpointWriter> make_writer(const CheckpointFormat& format, const TrainingProgress& progress,
                                              std::span<const UnitShard> shards, const CarriedState* carried = nullptr);

// Throws UserError, with the detected format and a remedy, if the folder contains an unsupported checkpoint of another
// trainer or of DeepSpeed.
void refuse_foreign(const OpenFolder& folder);

// The following functions read checkpoints while other processes save and prune. A reader keeps the folder open, so
// that all data is from one save. If the folder is replaced, removed or rewritten during a read, errors about the old
// files are discarded and the read restarts.

// Maximum number of attempts in read_checkpoint().
inline constexpr int kMaxReads = 10;

// Opens the checkpoint folder that `find` returns and passes the checkpoint to `read`, which must verify the data. If
// opening or reading fails and the folder has changed since it was opened, retries from `find`, up to kMaxReads
// attempts in total. `on_restart` receives the reason for each retry in one sentence. Throws ReplacedWhileRead if the
// folder changed during the last attempt, or if `find` returns a removed folder again. Rethrows all other errors of
// `find` and `read`.
void read_checkpoint(const std::function<std::filesystem::path()>& find,
                     const std::function<void(const StoredCheckpoint&)>& read,
                     const std::function<void(const std::string&)>& on_restart);

// Retry policy with pauses of 12.75 s in total, because changes on a network file system may reach other hosts with a
// delay.
inline const Patience kPatienceWithOtherHosts{.attempts = 9};

// Runs `open` on all ranks. A network file system may show new files on some hosts earlier than on others. If `open`
// throws Damaged on only some ranks, all ranks therefore retry after a pause. If `open` fails on every rank, throws
// immediately. See run_on_all_ranks() for errors. Collective.
void open_on_all_ranks(ProcessGroup& group, const std::function<void()>& open,
                       const Patience& patience = kPatienceWithOtherHosts);

// Returns true if any rank's folder was replaced, removed or rewritten since it was opened. A rank that could not open
// the folder passes null. Collective. Throws only communication errors.
bool replaced_on_any_rank(const OpenFolder* folder, ProcessGroup& group);

}  // namespace mpzero::io
