#include "app/top/terminal_text.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

TEST_CASE("a wide character takes two columns, a combining one none") {
  CHECK(columns_of("") == 0);
  CHECK(columns_of("abc") == 3);
  CHECK(columns_of("ä█▏") == 3);
  CHECK(columns_of("模型") == 4);
  CHECK(columns_of("e\u0301") == 1);
}

TEST_CASE("a text is cut between characters") {
  CHECK(cut("模型模型", 8) == "模型模型");
  CHECK(cut("模型模型", 5) == "模型");
  CHECK(cut("e\u0301e\u0301e\u0301", 2) == "e\u0301e\u0301");
  CHECK(cut("abc", 0).empty());
}

TEST_CASE("what moves the cursor or turns the text around becomes a question mark") {
  CHECK(cut("a\033[2J", 80) == "a?[2J");
  CHECK(cut("a\tb\nc\x7f", 80) == "a?b?c?");
  CHECK(cut("a\u009b2J\u0085", 80) == "a?2J?");
  CHECK(cut("a\u202eb\u2067", 80) == "a?b?");
  CHECK(cut("a\xff\xe4", 80) == "a??");
  CHECK(cut(std::string("a\0b", 3), 80) == "a?b");
}
