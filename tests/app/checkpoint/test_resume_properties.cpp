#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tests/app/checkpoint/resume_cases.hpp"
#include "tests/app/checkpoint/resume_runs.hpp"
#include "tests/catch.hpp"

// What holds for a resumed run whatever it resumes from, without a model of the rules.
namespace mpzero {
namespace {

namespace cases = resume_cases;
using cases::Inputs;
using cases::Kind;
using cases::ProductRun;
using cases::Start;
using cases::Way;
using parallel::LrSchedule;

template <typename Work>
void for_each_case(const Work& work) {
  const Inputs inputs;
  const auto [first, end] = cases::case_numbers();
  for (int64_t number = first; number < end; ++number) {
    INFO("RESUME_FIRST=" << number << " RESUME_CASES=1");
    cases::Generator generator(static_cast<uint64_t>(number));
    work(inputs, generator);
  }
}

// Nothing if the start is refused, which then trains nothing.
std::optional<ProductRun> begin(const Inputs& inputs, const Start& start) {
  try {
    return inputs.begin(start);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::optional<ProductRun> resume(const Inputs& inputs, const ProductRun& run, int64_t stop, const Start& start) {
  try {
    return inputs.resume(run, stop, start);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Calls `check` with each resume of a chain: the run before it, where that stopped, the start and the run after it.
template <typename Check>
void for_each_resume(const Inputs& inputs, cases::Generator& generator, const Check& check) {
  Start start = generator.first();
  std::string commands = start.command(inputs.folder());
  std::optional<ProductRun> run = begin(inputs, start);
  for (int64_t i = 0; run && i < 3; ++i) {
    const int64_t stop = generator.between(run->position.step + 1, run->setup.config.max_steps);
    const Start next = generator.next(start, stop);
    commands += fmt::format("  # until step {}\n{}", stop, next.command(inputs.folder()));
    INFO(commands);
    const std::optional<ProductRun> resumed = resume(inputs, *run, stop, next);
    if (resumed) check(*run, stop, start, next, *resumed);
    start = next;
    run = resumed;
  }
}

// The largest decrease from one update to the next at this pace, wherever the updates fall in the schedule's time.
double steepest(const LrSchedule& schedule, double pace) {
  constexpr int kOffsets = 32;
  const int64_t end = std::max(schedule.total_num_steps().value_or(0), schedule.warmup_num_steps()) + 3;
  double largest = 0;
  for (int i = 0; i < kOffsets; ++i) {
    const double offset = pace * i / kOffsets;
    const LrSchedule placed = schedule.with_clock(LrSchedule::Clock{.step = 0, .time = offset, .rate = pace});
    for (int64_t update = 0; placed.time(update) < static_cast<double>(end); ++update) {
      largest = std::max(largest, placed.lr(update) - placed.lr(update + 1));
    }
  }
  return largest * 1.01;  // between two offsets
}

// At which pace the whole schedule of a start passes in the steps that remain, first step to last.
double pace_of_the_rest(const Start& start, const ProductRun& run) {
  const auto steps = start.settings.schedule_end.value_or(run.setup.config.max_steps) - run.position.step;
  const auto total = static_cast<double>(*run.setup.config.schedule.total_num_steps());
  return steps > 1 ? (total - 1) / static_cast<double>(steps - 1) : 1;
}

// How much of the checkpoint's schedule a step of the resumed run takes, in steps of the run before.
double pace_of(const ProductRun& before, const ProductRun& run) {
  if (!run.setup.config.sequences || !run.setup.config.schedule_ends_at_max_steps) return 1;
  const auto tokens = [](const RunConfig& config) {
    return static_cast<double>(config.train_batch_size) * static_cast<double>(config.seq_length);
  };
  return tokens(run.setup.config) / tokens(before.setup.config);
}

TEST_CASE("most random resumes are accepted") {
  // Otherwise the other tests would prove nothing.
  int64_t cases = 0, accepted = 0;
  for_each_case([&](const Inputs& inputs, cases::Generator& generator) {
    ++cases;
    for_each_resume(inputs, generator, [&](auto&&...) { ++accepted; });
  });
  CHECK(accepted >= cases);
}

TEST_CASE("the same settings train the same sequences at the same learning rates for any layout of the batch") {
  for_each_case([](const Inputs& inputs, cases::Generator& generator) {
    Start start = generator.first();
    const std::optional<ProductRun> begun = begin(inputs, start);
    if (!begun) return;
    const ProductRun& whole = *begun;
    ProductRun run = whole;
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t stop = generator.between(run.position.step, whole.setup.config.max_steps - 1);
      if (stop < 1) continue;
      generator.draw_layout(start);
      INFO(start.command(inputs.folder()) << "  # from step " << stop);
      run = inputs.resume(run, stop, start);
      CHECK(run.setup.config.max_steps == whole.setup.config.max_steps);
      CHECK(run.position.sequences_seen == whole.at(stop).sequences_seen);
      CHECK(run.position.tokens_seen == whole.at(stop).tokens_seen);
      for (int64_t step = stop + 1; step <= whole.setup.config.max_steps; ++step) {
        if (run.setup.config.lr(step) != whole.setup.config.lr(step)) FAIL_CHECK("another rate at step " << step);
      }
    }
  });
}

TEST_CASE("by default, no step decreases the learning rate faster than a schedule") {
  for_each_case([](const Inputs& inputs, cases::Generator& generator) {
    for_each_resume(
        inputs, generator,
        [&](const ProductRun& before, int64_t stop, const Start&, const Start& next, const ProductRun& run) {
          if (next.settings.way != Way::kUnset) return;
          const double pace = before.setup.config.schedule_in_force().clock()
                                  ? before.setup.config.schedule_in_force().clock()->rate
                                  : 1;
          double limit = steepest(before.setup.config.schedule_in_force(), pace * pace_of(before, run));
          limit = std::max(limit, steepest(run.setup.config.schedule, 1));
          if (run.setup.config.schedule.total_num_steps())
            limit = std::max(limit, steepest(run.setup.config.schedule, pace_of_the_rest(next, run)));
          double last = before.setup.config.lr(stop);
          for (int64_t update = stop + 1; update <= run.setup.config.max_steps; ++update) {
            const double rate = run.setup.config.lr(update);
            if (last - rate > limit + 1e-12)
              FAIL_CHECK(last << " -> " << rate << " at step " << update << ", limit " << limit);
            last = rate;
          }
        });
  });
}

TEST_CASE("a resumed run ends at the end of a new schedule or at the kept learning rate") {
  for_each_case([](const Inputs& inputs, cases::Generator& generator) {
    for_each_resume(
        inputs, generator,
        [&](const ProductRun& before, int64_t stop, const Start& start, const Start& next, const ProductRun& run) {
          if (!run.setup.config.schedule.total_num_steps() || next.settings.schedule_end) return;
          const int64_t last = run.setup.config.max_steps;
          const double rate = run.setup.config.lr(last), tolerance = 1e-9 * next.settings.shape.peak;
          const LrSchedule in_force = before.setup.config.schedule_in_force().paced_after(stop, pace_of(before, run));
          const auto end = static_cast<double>(*in_force.total_num_steps());
          // `held` where the schedule ends before the run, and nowhere else.
          const LrSchedule held =
              in_force.held_from() ? in_force : in_force.held_from(std::max(end, in_force.time(stop)));
          const bool kept =
              std::abs(rate - held.lr(last)) <= tolerance || std::abs(rate - in_force.lr(last)) <= tolerance;
          const LrSchedule fresh = run.setup.config.schedule.with_clock(std::nullopt)
                                       .with_peak_lr(run.setup.config.schedule_in_force().peak_lr());
          const bool rewarmed = std::abs(rate - fresh.lr(*fresh.total_num_steps())) <= tolerance;
          // Sequences that fill no step move the end of a run by epochs by less than a step.
          const LrSchedule extended = run.setup.config.schedule.with_clock(std::nullopt);
          const int64_t total = *extended.total_num_steps();
          const auto [low, high] =
              std::minmax({extended.lr(std::max<int64_t>(1, total - 1)), extended.lr(total), extended.lr(total + 1)});
          const bool is_extended = rate >= low - tolerance && rate <= high + tolerance;
          // A warm-up to the end begins at another rate than that of a fresh run.
          if (last - stop < 2 || total <= std::max<int64_t>(2, fresh.warmup_num_steps()) + 1) return;
          const bool is_asked = next.settings.way != Way::kUnset && next.settings.way != start.settings.way;
          INFO("way " << static_cast<int>(next.settings.way) << " ends at " << rate << "; kept " << held.lr(last)
                      << ", fresh " << fresh.lr(total) << ", extended " << extended.lr(total));
          if (!is_asked) {
            CHECK((kept || rewarmed || is_extended));
          } else if (next.settings.way == Way::kKeep) {
            CHECK(kept);
          } else {
            CHECK((next.settings.way == Way::kRewarm ? rewarmed : is_extended));
          }
        });
  });
}

TEST_CASE("by default, no run trains at almost zero learning rate except at the end of its schedule") {
  for_each_case([](const Inputs& inputs, cases::Generator& generator) {
    bool is_asked = false;
    for_each_resume(inputs, generator,
                    [&](const ProductRun&, int64_t stop, const Start& start, const Start& next, const ProductRun& run) {
                      is_asked = is_asked || start.settings.way != Way::kUnset || next.settings.way != Way::kUnset;
                      if (is_asked || next.settings.schedule_end) return;
                      const LrSchedule& schedule = run.setup.config.schedule_in_force();
                      int64_t tail = 0;
                      for (int64_t update = run.setup.config.max_steps; update > stop; --update, ++tail) {
                        if (run.setup.config.lr(update) >= 0.01 * schedule.peak_lr()) break;
                      }
                      // (1 + cos(pi x)) / 2 is below 0.01 from x = 0.9362 on.
                      const Kind kind = next.settings.shape.kind;
                      const double share = kind == Kind::kLinear || kind == Kind::kWarmupDecayLr ? 0.01 : 0.07;
                      const double pace = schedule.clock() ? schedule.clock()->rate : 1;
                      INFO(tail << " steps below 1% of the peak");
                      CHECK(static_cast<double>(tail) <=
                            share * static_cast<double>(schedule.total_num_steps().value_or(0)) / pace + 2);
                    });
  });
}

// A run of so many epochs of a small file.
Start some_epochs(cases::Generator& generator) {
  Start start = generator.first();
  start.settings.num_tokens = 385;
  start.settings.seq_length = generator.one_in(2) ? 8 : 16;
  start.settings.max_steps.reset();
  start.settings.num_train_epochs.reset();
  start.settings.schedule_end.reset();
  start.settings.num_decay_steps.reset();
  start.settings.warmup_ratio.reset();
  start.settings.shape.warmup = 0;
  start.settings.epochs = generator.between(1, 3);
  while (start.settings.batch > start.settings.windows()) generator.draw_batch(start);
  return start;
}

TEST_CASE("epochs neither skip nor repeat sequences, for any batch sizes") {
  for_each_case([](const Inputs& inputs, cases::Generator& generator) {
    Start start = some_epochs(generator);
    std::string commands = start.command(inputs.folder());
    ProductRun run = inputs.begin(start);
    const int64_t sequences = *start.settings.epochs * start.settings.windows();
    std::vector<int64_t> windows;
    for (int64_t i = 0; i < 4; ++i) {
      INFO(commands);
      const int64_t done = run.position.step, last = run.setup.config.max_steps;
      const int64_t stop = i == 3 ? last : generator.between(done + 1, last);
      const std::vector<int64_t> read = inputs.windows_read(start, run, done, stop - done);
      windows.insert(windows.end(), read.begin(), read.end());
      const int64_t left = sequences - run.at(last).sequences_seen;
      CHECK((left >= 0 && left < run.setup.config.train_batch_size));
      if (stop == last) break;
      do generator.draw_batch(start);
      while (start.settings.batch > std::min(sequences - run.at(stop).sequences_seen, start.settings.windows()));
      commands += fmt::format("  # until step {}\n{}", stop, start.command(inputs.folder()));
      run = inputs.resume(run, stop, start);
    }
    const std::vector<int64_t>& order = inputs.order(start.settings);
    CHECK(windows == std::vector<int64_t>(order.begin(), order.begin() + static_cast<int64_t>(windows.size())));
  });
}

TEST_CASE("with a different seq_length, the run continues at the next whole sequence of the same epoch") {
  for_each_case([](const Inputs& inputs, cases::Generator& generator) {
    const Start start = some_epochs(generator);
    const ProductRun run = inputs.begin(start);
    const int64_t stop = generator.between(1, run.setup.config.max_steps);
    Start next = start;
    next.settings.seq_length = generator.one_in(2) ? 4 : 32;
    if (next.settings.batch > next.settings.windows()) return;
    INFO(start.command(inputs.folder()) << "  # until step " << stop << "\n" << next.command(inputs.folder()));
    const std::optional<ProductRun> accepted = resume(inputs, run, stop, next);
    if (!accepted) return;
    const ProductRun& resumed = *accepted;
    const int64_t before = run.at(stop).sequences_seen, now = resumed.position.sequences_seen;
    const int64_t epoch = before / start.settings.windows();
    const int64_t seen = before % start.settings.windows() * start.settings.seq_length;
    const int64_t left_out = (now - epoch * next.settings.windows()) * next.settings.seq_length - seen;
    CHECK((left_out >= 0 && left_out < next.settings.seq_length));
    CHECK(resumed.position.tokens_seen == run.at(stop).tokens_seen);
    const int64_t left =
        *next.settings.epochs * next.settings.windows() - resumed.at(resumed.setup.config.max_steps).sequences_seen;
    CHECK((left >= 0 && left < next.settings.batch));
  });
}

}  // namespace
}  // namespace mpzero
