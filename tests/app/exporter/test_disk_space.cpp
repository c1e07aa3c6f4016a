#include <atomic>
#include <future>
#include <memory>

#include "app/exporter/disk_space.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

std::string text_of(DiskSpace& disks) {
  Families families(MetricLabels{});
  disks.collect(families);
  return families.text();
}

constexpr std::chrono::milliseconds kShort{20};
// Ends a test in which nothing answers.
constexpr std::chrono::milliseconds kLong{60'000};

}  // namespace

TEST_CASE("a hung file system is reported as hung, without delaying the others") {
  auto gate = std::make_shared<std::promise<void>>();
  std::shared_future<void> opened = gate->get_future().share();
  const auto query = [opened](const fs::path& folder) -> std::optional<DiskSize> {
    if (folder == "/hangs") opened.wait();
    return DiskSize{.total = 100, .available = 40};
  };
  {
    DiskSpace disks({"/hangs", "/works"}, query, kShort);
    for (int scrape = 0; scrape < 2; ++scrape) {
      const std::string text = text_of(disks);
      CHECK_THAT(text, Contains("mpzero_host_disk_up{folder=\"/hangs\"} 0\n"));
      CHECK_THAT(text, !Contains("bytes{folder=\"/hangs\"}"));
    }
  }
  // Destroyed while its call hangs, which the gate then ends.
  DiskSpace disks({"/hangs", "/works"}, query, kLong);
  gate->set_value();
  const std::string text = text_of(disks);
  CHECK_THAT(text, Contains("mpzero_host_disk_up{folder=\"/hangs\"} 1\n") &&
                       Contains("mpzero_host_disk_available_bytes{folder=\"/hangs\"} 40\n") &&
                       Contains("mpzero_host_disk_bytes{folder=\"/works\"} 100\n"));
}

TEST_CASE("a file system that hung is reported again once a single call returns") {
  auto gate = std::make_shared<std::promise<void>>();
  auto calls = std::make_shared<std::atomic<int>>(0);
  DiskSpace hung(
      {"/a"},
      [calls, opened = gate->get_future().share()](const fs::path&) -> std::optional<DiskSize> {
        ++*calls;
        opened.wait();
        return DiskSize{.total = 1, .available = 1};
      },
      kShort);
  CHECK_THAT(text_of(hung), Contains("mpzero_host_disk_up{folder=\"/a\"} 0\n"));
  CHECK_THAT(text_of(hung), Contains("mpzero_host_disk_up{folder=\"/a\"} 0\n"));
  CHECK(*calls == 1);
  gate->set_value();
  while (text_of(hung).find("disk_up{folder=\"/a\"} 1\n") == std::string::npos) {
  }
}

TEST_CASE("the size of a folder's file system is reported, and missing folders are omitted") {
  DiskSpace disks({"/", "/no such folder"}, DiskSpace::size_of, kLong);
  const std::string text = text_of(disks);
  CHECK_THAT(text, Contains("mpzero_host_disk_bytes{folder=\"/\"} ") && !Contains("no such folder"));
}
