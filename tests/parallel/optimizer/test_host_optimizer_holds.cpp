// Each transition of HostOptimizer::Ahead, at moments that gates choose.

#include <future>

#include "tests/parallel/host_optimizer_bench.hpp"

namespace mpzero::parallel {
namespace {

using Ahead = HostOptimizer::Ahead;

// How far the work before the norm has progressed when it is decided.
enum class Moment { kNotBegun, kRunning, kComputed };

// The unit under test, after one with more pieces than can be in progress at a time.
constexpr size_t kFirst = 0;
constexpr size_t kUnit = 1;
constexpr int64_t kUnitLength = 3 * kHostBlock + 64;

struct Step : Bench {
  explicit Step(int64_t spares, std::vector<int64_t> sizes = {12 * kHostBlock, kUnitLength},
                bool keeps_gradients = false)
      : Bench(2, sizes,
              {.piece_numel = kHostBlock,
               .keeps_gradients = keeps_gradients,
               .spares = {{sizes[kFirst], 1}, {kUnitLength, spares}}}) {}

  // Takes all gradients, expecting `update`, and reaches `moment`, which lasts while the gate is closed.
  void advance_to(Moment moment, const AdamWUpdate& update) {
    if (moment != Moment::kComputed) gate = std::make_unique<Gate>(team);
    optimizer->expect(update);
    if (moment == Moment::kNotBegun) {
      // Its pieces use all available buffers.
      take_gradient(kFirst);
      REQUIRE(eventually([&] { return optimizer->ahead(kFirst) == Ahead::kRunning; }));
    }
    for (size_t u = shards.size(); u-- > 1;) take_gradient(u);
    if (moment != Moment::kNotBegun) {
      const Ahead ahead = moment == Moment::kRunning ? Ahead::kRunning : Ahead::kComputed;
      REQUIRE(eventually([&] { return optimizer->ahead(kUnit) == ahead; }));
      take_gradient(kFirst);
    }
  }
  void open() { gate.reset(); }

