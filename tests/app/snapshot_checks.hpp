#pragma once

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "app/checkpoint/state_snapshot.hpp"
#include "io/bytes/aligned_buffers.hpp"
#include "parallel/zero/zero_engine.hpp"
#include "tests/catch.hpp"

namespace mpzero {

// A small unit, and units large enough that an update would overtake an unsynchronized copy.
inline const std::vector<UnitSpec>& snapshot_units() {
  static const std::vector<UnitSpec> units{{.name = "large", .parameters = {{"a", {6'000'003}}}},
                                           {.name = "small", .parameters = {{"b", {5}}}},
                                           {.name = "other", .parameters = {{"c", {3'000'001}}}}};
  return units;
}

class SnapshotWeights final : public ParameterSource {
 public:
  void read(const ParameterSpec&, int64_t begin, std::span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::sin(static_cast<float>(begin + static_cast<int64_t>(i)));
  }
};

struct SnapshotRun {
  int stage = 2;
  parallel::Placement optimizer = parallel::Placement::kDevice;
  double host_ratio = 1.0;
  at::ScalarType moment_dtype = at::kFloat;
  int host_threads = 0;   // HostUpdateOptions::threads
  double clipping = 1.0;  // 0: none, so that updates do not wait for the norm
  parallel::Compression compression = {};
};

// Returns the value of all gradient elements in a step. Norms below and above 1 alternate, so with a clipping threshold
// of 1, an update that does not wait for the norm is wrong in every second step.
inline double gradient_of_step(int64_t step) {
  constexpr double kSmall = 1e-5;
  constexpr double kLarge = 0.25;
  return (step % 2 == 0 ? kSmall : kLarge) * static_cast<double>(step + 1);
}

inline void pass_before_update(parallel::ZeroEngine& engine, int64_t step) {
  std::vector<size_t> order;
  for (size_t u = snapshot_units().size(); u-- > 0;) order.push_back(u);
  engine.parameters().plan(order);
  engine.begin_step(1e-2, step + 1);
  engine.gradients().begin_micro_batch(true);
  for (const size_t u : order) {
    engine.parameters().gather(u);
    engine.parameters().release(u);
    const parallel::GradientViews destination = engine.gradients().gradients(u);
    for (const at::Tensor& view : destination.views) view.fill_(gradient_of_step(step));
    engine.gradients().reduce(u);
  }
  engine.measure(
      at::scalar_tensor(1.0, at::TensorOptions().dtype(at::kFloat).device(engine.parameters().shard(0).device())), 1);
}

// The carried state of compression, indexed as in carried_tensors().
using CarriedBytes = std::vector<std::vector<std::byte>>;

inline CarriedBytes carried_bytes(parallel::ZeroEngine& engine) {
  std::vector<parallel::Carried> carried;
  for (size_t u = 0; u < snapshot_units().size(); ++u) carried.push_back(engine.carried(u));
  CarriedBytes all;
  for (const at::Tensor& tensor : carried_tensors(carried)) {
    const at::Tensor values = tensor.cpu().contiguous();
    const auto* const bytes = static_cast<const std::byte*>(values.const_data_ptr());
    all.emplace_back(bytes, bytes + values.nbytes());
  }
  return all;
}

using States = std::map<std::pair<size_t, StateKind>, std::vector<float>>;

inline States read_states(parallel::ZeroEngine& engine) {
  States states;
  for (size_t u = 0; u < snapshot_units().size(); ++u) {
    for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      const std::span<const float> values = engine.read_state(u, kind);
      states[{u, kind}] = {values.begin(), values.end()};
    }
  }
  return states;
}

