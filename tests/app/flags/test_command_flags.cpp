#include "app/flags/command_flags.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

struct Read {
  std::string name, text = "none";
  bool quick = false;
  std::vector<std::string> others;
};

Read read(const std::vector<std::string>& arguments) {
  Read read;
  read_command_flags(arguments,
                     {{"name", [&](const std::string& value) { read.name = value; }},
                      {"text", [&](const std::string& value) { read.text = value; }, false, /*may_be_empty=*/true},
                      {"quick", [&](const std::string&) { read.quick = true; }, /*is_switch=*/true}},
                     [&](const std::string& argument) { read.others.push_back(argument); });
  return read;
}

}  // namespace

TEST_CASE("flags of a command, and what is none of them") {
  const Read all = read({"--name", "a", "--text=", "--quick", "folder", "--seed=3", "-n", "4"});
  CHECK((all.name == "a" && all.text.empty() && all.quick));
  CHECK(all.others == std::vector<std::string>{"folder", "--seed=3", "-n", "4"});
  CHECK(read({"--name=--x"}).name == "--x");
  CHECK(read({"--name", "-x"}).name == "-x");
  CHECK(read({"--text=a=b"}).text == "a=b");
}

TEST_CASE("refuses a repeated flag and a missing value") {
  const auto error = [](const std::vector<std::string>& arguments) { return error_from([&] { read(arguments); }); };
  CHECK(error({"--name=a", "--name", "b"}) == "--name is given twice; keep one of the two.");
  const std::string needed = "--name needs a value; if it begins with --, write --name=VALUE.";
  CHECK(error({"--name"}) == needed);
  CHECK(error({"--name="}) == needed);
  CHECK(error({"--name", "--quick"}) == needed);
  CHECK(error({"--text"}) == "--text needs a value; if it begins with --, write --text=VALUE.");
  CHECK(error({"--quick=yes"}) == "--quick takes no value; remove the value.");
}

TEST_CASE("a flag that is nearly another") {
  const std::vector<CommandFlag> flags = {{"temperature", {}}, {"seed", {}}};
  CHECK(nearest_flag("--temprature=3", flags) == "temperature");
  CHECK(nearest_flag("-sed", flags) == "seed");
  CHECK_FALSE(nearest_flag("--device", flags));
  CHECK_FALSE(nearest_flag("--", flags));
}

}  // namespace mpzero
