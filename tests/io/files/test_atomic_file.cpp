#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
namespace {

using Lines = std::vector<std::pair<std::string, bool>>;

Lines lines_of(const fs::path& path) {
  Lines lines;
  read_lines(path, [&](std::string_view line, bool has_end) { lines.emplace_back(line, has_end); });
  return lines;
}

}  // namespace

TEST_CASE("a file is read line by line, and the last line may lack its line break") {
  const TemporaryFolder folder;
  const fs::path path = folder / "lines";
  write_file(path, "");
  CHECK(lines_of(path).empty());
  write_file(path, "a\n\nb");
  CHECK(lines_of(path) == Lines{{"a", true}, {"", true}, {"b", false}});
  // Over the borders of the blocks that are read.
  const std::string line(50'000, 'x');
  write_file(path, line + "\n" + line + "\n" + line + "\n");
  CHECK(lines_of(path) == Lines{{line, true}, {line, true}, {line, true}});
  write_file(path, std::string(kLongestLine + 5, 'y') + "\nz\n");
  CHECK(lines_of(path) == Lines{{std::string(kLongestLine, 'y'), true}, {"z", true}});
}

TEST_CASE("endless files and FIFOs without a writer are not read") {
  const TemporaryFolder folder;
  const fs::path path = folder / "lines";
  SECTION("a FIFO") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  SECTION("a device") { fs::create_symlink("/dev/zero", path); }
  SECTION("a folder") { fs::create_directory(path); }
  CHECK_THROWS_AS(lines_of(path), UserError);
}

}  // namespace mpzero::io
