#include <fmt/format.h>

#include <algorithm>

#include "tests/faults/disk_targets.hpp"

namespace mpzero::faults {
namespace {

struct Errors {
  DiskCall call;
  std::vector<std::string> names;
};

const std::vector<Errors>& errors_of_readers() {
  static const std::vector<Errors> errors = {
      {DiskCall::kOpen, {"EACCES", "EIO", "ESTALE", "EMFILE", "EINTR"}},
      {DiskCall::kStat, {"EACCES", "EIO", "ESTALE"}},
      {DiskCall::kRead, {"EIO", "ESTALE", "EINTR", "short"}},
  };
  return errors;
}

const std::vector<Errors>& errors_of_writers() {
  static const std::vector<Errors> errors = {
      {DiskCall::kOpen, {"EACCES", "EIO", "ESTALE", "EMFILE"}},
      {DiskCall::kCreate, {"EACCES", "EIO", "ENOSPC", "EDQUOT", "EMFILE", "EROFS"}},
      {DiskCall::kStat, {"EACCES", "EIO", "ESTALE"}},
      {DiskCall::kRead, {"EIO", "ESTALE", "short"}},
      {DiskCall::kWrite, {"ENOSPC", "EDQUOT", "EIO", "EINTR", "short"}},
      {DiskCall::kSync, {"EIO", "ENOSPC", "EDQUOT"}},
      {DiskCall::kRename, {"EIO", "EACCES", "ENOSPC", "ESTALE"}},
      {DiskCall::kExchange, {"EIO", "EINVAL", "ENOSYS"}},
      {DiskCall::kAllocate, {"ENOSPC", "EDQUOT", "EOPNOTSUPP", "EINTR"}},
      {DiskCall::kTruncate, {"EIO", "ENOSPC"}},
      {DiskCall::kLock, {"ENOSYS", "ENOLCK", "EINTR"}},
      {DiskCall::kMkdir, {"EACCES", "ENOSPC", "EDQUOT", "EROFS"}},
      {DiskCall::kRemove, {"EACCES", "EPERM", "EIO"}},
  };
  return errors;
}

// Calls on a real file system are not interrupted forever.
bool lasts(const std::string& error) { return error != "EINTR"; }

}  // namespace

std::vector<std::string> disk_errors(const std::array<uint64_t, kDiskCalls + 1>& calls, bool of_writer) {
  std::vector<std::string> faults;
  for (const auto& [call, errors] : of_writer ? errors_of_writers() : errors_of_readers()) {
    const auto kind = static_cast<size_t>(call);
    for (uint64_t number = 1; number <= calls[kind]; ++number) {
      for (const std::string& error : errors) {
        faults.push_back(fmt::format("{}:{}:{}", kDiskCallNames[kind], number, error));
        if (lasts(error)) faults.push_back(faults.back() + ":on");
      }
    }
  }
  return faults;
}

std::vector<std::string> kills(const std::array<uint64_t, kDiskCalls + 1>& calls) {
  std::vector<std::string> faults;
  for (uint64_t number = 1; number <= calls[kDiskCalls]; ++number) {
    faults.push_back(fmt::format("any:{}:kill", number));
    faults.push_back(fmt::format("any:{}:killed", number));
  }
  return faults;
}

std::vector<std::string> stops(const std::array<uint64_t, kDiskCalls + 1>& calls) {
  std::vector<std::string> faults;
  for (uint64_t number = 1; number <= calls[kDiskCalls]; ++number) {
    faults.push_back(fmt::format("any:{}:stop", number));
  }
  return faults;
}

std::vector<std::string> some_of(std::vector<std::string> all, size_t count, Random& random) {
  if (all.size() <= count) return all;
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
  return all;
}

}  // namespace mpzero::faults
