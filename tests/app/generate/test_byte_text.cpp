#include "app/generate/byte_text.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

// What is shown after each byte, and at the end.
std::vector<std::string> shown(const std::string& bytes) {
  Utf8Stream stream;
  std::vector<std::string> steps;
  for (const char c : bytes) steps.push_back(stream.add(static_cast<uint8_t>(c)));
  steps.push_back(stream.finish());
  return steps;
}

std::string all_shown(const std::string& bytes) {
  std::string text;
  for (const std::string& step : shown(bytes)) text += step;
  return text;
}

const std::string kReplaced = "\xEF\xBF\xBD";

}  // namespace

TEST_CASE("the id of a byte is its value") {
  CHECK(byte_ids("aé\n") == std::vector<int64_t>{97, 0xC3, 0xA9, 10});
  CHECK(byte_ids("").empty());
}

TEST_CASE("a character is shown once it is complete") {
  CHECK(shown("aé") == std::vector<std::string>{"a", "", "é", ""});
  CHECK(shown("한") == std::vector<std::string>{"", "", "한", ""});
  CHECK(shown("😀") == std::vector<std::string>{"", "", "", "😀", ""});
  CHECK(shown("\xED\x95") == std::vector<std::string>{"", "", kReplaced});
}

TEST_CASE("invalid UTF-8 is replaced as the Unicode standard recommends") {
  // The example of its table 3-8, and those of tables 3-9 to 3-11.
  CHECK(all_shown("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41") ==
        kReplaced + kReplaced + kReplaced + kReplaced + kReplaced + kReplaced + kReplaced + kReplaced + "A");
  CHECK(all_shown("\xED\xA0\x80\x41") == kReplaced + kReplaced + kReplaced + "A");
  CHECK(all_shown("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42") ==
        kReplaced + kReplaced + kReplaced + kReplaced + kReplaced + "A" + kReplaced + kReplaced + "B");
  CHECK(all_shown("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == kReplaced + kReplaced + kReplaced + kReplaced + "A");
}

TEST_CASE("control characters except whitespace are replaced") {
  CHECK(all_shown("\t\r\n ~\n") == "\t\r\n ~\n");
  CHECK(shown("\ra\r") == std::vector<std::string>{"", kReplaced + "a", "", kReplaced});
  CHECK(all_shown("\r\r\n") == kReplaced + "\r\n");
  CHECK(all_shown(std::string("\0\x1B[2J\x7F", 6)) == kReplaced + kReplaced + "[2J" + kReplaced);
  CHECK(all_shown("\xC2\x9B\xC2\xA0") == kReplaced + "\xC2\xA0");
  CHECK(all_shown("\xE2\x80\xAE\xE2\x80\xAF\xE2\x81\xA6") == kReplaced + "\xE2\x80\xAF" + kReplaced);
}

}  // namespace mpzero
