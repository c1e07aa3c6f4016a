#include "io/files/scratch_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kInMemory = "/dev/shm";

// Creates an empty file in `folder`. Returns an empty path and sets errno on failure.
fs::path make_file(const fs::path& folder) {
  std::string name = folder / "mpzero-XXXXXX";
  const int descriptor = ::mkstemp(name.data());
  if (descriptor < 0) return {};
  ::close(descriptor);
  return name;
}

}  // namespace

ScratchFile::ScratchFile() : path_(make_file(kInMemory)) {
  if (!path_.empty()) return;
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  path_ = make_file(error ? "/tmp" : folder);
  if (path_.empty()) throw_system_error("create a file in", folder, errno);
}

ScratchFile::~ScratchFile() { ::unlink(path_.c_str()); }

}  // namespace mpzero::io
