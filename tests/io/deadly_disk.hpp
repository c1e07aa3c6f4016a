#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "tests/io/faulty_disk.hpp"

namespace mpzero::io::testing {

// Kills the process or its process group before or after the call with a given number. If killed before a write, half
// of the bytes are written.
class DeadlyDisk final : public UnsyncedDisk {
 public:
  enum class Moment { kBefore, kAfter };
  DeadlyDisk(int call, Moment moment, bool all) : call_(call), moment_(moment), all_(all) {}

  int open(const fs::path& path, int flags, int& descriptor) override {
    return around([&] { return UnsyncedDisk::open(path, flags, descriptor); });
  }
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    return around([&] { return UnsyncedDisk::write(descriptor, offset, bytes, written); },
                  [&] { UnsyncedDisk::write(descriptor, offset, bytes.first(bytes.size() / 2), written); });
  }
  int reserve(int descriptor, int64_t size) override {
    return around([&] { return UnsyncedDisk::reserve(descriptor, size); });
  }
  int resize(int descriptor, int64_t size) override {
    return around([&] { return UnsyncedDisk::resize(descriptor, size); });
  }
  int sync(int descriptor) override {
    return around([&] { return UnsyncedDisk::sync(descriptor); });
  }
  int rename(const fs::path& from, const fs::path& to) override {
    return around([&] { return UnsyncedDisk::rename(from, to); });
  }
  int exchange(const fs::path& a, const fs::path& b) override {
    return around([&] { return UnsyncedDisk::exchange(a, b); });
  }
  int make_folder(const fs::path& folder) override {
    return around([&] { return UnsyncedDisk::make_folder(folder); });
  }
  int remove_file(const fs::path& path) override {
    return around([&] { return UnsyncedDisk::remove_file(path); });
  }
  int remove_folder(const fs::path& folder) override {
    return around([&] { return UnsyncedDisk::remove_folder(folder); });
  }

 private:
  template <typename Call>
  int around(const Call& call) {
    return around(call, [] {});
  }
  template <typename Call, typename Half>
  int around(const Call& call, const Half& half) {
    const bool now = ++calls_ == call_;
    if (now && moment_ == Moment::kBefore) {
      half();
      die();
    }
    const int error = call();
    if (now) die();
    return error;
  }
  [[noreturn]] void die() {
    ::kill(all_ ? 0 : ::getpid(), SIGKILL);
    ::_exit(1);
  }

  std::atomic<int> calls_{0};
  int call_;
  Moment moment_;
  bool all_;
};

}  // namespace mpzero::io::testing