  std::unique_ptr<Gate> gate;
};

void check_a_further_step(Step& step) {
  step.optimizer->expect(some_update(1.0, 4));
  step.take_gradients();
  step.finish(some_update(1.0, 4));
  step.check();
}

}  // namespace

TEST_CASE("updates are correct and held states unchanged for all expectations, holds, spares and moments") {
  for (const bool right : {true, false}) {
    for (const bool held : {true, false}) {
      for (const int64_t spares : {0, 1, 3}) {
        for (const Moment moment : {Moment::kNotBegun, Moment::kRunning, Moment::kComputed}) {
          if (spares == 0 && moment != Moment::kNotBegun) continue;  // nothing is updated ahead
          CAPTURE(right, held, spares, static_cast<int>(moment));
          Step step(spares);
          StateHold hold = held ? step.optimizer->hold(kUnit) : StateHold();
          const OptimizerStates before = copy_of(step.expected[kUnit]);
          step.advance_to(moment, some_update());
          step.finish(some_update(right ? 1.0 : 0.5));
          if (moment == Moment::kRunning) {
            CHECK(step.optimizer->ahead(kUnit) == (right ? Ahead::kConfirmed : Ahead::kDropped));
          } else {
            // The update after a wrong expectation may have begun if no gate holds it back.
            const Ahead ahead = step.optimizer->ahead(kUnit);
            const bool may_have_begun = moment == Moment::kComputed && held && !right;
            CHECK((ahead == Ahead::kNone || (may_have_begun && ahead == Ahead::kConfirmed)));
          }
          step.open();
          if (held && spares == 0) {
            // The work before it is done; it waits.
            step.optimizer->wait(kFirst);
            CHECK_FALSE(step.optimizer->ready(kUnit));
            CHECK(same_bits(hold.states(), before));
            hold.release();
          }
          step.check();
          if (held && spares > 0) CHECK(same_bits(hold.states(), before));
          hold.release();
          check_a_further_step(step);
        }
      }
    }
  }
}

TEST_CASE("discarding restores parameters and keeps states for all holds, spares and moments") {
  for (const bool held : {true, false}) {
    for (const int64_t spares : {1, 3}) {
      for (const Moment moment : {Moment::kNotBegun, Moment::kRunning, Moment::kComputed}) {
        CAPTURE(held, spares, static_cast<int>(moment));
        Step step(spares);
        for (size_t u = 0; u < step.shards.size(); ++u) {
          step.optimizer->publish(u, step.parameters[u]);
          step.expected_parameters[u].copy_(step.expected[u].master);
        }
        step.optimizer->wait_for_all();
        StateHold hold = held ? step.optimizer->hold(kUnit) : StateHold();
        step.advance_to(moment, some_update());
        auto discarded = std::async(std::launch::async, [&] { step.optimizer->discard(); });
        if (moment == Moment::kRunning) {
          CHECK(eventually([&] { return step.optimizer->ahead(kUnit) == Ahead::kDropped; }));
        }
        if (moment == Moment::kNotBegun) {
          CHECK(eventually([&] { return step.optimizer->ahead(kFirst) == Ahead::kDropped; }));
        }
        step.open();
        discarded.get();
        step.check();
        if (held) CHECK(same_bits(hold.states(), step.expected[kUnit]));
        hold.release();
        check_a_further_step(step);
      }
    }
  }
}

TEST_CASE("released gradients may be overwritten at any time during an update") {
  for (const bool right : {true, false}) {
    for (const Moment moment : {Moment::kNotBegun, Moment::kRunning, Moment::kComputed}) {
      CAPTURE(right, static_cast<int>(moment));
      Step step(1, {12 * kHostBlock, kUnitLength}, /*keeps_gradients=*/true);
      step.advance_to(moment, some_update());
      step.finish(some_update(right ? 1.0 : 0.5));
      step.open();
      step.check();
      check_a_further_step(step);
      CHECK(step.optimizer->memory_use().host_gradients == 2 * (12 * kHostBlock + kUnitLength));
    }
  }
}

TEST_CASE("a unit's next gradient does not replace the copy that its last update reads") {
  Step step(0, {12 * kHostBlock, kUnitLength}, /*keeps_gradients=*/true);
  StateHold hold = step.optimizer->hold(kUnit);
  step.take_gradients();
  step.finish(some_update());
  // The hold delays the update. A further gradient is taken after it.
  auto next = std::async(std::launch::async, [&] {
    step.optimizer->take_gradient(kUnit, step.gradients[kFirst].narrow(0, 0, kUnitLength), step.parameters[kUnit]);
  });
  step.optimizer->wait(kFirst);
  CHECK_FALSE(step.optimizer->ready(kUnit));
  hold.release();
  next.get();
  step.check();
}

TEST_CASE("a confirmed update is neither discarded nor updated twice concurrently") {
  for (const bool held : {true, false}) {
    for (const bool discard : {true, false}) {
      CAPTURE(held, discard);
      Step step(1);
      const OptimizerStates before = copy_of(step.expected[kUnit]);
      const StateHold hold = held ? step.optimizer->hold(kUnit) : StateHold();
      step.advance_to(Moment::kRunning, some_update());
      step.finish(some_update());
      REQUIRE(step.optimizer->ahead(kUnit) == Ahead::kConfirmed);
      if (discard) {
        auto discarded = std::async(std::launch::async, [&] { step.optimizer->discard(); });
        step.open();
        discarded.get();
      } else {
        // With the gradients of the last update.
        step.finish(some_update(0.25, 4));
        CHECK(step.optimizer->ahead(kUnit) == Ahead::kConfirmed);
        step.open();
      }
      step.check();
      if (held) CHECK(same_bits(hold.states(), before));
    }
  }
}

TEST_CASE("an update without spare states continues when some become available") {
  // Two units of one length, both held, and spare states for one of them.
  Step step(1, {12 * kHostBlock, kUnitLength, kUnitLength});
  const size_t other = 2;
  const OptimizerStates before = copy_of(step.expected[other]);
  StateHold hold = step.optimizer->hold(kUnit);
  StateHold other_hold = step.optimizer->hold(other);
  step.take_gradients();
  step.finish(some_update());
  step.optimizer->wait(kUnit);
  CHECK_FALSE(step.optimizer->ready(other));
  SECTION("that were held and have been released") { hold.release(); }
  SECTION("that were allocated") { step.optimizer->add_spares_for_holds(); }
  SECTION("or when its own are no longer held") { other_hold.release(); }
  step.optimizer->wait(other);
  if (other_hold.states().master.defined()) CHECK(same_bits(other_hold.states(), before));
  step.check();
}

TEST_CASE("a unit with several holds is held until the last one is released") {
  Step step(0);
  const OptimizerStates before = copy_of(step.expected[kUnit]);
  StateHold hold = step.optimizer->hold(kUnit);
  StateHold same = step.optimizer->hold(kUnit);
  step.take_gradients();
  step.finish(some_update());
  hold = StateHold();
  step.optimizer->wait(kFirst);
  CHECK_FALSE(step.optimizer->ready(kUnit));
  CHECK(same_bits(same.states(), before));
  const StateHold moved = std::move(same);
  CHECK_FALSE(step.optimizer->ready(kUnit));
  step.optimizer->add_spares_for_holds();
  step.check();
  CHECK(same_bits(moved.states(), before));
}

TEST_CASE("an optimizer can be destroyed while an update waits for a hold, and the hold outlives it") {
  Step step(0);
  const OptimizerStates before = copy_of(step.expected[kUnit]);
  const StateHold hold = step.optimizer->hold(kUnit);
  step.take_gradients();
  step.optimizer->finish(some_update());
  step.optimizer->wait(kFirst);
  step.optimizer.reset();
  CHECK(same_bits(hold.states(), before));
}

TEST_CASE("states are released and loaded once they are no longer held") {
  Step step(1);
  StateHold hold = step.optimizer->hold(kUnit);
  auto released = std::async(std::launch::async, [&] { step.optimizer->release(kUnit); });
  auto waited = std::async(std::launch::async, [&] { step.optimizer->wait_for_holds(kFirst); });
  waited.get();
  CHECK(step.optimizer->updates(kUnit));
  hold.release();
  released.get();
  CHECK_FALSE(step.optimizer->updates(kUnit));
}

TEST_CASE("passing a gradient twice in one step is a caller error") {
  Step step(0);
  step.take_gradients();
  CHECK_THROWS_WITH(step.take_gradient(kUnit), Catch::Contains("twice"));
}

}  // namespace mpzero::parallel
