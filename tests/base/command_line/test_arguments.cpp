#include "base/command_line/arguments.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

std::vector<Argument> split(const std::vector<std::string>& arguments) {
  return split_arguments(arguments, [](const std::string& flag) {
    if (flag == "--name") return Takes::kValue;
    if (flag == "--on") return Takes::kOptionalValue;
    return flag == "--quick" ? Takes::kNothing : Takes::kUnknown;
  });
}

}  // namespace

TEST_CASE("splits flags, their values and other words") {
  const std::vector<Argument> all =
      split({"--name", "-x", "--on", "--name=a=b", "--quick", "folder", "--on", "no", "k=v"});
  REQUIRE(all.size() == 7);
  CHECK((all[0].flag == "--name" && all[0].value == "-x"));
  CHECK((all[1].flag == "--on" && !all[1].value));
  CHECK((all[2].flag == "--name" && all[2].value == "a=b"));
  CHECK((all[3].takes == Takes::kNothing && !all[3].value));
  CHECK((all[4].takes == Takes::kUnknown && all[4].text == "folder"));
  CHECK(all[5].value == "no");
  CHECK((all[6].takes == Takes::kUnknown && all[6].text == "k=v"));
}

TEST_CASE("rejects missing and superfluous values") {
  const auto error = [](const std::string& argument) {
    return error_from([&] { split({argument}).front().check_value(); });
  };
  for (const char* argument : {"--name", "--name=", "--on="}) {
    CHECK_THAT(error(argument), Catch::Contains("needs a value"));
  }
  CHECK(error("--quick=yes") == "--quick takes no value; remove the value.");
  for (const char* argument : {"--name=x", "--on", "--quick", "word"}) CHECK(error(argument) == "no error");
}

TEST_CASE("parses numbers within their bounds, and choices") {
  CHECK(parse_integer("n", "-3", -3) == -3);
  CHECK(parse_real("x", "1e-6", 0, 1) == 1e-6);
  CHECK(parse_choice("c", "b", {"a", "b"}) == 1);
  const auto integer = [](const char* text) { return error_from([&] { parse_integer("n", text, 0, 9); }); };
  const auto real = [](const char* text) { return error_from([&] { parse_real("x", text, 0, 1); }); };
  CHECK(integer("10") == "--n 10 is too large; it must be 9 or less.");
  CHECK(integer("-1") == "--n -1 is too small; it must be 0 or more.");
  for (const char* text : {"", "1.5", "3x", "99999999999999999999"}) CHECK_THAT(integer(text), Catch::Contains("--n "));
  CHECK(real("1") == "--x 1 is out of range; it must be 0 or more and less than 1.");
  for (const char* text : {"", "nan", "inf", "-0.1", "many"}) CHECK_THAT(real(text), Catch::Contains("--x "));
  CHECK(error_from([] { parse_choice("c", "d", {"a", "b"}); }) == "--c must be one of a, b, not \"d\".");
}

}  // namespace mpzero
