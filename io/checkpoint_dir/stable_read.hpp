#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/process_group.hpp"
#include "io/checkpoint/replaced_while_read.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/files/open_folder.hpp"

// Reading a checkpoint while others save and prune. A reader holds the folder open, so that whatever it could read is
// of one save. Where the folder was replaced, removed or rewritten before all was read, nothing is said about what the
// files hold: the whole read begins again.
namespace mpzero::io {

// How often a checkpoint is read before a reader gives up.
inline constexpr int kMaxReads = 10;

// Opens the checkpoint whose folder `find` names and hands it to `read`, which verifies what it reads. Where either
// fails and the folder is not what it was when it was opened, both begin again, up to kMaxReads times in all, with what
// happened told to `on_restart`, in one sentence. Throws ReplacedWhileRead where the last attempt ended so, or where
// the same folder is named again and there is none any more; else what `find` and `read` throw.
void read_checkpoint(const std::function<std::filesystem::path()>& find,
                     const std::function<void(const StoredCheckpoint&)>& read,
                     const std::function<void(const std::string&)>& on_restart);

// Collective: whether any rank's folder was replaced, removed or rewritten since it was opened; a rank that could not
// open it gives none. Throws nothing of its own.
bool replaced_on_any_rank(const OpenFolder* folder, ProcessGroup& group);

}  // namespace mpzero::io
