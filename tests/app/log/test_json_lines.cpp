#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/log/json_lines.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using namespace mpzero::io::testing;

namespace {

// Files may not grow beyond `bytes` while this lives, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(size_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

nlohmann::ordered_json object(int number) { return {{"number", number}, {"text", std::string(50, 'x')}}; }

}  // namespace

TEST_CASE("lines are lost while a file cannot be written, and a mark records their number") {
  const TemporaryFolder folder;
  const auto path = folder / "lines.jsonl";
  std::vector<std::string> warnings;
  JsonLines lines(path, [&](const std::string& warning) { warnings.push_back(warning); });
  for (int n = 1; n <= 2; ++n) lines.write(object(n));
  {
    // The third line fits in part.
    const FileSizeLimit limit(std::filesystem::file_size(path) + 10);
    for (int n = 3; n <= 5; ++n) lines.write(object(n));
  }
  CHECK(warnings.size() == 1);
  CHECK_THAT(warnings.at(0), Catch::Contains(path.string()));
  for (int n = 6; n <= 7; ++n) lines.write(object(n));
  CHECK(warnings.size() == 2);
  const std::vector<std::string> found = lines_of(path);
  REQUIRE(found.size() == 5);
  const auto mark = nlohmann::json::parse(found[2]);
  CHECK((mark["event"] == "gap" && mark["lines"] == 3 && mark["time"] > 1e9));
  CHECK(nlohmann::json::parse(found[3])["number"] == 6);
  CHECK(nlohmann::json::parse(found[4])["number"] == 7);
}

TEST_CASE("events are appended with their time") {
  const TemporaryFolder folder;
  const auto path = folder / "events.jsonl";
  const auto fail = [](const std::string& warning) { FAIL(warning); };
  EventLog(path, fail).write("start", {{"job", "7"}});
  EventLog(path, fail).write("warning", {{"text", "a name with \xff"}});
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 2);
  const auto first = nlohmann::json::parse(lines[0]), second = nlohmann::json::parse(lines[1]);
  CHECK((first["event"] == "start" && first["job"] == "7"));
  CHECK((first["time"] > 1e9 && second["time"] >= first["time"]));
  CHECK(second["text"] == "a name with \xef\xbf\xbd");
}

TEST_CASE("a file that cannot be opened is opened as soon as possible") {
  const TemporaryFolder folder;
  const auto path = folder / "later/lines.jsonl";
  std::vector<std::string> warnings;
  JsonLines lines(path, [&](const std::string& warning) { warnings.push_back(warning); });
  lines.write(object(1));
  CHECK(warnings.size() == 1);
  std::filesystem::create_directory(folder / "later");
  lines.write(object(2));
  const auto found = lines_of(path);
  REQUIRE(found.size() == 2);
  CHECK(nlohmann::json::parse(found[0])["lines"] == 1);
  CHECK(nlohmann::json::parse(found[1])["number"] == 2);
}

TEST_CASE("a full device and a FIFO without a reader neither block nor throw") {
  const TemporaryFolder folder;
  const auto fifo = folder / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::filesystem::path& path : {fifo, std::filesystem::path("/dev/full"), folder.path()}) {
    std::vector<std::string> warnings;
    {
      JsonLines lines(path, [&](const std::string& warning) { warnings.push_back(warning); });
      for (int n = 1; n <= 3; ++n) lines.write(object(n));
      lines.sync();
      CHECK(warnings.size() == 1);
    }
    CHECK(warnings.size() == 2);
  }
}

TEST_CASE("a FIFO with a reader receives the lines") {
  const TemporaryFolder folder;
  const auto path = folder / "fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  JsonLines(path, [](const std::string& warning) { FAIL(warning); }).write(object(1));
  std::array<char, 200> read{};
  CHECK(::read(reader, read.data(), read.size()) > 50);
  ::close(reader);
}

TEST_CASE("lines follow a moved folder, or the path if the folder is created again") {
  const TemporaryFolder folder;
  const auto path = folder / "run/lines.jsonl";
  std::filesystem::create_directory(folder / "run");
  std::vector<std::string> warnings;
  JsonLines lines(path, [&](const std::string& warning) { warnings.push_back(warning); });
  lines.write(object(1));
  std::filesystem::rename(folder / "run", folder / "moved");
  lines.sync();
  lines.write(object(2));
  CHECK(warnings.empty());
  CHECK(lines_of(folder / "moved/lines.jsonl").size() == 2);
  std::filesystem::create_directory(folder / "run");
  lines.sync();
  lines.write(object(3));
  CHECK(warnings.size() == 1);
  CHECK(lines_of(path).size() == 1);
}

TEST_CASE("a line after a truncated line starts on a new line; non-finite values are null") {
  const TemporaryFolder folder;
  const auto path = folder / "lines.jsonl";
  std::ofstream(path) << "{\"numb";
  JsonLines(path, [](const std::string& warning) { FAIL(warning); }).write({{"value", NAN}});
  const auto found = lines_of(path);
  REQUIRE(found.size() == 2);
  CHECK(nlohmann::json::parse(found[1])["value"].is_null());
}
