// fault_subject: one of mpzero's programs as the campaign runs it with the preloaded library, with a tiny model and
// without ATen. Exits as mpzero does: 0, or 1 or 2 with one sentence on stderr; 3 for an exception that is not one of
// mpzero's, 4 instead of 2 for Damaged.
//
//   save DIR STEP VALUES RUN hdf5|zero2|zero3 KEEP_LAST   a training run that takes the folder and saves once
//   read CHECKPOINT      a run that resumes; prints what it has read (readings.hpp), as do weights and tokens
//   verify CHECKPOINT
//   export CHECKPOINT OUTPUT MAX_SHARD_BYTES
//   weights FOLDER
//   tokens FILE
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tests/faults/readings.hpp"
#include "tests/faults/saves.hpp"
#include "tests/faults/subject_process.hpp"

namespace mpzero::faults {
namespace {

void run(const std::vector<std::string>& words) {
  const std::string& what = words.at(0);
  const std::string& place = words.at(1);
  std::string text;
  if (what == "save") {
    save_as_run(place, {.step = std::stoll(words.at(2)),
                        .values = static_cast<uint32_t>(std::stoul(words.at(3))),
                        .run_id = words.at(4),
                        .deepspeed = words.at(5) != "hdf5",
                        .zero_stage = words.at(5) == "zero3" ? 3 : 2,
                        .dtype = words.at(5) == "zero3" ? "fp32" : "bf16",
                        .keep_last = std::stoll(words.at(6))});
  } else if (what == "read") {
    text = read_as_run(place, 2);
  } else if (what == "verify") {
    verify(place);
  } else if (what == "export") {
    export_as_fp32(place, words.at(2), std::stoll(words.at(3)));
  } else if (what == "weights") {
    text = read_weights(place);
  } else if (what == "tokens") {
    text = read_tokens(place);
  } else {
    throw std::invalid_argument("unknown command " + what);
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace
}  // namespace mpzero::faults

int main(int argc, char** argv) {
  try {
    mpzero::faults::run({argv + 1, argv + argc});
    return 0;
  } catch (const mpzero::Damaged& error) {
    std::fputs(error.what(), stderr);
    return mpzero::faults::kDamagedExitCode;
  } catch (const mpzero::Error& error) {
    std::fputs(error.what(), stderr);
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
    return mpzero::faults::kUnexpectedExitCode;
  }
}
