#include <fmt/format.h>

#include <string>
#include <vector>

#include "io/deepspeed/shared_pages.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

using namespace mpzero::io;
using namespace mpzero::io::testing;

namespace {

// "12-4096s 4096-8192o": the parts of [begin, end), shared or own.
std::string show_split(const OwnPages& pages, int64_t begin, int64_t end) {
  std::string text;
  pages.split(begin, end, [&](int64_t from, int64_t to, OwnPages::Page page) {
    text += fmt::format("{}-{}{} ", from, to, page == OwnPages::Page::kOwn ? 'o' : 's');
  });
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace

TEST_CASE("a writer owns a page if the whole page belongs to it") {
  OwnPages pages;
  // 100 to 9000 in three ranges out of order: of pages 0 to 2 only page 1, 4096 to 8192, is covered in full.
  pages.add(5000, 9000);
  pages.add(100, 300);
  pages.add(300, 5000);
  // Page 4, in two halves; a range within one page; pages up to a page boundary.
  pages.add(18432, 20480);
  pages.add(16384, 18432);
  pages.add(24577, 24578);
  pages.add(28672, 40960);
  CHECK(show_split(pages, 100, 9000) == "100-4096s 4096-8192o 8192-9000s");
  CHECK(show_split(pages, 200, 4096) == "200-4096s");
  CHECK(show_split(pages, 4500, 8192) == "4500-8192o");
  CHECK(show_split(pages, 8192, 8193) == "8192-8193s");
  CHECK(show_split(pages, 16384, 18432) == "16384-18432o");
  CHECK(show_split(pages, 24577, 24578) == "24577-24578s");
  CHECK(show_split(pages, 28672, 40960) == "28672-40960o");
  CHECK(show_split(pages, 300, 300).empty());
  CHECK(message_of([&] { show_split(pages, 9000, 9001); }).find("without a prior call to OwnPages::add()") !=
        std::string::npos);
  CHECK(message_of([&] { pages.add(8999, 9002); }).find("8999 to 9000 of a file would be written twice") !=
        std::string::npos);
  CHECK(message_of([&] { pages.add(90, 101); }).find("100 to 101 of a file would be written twice") !=
        std::string::npos);
}

TEST_CASE("a rank's bytes on shared pages that the file system lost are not copied") {
  const TemporaryFolder folder;
  PageRemainders remainders;
  const std::vector<std::byte> bytes(3, std::byte{7});
  remainders.add(4, 1, bytes);
  const std::vector<PageRemainders::Section> sections = remainders.write(folder.path(), "remainders", disk());
  REQUIRE(sections.size() == 1);
  write_file(folder / "target", "abcdef");
  File target = File::open_for_update(folder / "target");
  PageRemainders::put_in_place(folder.path(), sections[0], target);
  CHECK(read_file(folder / "target") == "a\7\7\7ef");
  std::string content = read_file(folder / "remainders");
  for (const std::string& changed : {content.substr(1), content + "x", std::string(content.size(), '\1')}) {
    write_file(folder / "target", "abcdef");
    write_file(folder / "remainders", changed);
    const bool is_intact = changed == content + "x";
    const std::string message = message_of([&] { PageRemainders::put_in_place(folder.path(), sections[0], target); });
    CHECK((message.find("remainders lacks data that a rank wrote") != std::string::npos) != is_intact);
    CHECK((read_file(folder / "target") == "abcdef") != is_intact);
  }
}
