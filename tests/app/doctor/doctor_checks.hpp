#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"
#include "tests/catch.hpp"
#include "tests/setting.hpp"

namespace mpzero::doctor {

inline std::string stand_in(const std::string& name) { return std::string(MPZERO_STAND_INS) + "/lib" + name + ".so"; }

// A folder with test files that replaces /proc, /sys and /dev.
class FakeRoot {
 public:
  FakeRoot() : path_(std::filesystem::temp_directory_path() / ("mpzero_doctor_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_ / "dev/shm");
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  void make_instance(const std::string& type) const {
    write("sys/devices/virtual/dmi/id/sys_vendor", "Amazon EC2\n");
    write("sys/devices/virtual/dmi/id/product_name", type + "\n");
  }
  // Creates EFA devices with custom names, which only their driver identifies.
  void make_efa(int count, const std::string& state = "4: ACTIVE") const {
    std::filesystem::create_directories(path_ / "sys/bus/pci/drivers/efa");
    for (int i = 0; i < count; ++i) {
      const std::string device = "sys/class/infiniband/rdmap" + std::to_string(16 + i) + "s27";
      write(device + "/ports/1/state", state + "\n");
      write(device + "/ports/1/hw_counters/rx_drops", "0\n");
      std::filesystem::create_directories(path_ / device / "device");
      std::filesystem::create_directory_symlink(path_ / "sys/bus/pci/drivers/efa", path_ / device / "device/driver");
    }
  }
  System system() const {
    System system;
    system.root = path_;
    system.nvml = {stand_in("fake_nvml")};
    system.cuda = {stand_in("fake_cuda")};
    system.libfabric = {stand_in("fake_fabric")};
    system.plugin_files = {stand_in("fake_plugin")};
    return system;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Returns the finding of `check`, of which there must be exactly one.
inline Finding find(const std::vector<Finding>& findings, const std::string& check) {
  std::vector<Finding> found;
  for (const Finding& finding : findings) {
    if (finding.check == check) found.push_back(finding);
  }
  INFO(check);
  REQUIRE(found.size() == 1);
  // A finding has a remedy unless its status is kOk.
  CHECK((found.front().status == Status::kOk) == found.front().remedy.empty());
  return found.front();
}

}  // namespace mpzero::doctor
