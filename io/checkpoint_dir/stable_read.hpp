#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/process_group.hpp"
#include "io/checkpoint/replaced_while_read.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/files/open_folder.hpp"

// Reading a checkpoint while other processes save and prune. A reader holds the folder open, so that everything it
// reads is of one save. If the folder was replaced, removed or rewritten before everything was read, no error about its
// files is reported: the full read starts again.
namespace mpzero::io {

// Maximum number of attempts to read a checkpoint.
inline constexpr int kMaxReads = 10;

// Opens the checkpoint in the folder that `find` returns and passes it to `read`, which verifies what it reads. If
// either fails and the folder has changed since it was opened, both start again, up to kMaxReads times in total;
// `on_restart` receives one sentence on what happened. Throws ReplacedWhileRead if the last attempt ended that way, or
// if `find` returns the same folder again and it no longer exists. Otherwise throws what `find` and `read` throw.
void read_checkpoint(const std::function<std::filesystem::path()>& find,
                     const std::function<void(const StoredCheckpoint&)>& read,
                     const std::function<void(const std::string&)>& on_restart);

// Collective: whether any rank's folder was replaced, removed or rewritten since it was opened. A rank that could not
// open it passes null. Does not throw exceptions of its own.
bool replaced_on_any_rank(const OpenFolder* folder, ProcessGroup& group);

}  // namespace mpzero::io