// Checks that a snapshot is bitwise equal to the result of read_state() when the snapshot begins, although training
// continues while the snapshot is taken, and that snapshots do not change training.
inline void check_snapshots(const SnapshotRun& run, at::Device device, const parallel::Levels& parameters,
                            const parallel::Levels& gradients, ProcessGroup& group) {
  CAPTURE(run.stage, run.host_ratio, run.optimizer == parallel::Placement::kHost, run.host_threads, run.clipping);
  const parallel::ZeroOptions options{.stage = run.stage,
                                      .device = device,
                                      .dtype = at::kFloat,
                                      .communication_dtype = at::kFloat,
                                      .moment_dtype = run.moment_dtype,
                                      .optimizer_placement = run.optimizer,
                                      .optimizer_host_ratio = run.host_ratio,
                                      .host_update = {.threads = run.host_threads, .cores = {}, .extra_bytes = {}},
                                      .pin_memory = device.is_cuda(),
                                      .compression = run.compression,
                                      .limits = {},
                                      .adamw = {},
                                      .gradient_clipping = run.clipping};
  parallel::ZeroEngine engine(snapshot_units(), options, parameters, gradients);
  parallel::ZeroEngine undisturbed(snapshot_units(), options, parameters, gradients);
  engine.initialize(SnapshotWeights(), group);
  undisturbed.initialize(SnapshotWeights(), group);
  const auto update = [](parallel::ZeroEngine& of, int64_t step) { of.update(1e-2, step + 1); };

  StateSnapshot snapshot(engine, {true, true, true}, engine.carries(), device, /*copy_threads=*/2);
  int64_t least = 12 * engine.shard(0).count;
  for (const auto& bytes : carried_bytes(engine)) least += static_cast<int64_t>(bytes.size());
  CHECK(snapshot.bytes() >= least);
  snapshot.allocate();
  for (int64_t step = 0; step < 2; ++step) {
    const States expected = read_states(engine);
    const CarriedBytes carried = carried_bytes(engine);
    snapshot.begin();
    pass_before_update(engine, step);
    snapshot.before_update();
    update(engine, step);
    snapshot.wait();
    // Simulates a slow writer: the snapshot's values must remain valid during further steps.
    for (int64_t later = 1; later < (step % 2 == 0 ? 3 : 1); ++later) {
      pass_before_update(engine, step + later);
      snapshot.before_update();
      update(engine, step + later);
    }
    for (const auto& [key, values] : expected) {
      const std::span<const float> copied = snapshot.values(key.first, key.second);
      CAPTURE(step, key.first, static_cast<int>(key.second));
      REQUIRE(copied.size() == values.size());
      REQUIRE((values.empty() || std::memcmp(copied.data(), values.data(), copied.size_bytes()) == 0));
      // States that the CPU updates in place may be at any address.
      if (device.is_cuda() || run.host_threads == 0) {
        CHECK(io::is_page_aligned(reinterpret_cast<const std::byte*>(copied.data())));
      }
    }
    for (size_t i = 0; i < carried.size(); ++i) {
      CAPTURE(step, i);
      const std::span<const std::byte> copied = snapshot.carried(i);
      REQUIRE(std::ranges::equal(copied, carried[i]));
      CHECK(io::is_page_aligned(copied.data()));
    }
    for (int64_t same = 0; same < (step % 2 == 0 ? 3 : 1); ++same) {
      pass_before_update(undisturbed, step + same);
      update(undisturbed, step + same);
    }
    const States after = read_states(engine);
    REQUIRE((after == read_states(undisturbed)));
    REQUIRE((after != expected));
    REQUIRE((carried.empty() || carried_bytes(engine) != carried));
    REQUIRE((carried_bytes(engine) == carried_bytes(undisturbed)));
    snapshot.release();
  }

  // Snapshots of a rank that writes some units, or none.
  StateSnapshot part(engine, {false, true, false}, /*carried=*/false, device, 1);
  CHECK((part.bytes() < snapshot.bytes() || run.optimizer == parallel::Placement::kHost));
  part.begin();
  part.wait();
  CHECK(part.values(0, StateKind::kMaster).empty());
  CHECK(part.values(1, StateKind::kMaster).size() == static_cast<size_t>(engine.shard(1).count));
  StateSnapshot none(engine, {false, false, false}, /*carried=*/false, device, 1);
  CHECK(none.bytes() == 0);
  none.begin();
  none.before_update();
  none.wait();
}

}  // namespace mpzero
