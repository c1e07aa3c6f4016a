#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/app/checkpoint/resume_cases.hpp"
#include "tests/app/checkpoint/resume_model.hpp"
#include "tests/app/checkpoint/resume_runs.hpp"
#include "tests/catch.hpp"

// Random chains of resumes, by the product's functions and by resume_model.
namespace mpzero {
namespace {

namespace cases = resume_cases;
namespace model = resume_model;
using cases::Inputs;
using cases::ProductRun;

void check_windows(const Inputs& inputs, const cases::Start& start, const model::Run& expected, const ProductRun& run) {
  const int64_t steps = std::min<int64_t>(3, expected.plan.last_step - expected.step);
  const std::vector<int64_t>& order = inputs.order(start.settings);
  if (expected.sequence(expected.step + steps + 1, 0) > static_cast<int64_t>(order.size())) return;
  std::vector<int64_t> windows;
  for (int64_t update = expected.step + 1; update <= expected.step + steps; ++update) {
    for (int64_t sample = 0; sample < start.settings.batch; ++sample) {
      windows.push_back(order.at(static_cast<size_t>(expected.sequence(update, sample))));
    }
  }
  CHECK(inputs.windows_read(start, run, run.position.step, steps) == windows);
}

// The first difference of a start from the model; empty: there is none.
std::string difference(const model::Run& expected, const ProductRun& run) {
  const auto differ = [](const std::string& what, auto expected, auto actual) {
    return fmt::format("{}: expected {}, is {}", what, expected, actual);
  };
  if (run.position.step != expected.step) return differ("step", expected.step, run.position.step);
  if (run.position.sequences_seen != expected.position) {
    return differ("position", expected.position, run.position.sequences_seen);
  }
  if (run.position.tokens_seen != expected.tokens) return differ("tokens", expected.tokens, run.position.tokens_seen);
  if (run.setup.config.max_steps != expected.plan.last_step) {
    return differ("last step", expected.plan.last_step, run.setup.config.max_steps);
  }
  for (int64_t update = expected.step + 1; update <= expected.plan.last_step; ++update) {
    const std::string step = fmt::format("step {} of {}", update, expected.plan.last_step);
    const RunPosition at = run.at(update);
    if (saves_at(run.setup.config, at) != model::saves_epoch(expected.settings, at.sequences_seen)) {
      return differ("save after " + step, !saves_at(run.setup.config, at), saves_at(run.setup.config, at));
    }
    const double rate = expected.schedule.rate(update), actual = run.setup.config.lr(update);
    // Where a cosine reaches 0, it is the difference of terms of about the peak.
    if (std::abs(rate - actual) <= 1e-9 * std::max(std::abs(rate), 1e-6 * expected.schedule.shape.peak)) continue;
    return differ(fmt::format("rate of {} ({})", step, expected.choice), rate, actual);
  }
  return "";
}

// `choices`: how often each one was made, by what the model calls it.
void check_case(const Inputs& inputs, int64_t number, std::map<std::string, int64_t>& choices) {
  cases::Generator generator(static_cast<uint64_t>(number));
  cases::Start start = generator.first();
  std::string commands = start.command(inputs.folder());
  std::string refusal, refusal_of_model;
  auto expected = cases::or_refused([&] { return model::begin(start.settings); }, refusal_of_model);
  auto run = cases::or_refused([&] { return inputs.begin(start); }, refusal);
  const int64_t starts = generator.between(2, 4);
  for (int64_t i = 1;; ++i) {
    INFO("RESUME_FIRST=" << number << " RESUME_CASES=1\n" << commands);
    INFO("refused by the model: " << refusal_of_model << "\nrefused by the product: " << refusal);
    CHECK(expected.has_value() == run.has_value());
    if (!expected || !run) {
      ++choices["refused"];
      return;
    }
    ++choices[expected->choice];
    const std::string different = difference(*expected, *run);
    CHECK(different == "");
    if (!different.empty()) return;
    check_windows(inputs, start, *expected, *run);
    if (i == starts) return;

    const int64_t stop = generator.between(expected->step + 1, expected->plan.last_step);
    start = generator.next(start, stop);
    commands += fmt::format("  # until step {}\n{}", stop, start.command(inputs.folder()));
    expected->train_until(stop);
    expected = cases::or_refused([&] { return model::resume(*expected, start.settings); }, refusal_of_model);
    run = cases::or_refused([&] { return inputs.resume(*run, stop, start); }, refusal);
  }
}

TEST_CASE("random chains of resumes train the model's sequences at the model's rates") {
  const Inputs inputs;
  const auto [first, end] = cases::case_numbers();
  std::map<std::string, int64_t> choices;
  for (int64_t number = first; number < end; ++number) check_case(inputs, number, choices);
  if (end - first < 100) return;
  // The campaign goes down each way.
  for (const char* choice : {"new", "unchanged", "keep", "rewarm", "extend", "refused"}) {
    INFO(choice);
    CHECK(choices[choice] >= (end - first) / 20);
  }
}

}  // namespace
}  // namespace mpzero
