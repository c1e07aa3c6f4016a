#include "base/command_line/command_flags.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

struct Options {
  std::string name, device = "auto";
  std::optional<int64_t> steps;
  uint64_t seed = 42;
  double rate = 0.5;
  bool quick = false;
};

std::vector<CommandFlag> flags_of(Options& o) {
  return {{"name", text(o.name), "TEXT", "a name", "n"},
          {"device", choice(o.device, {"auto", "cpu"}), "DEVICE", "auto or cpu"},
          {"steps", integer(o.steps, 1), "N", "number of steps (default: all)"},
          {"seed", integer(o.seed, 0)},
          {"rate", real(o.rate, 0, 1), "X", "a rate"},
          {"quick", switch_on(o.quick), "", "skip slow steps"}};
}

std::string error(const std::vector<std::string>& arguments) {
  Options options;
  return error_from([&] { read_flags_of("mpzero try", arguments, flags_of(options), 1); });
}

}  // namespace

TEST_CASE("reads the flags of a command and returns all other arguments") {
  Options o;
  CHECK(read_flags({"-n", "a", "--quick", "folder", "--seed=18446744073709551615", "--other=3", "-x", "--steps", "4"},
                   flags_of(o)) == std::vector<std::string>{"folder", "--other=3", "-x"});
  CHECK((o.name == "a" && o.quick && o.seed == UINT64_MAX && o.steps == 4 && o.rate == 0.5 && o.device == "auto"));
  CHECK(read_flags_of("mpzero try", {"-", "--name=--x"}, flags_of(o), 1) == std::vector<std::string>{"-"});
  CHECK(o.name == "--x");
}

TEST_CASE("rejects unknown and repeated flags, and invalid values") {
  CHECK(error({"--name=a", "-n", "b"}) == "--name is given twice; keep one of the two.");
  CHECK_THAT(error({"--name"}), Catch::Contains("--name needs a value"));
  CHECK(error({"--quick=1"}) == "--quick takes no value; remove the value.");
  CHECK(error({"--device=tpu"}) == "--device must be one of auto, cpu, not \"tpu\".");
  CHECK_THAT(error({"--steps=0"}), Catch::Contains("--steps 0"));
  CHECK_THAT(error({"--rate=1"}), Catch::Contains("--rate 1"));
  CHECK(error({"--stps=3"}) == "--stps is not a flag of mpzero try; did you mean --steps?");
  CHECK(error({"--dev=cpu"}) == "--dev is not a flag of mpzero try; did you mean --device?");
  CHECK(error({"-q"}) == "-q is not a flag of mpzero try; did you mean --quick?");
  CHECK(error({"-x"}) == "-x is not a flag of mpzero try; see `mpzero try --help`.");
  CHECK(error({"a", "bbbbbbbbbb"}) == "\"bbbbbbbbbb\" is not a valid argument of mpzero try; see `mpzero try --help`.");
  CHECK(error({"a", "quick"}) == "\"quick\" is not a flag of mpzero try; did you mean --quick?");
}

TEST_CASE("the help lists flags with placeholders and defaults") {
  Options defaults;
  CHECK(describe_flags(flags_of(defaults), {{"DIR", "a folder"}}) ==
        "  DIR              a folder\n"
        "  -n, --name TEXT  a name\n"
        "  --device DEVICE  auto or cpu (default: auto)\n"
        "  --steps N        number of steps (default: all)\n"
        "  --rate X         a rate (default: 0.5)\n"
        "  --quick          skip slow steps\n");
}

TEST_CASE("finds the most similar flag") {
  Options o;
  CHECK(nearest_flag("--stps=3", flags_of(o)) == "steps");
  CHECK(nearest_flag("-sed", flags_of(o)) == "seed");
  CHECK_FALSE(nearest_flag("--xyzzyxyzzy", flags_of(o)));
  CHECK_FALSE(nearest_flag("--", flags_of(o)));
}

}  // namespace mpzero
