#include <ATen/ATen.h>
#include <ATen/cuda/Sleep.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <cmath>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/optimizer/adamw.hpp"
#include "parallel/optimizer/optimizer_shard.hpp"
#include "parallel/zero/sharded_parameters.hpp"
#include "tests/gpu/absent_peers.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/parallel/adamw_checks.hpp"
#include "tests/parallel/collective_checks.hpp"
#include "tests/parallel/compression_checks.hpp"
#include "tests/parallel/decay_checks.hpp"
#include "tests/parallel/engine_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"
#include "tests/parallel/toy_codec.hpp"

namespace mpzero::parallel {
namespace {

// Makes this rank's GPU current; none if the machine has too few.
std::optional<at::Device> rank_gpu() {
  if (!has_gpu(mpi().local_size())) return std::nullopt;
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(mpi().local_rank()));
  c10::cuda::set_device(device.index());
  return device;
}

}  // namespace

TEST_CASE("GPU AdamW agrees with the paper's formula in fp64") {
  if (const auto device = rank_gpu()) check_adamw_everywhere(*device);
}

TEST_CASE("GPU sums of squares agree with fp64 and are reproducible") {
  if (const auto device = rank_gpu()) check_sum_of_squares(*device);
}

TEST_CASE("GPU AdamW and sums of squares do not depend on how their tensors are aligned") {
  const auto device = rank_gpu();
  if (!device) return;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(*device);
  for (const at::ScalarType low : {at::kFloat, at::kBFloat16}) {
    for (const int64_t numel : {1, 7, 8, 4099}) {
      INFO(low << " " << numel);
      const AdamWTensors aligned{.gradient = at::randn({numel}, fp32).to(low),
                                 .master = at::randn({numel}, fp32),
                                 .exp_avg = at::randn({numel}, fp32),
                                 .exp_avg_sq = at::rand({numel}, fp32),
                                 .parameter = at::zeros({numel}, fp32.dtype(low))};
      // The same values, one element after a 16-byte boundary.
      const auto shifted = [&](const at::Tensor& x) {
        const at::Tensor copy = at::zeros({numel + 1}, x.options()).narrow(0, 1, numel);
        return copy.copy_(x);
      };
      const AdamWTensors other{.gradient = shifted(aligned.gradient),
                               .master = shifted(aligned.master),
                               .exp_avg = shifted(aligned.exp_avg),
                               .exp_avg_sq = shifted(aligned.exp_avg_sq),
                               .parameter = shifted(aligned.parameter)};
      CHECK(sum_of_squares(other.gradient).item<double>() ==
            Approx(sum_of_squares(aligned.gradient).item<double>()).epsilon(1e-12));
      const AdamWUpdate update = adamw_update({.weight_decay = 0.1}, 1e-3, 3, 0.5);
      adamw(aligned, update);
      adamw(other, update);
      CHECK(at::allclose(other.master, aligned.master, 1e-6, 1e-7));
      CHECK(at::allclose(other.exp_avg, aligned.exp_avg, 1e-6, 1e-7));
      CHECK(at::allclose(other.exp_avg_sq, aligned.exp_avg_sq, 1e-6, 1e-7));
      CHECK(at::allclose(other.parameter.to(at::kFloat), other.master.to(low).to(at::kFloat), 0, 0));
    }
  }
}

TEST_CASE("NCCL collectives, by copy engines and by kernels") {
  const auto device = rank_gpu();
  if (!device) return;
  for (const NcclEngine engine : {NcclEngine::kCopyEngines, NcclEngine::kKernels}) {
    NcclCommunicator communicator(mpi(), engine);
    check_collectives(communicator, *device);
  }
}

TEST_CASE("every ZeRO stage on GPUs matches a serial fp64 run") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator parameters(mpi());
  NcclCommunicator gradients(mpi());
  check_engine(*device, parameters, gradients, mpi());
  if (mpi().world_size() > 1) return;
  LocalCommunicator local_parameters;
  LocalCommunicator local_gradients;
  check_collectives(local_gradients, *device);
  check_engine(*device, local_parameters, local_gradients, mpi());
}

TEST_CASE("every ZeRO stage on single-GPU nodes matches a serial fp64 run") {
  const auto device = rank_gpu();
  if (!device || mpi().world_size() == 1) return;
  LocalCommunicator alone;
  NcclCommunicator parameters(mpi(), NcclEngine::kKernels);
  NcclCommunicator gradients(mpi(), NcclEngine::kKernels);
  check_engine(*device, {alone, parameters}, {alone, gradients}, mpi());
  check_host_overlap(*device, {alone, parameters}, {alone, gradients}, mpi());
}

TEST_CASE("compressed runs on single-GPU nodes are reproducible, and all ranks have the same parameters") {
  const auto device = rank_gpu();
  if (!device || mpi().world_size() == 1) return;
  LocalCommunicator alone;
  NcclCommunicator parameters(mpi(), NcclEngine::kKernels);
  NcclCommunicator gradients(mpi(), NcclEngine::kKernels);
  for (const Compression& compression :
       {Compression{.gradient_bits = 8, .weights = true}, Compression{.gradient_bits = 4, .weights = false}}) {
    for (const int stage : {1, 2, 3}) {
      for (const bool on_host : {false, true}) {
        ToyRun run{.stage = stage, .samples = 2 * mpi().world_size(), .steps = 5, .dtype = at::kBFloat16};
        run.compression = compression;
        run.optimizer = on_host ? Placement::kHost : Placement::kDevice;
        run.host_threads = on_host ? 2 : 0;
        INFO("stage " << stage << ", on host " << on_host << ", " << compression.gradient_bits << " bits");
        const auto outcome = [&](bool overlap) {
          run.overlap = overlap;
          return outcome_of(run, *device, {alone, parameters}, {alone, gradients}, mpi());
        };
        const std::vector<at::Tensor> overlapped = outcome(true), again = outcome(true), serial = outcome(false);
        const size_t of_rank = 3 * toy_units().size();
        for (size_t i = 0; i < serial.size(); ++i) {
          INFO("tensor " << i << " of " << serial.size());
          REQUIRE(same_bits(serial[i], overlapped[i]));
          REQUIRE(same_bits(again[i], overlapped[i]));
          if (i + of_rank >= serial.size()) continue;
          // A weight as the pass has seen it.
          const at::Tensor flat = serial[i].flatten().to(at::kFloat).contiguous();
          const at::Tensor all = at::zeros({mpi().world_size() * flat.numel()}, flat.options());
          parameters.all_gather(flat, all)->wait();
          for (int rank = 0; rank < mpi().world_size(); ++rank) {
            REQUIRE(same_bits(all.narrow(0, rank * flat.numel(), flat.numel()), flat));
          }
        }
      }
    }
  }
}

TEST_CASE("compression on a GPU rounds with the CPU's random numbers, different for each step, unit and node") {
  const auto device = rank_gpu();
  if (!device) return;
  SingleProcess one;
  for (const int nodes : {2, 3}) {
    for (int node = 0; node < nodes; ++node) {
      AbsentPeers alone(0, 1, 1), place(node, nodes, 2), gradient_place(node, nodes, 3);
      check_exchange_rounding(place, {.nodes = nodes, .ranks_per_node = 2}, nodes + node, *device);
      check_engine_rounding(*device, {alone, place}, {alone, gradient_place}, one);
      c10::cuda::device_synchronize();
    }
  }
}

// A missing wait between the streams of the levels changes the bits of what is gathered or updated.
TEST_CASE("the collectives of both levels on GPUs wait for each other, and their consumers wait for both") {
  const auto device = rank_gpu();
  if (!device) return;
  SingleProcess one;
  for (const int ranks_per_node : {1, 2}) {
    for (const int stage : {1, 2, 3}) {
      for (const bool gathers_late : {false, true}) {
        for (int variant = 0; variant < 6; ++variant) {
          ToyRun run{.stage = stage, .samples = 4 * ranks_per_node, .steps = 5, .dtype = at::kBFloat16};
          run.factor = [](int64_t step) { return step % 2 == 0 ? 0.004 : 1.0; };
          const bool on_host = variant != 0 && variant != 4;
          run.optimizer = on_host ? Placement::kHost : Placement::kDevice;
          run.host_threads = on_host ? 2 : 0;
          run.host_ratio = variant == 2 ? 0.5 : 1.0;
          run.parameters = variant == 3 && stage == 3 ? Placement::kHost : Placement::kDevice;
          if (variant >= 4) run.compression = {.gradient_bits = variant == 4 ? 8 : 4, .weights = true, .seed = 1};
          if (gathers_late) run.limits = GatherLimits{};
          const auto outcome = [&](bool overlap) {
            run.overlap = overlap;
            AbsentPeers node(ranks_per_node - 1, ranks_per_node, 1), place(0, 2, 2);
            AbsentPeers gradient_node(ranks_per_node - 1, ranks_per_node, 3), gradient_place(0, 2, 4);
            const auto result = outcome_of(run, *device, {node, place}, {gradient_node, gradient_place}, one);
            c10::cuda::device_synchronize();
            return result;
          };
          const std::vector<at::Tensor> serial = outcome(false);
          const std::vector<at::Tensor> overlapped = outcome(true);
          INFO("stage " << stage << ", " << ranks_per_node << " ranks a node, variant " << variant);
          REQUIRE(serial.size() == overlapped.size());
          for (size_t i = 0; i < serial.size(); ++i) {
            INFO("tensor " << i << " of " << serial.size());
            REQUIRE(same_bits(serial[i], overlapped[i]));
          }
        }
      }
    }
  }
}

TEST_CASE("parameters without weight decay are a separate parameter group on GPUs") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator parameters(mpi());
  NcclCommunicator gradients(mpi());
  check_no_decay(*device, parameters, gradients, mpi());
}

TEST_CASE("moments in bf16 follow those in fp32, and are reproducible") {
  const auto device = rank_gpu();
  if (!device) return;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(*device);
  constexpr int64_t kCount = 100003;
  at::manual_seed(7);
  const at::Tensor gradient = at::randn({kCount}, fp32);
  const at::Tensor weights = at::randn({kCount}, fp32);
  const auto train = [&](at::ScalarType moments) {
    AdamWTensors tensors{.gradient = gradient,
                         .master = weights.clone(),
                         .exp_avg = at::zeros({kCount}, fp32.dtype(moments)),
                         .exp_avg_sq = at::zeros({kCount}, fp32.dtype(moments)),
                         .parameter = at::zeros({kCount}, fp32),
                         .first = 12345};
    for (int update = 1; update <= 400; ++update) {
      AdamWUpdate scalars = adamw_update({.beta2 = 0.999}, 1e-3, update, 1.0);
      scalars.rounding_seed = static_cast<uint32_t>(update);
      adamw(tensors, scalars);
    }
    return tensors;
  };
  const AdamWTensors exact = train(at::kFloat);
  const AdamWTensors rounded = train(at::kBFloat16);
  // After 400 updates the average of squares has reached a third of its limit by steps smaller than half a unit in the
  // last place of bf16: with rounding to nearest it would have stopped changing long before. With stochastic rounding
  // it is correct on average over elements, and each element is near.
  const at::Tensor ratio = rounded.exp_avg_sq.to(at::kFloat) / exact.exp_avg_sq;
  CHECK(ratio.mean().item<double>() == Approx(1.0).margin(2e-3));
  CHECK((ratio - 1).abs().max().item<double>() < 0.2);
  CHECK((rounded.exp_avg.to(at::kFloat) / exact.exp_avg).mean().item<double>() == Approx(1.0).margin(2e-3));
  CHECK(at::allclose(rounded.master, exact.master, 0, 0.02));
  // The host has the same bits after an update from the same states.
  const auto update_on = [&](at::Device place) {
    const auto on = [&](const at::Tensor& tensor) { return tensor.to(place).clone(); };
    AdamWTensors tensors{.gradient = on(gradient),
                         .master = on(rounded.master),
                         .exp_avg = on(rounded.exp_avg),
                         .exp_avg_sq = on(rounded.exp_avg_sq),
                         .parameter = on(rounded.parameter),
                         .first = 12345};
    AdamWUpdate scalars = adamw_update({.beta2 = 0.999}, 1e-3, 401, 1.0);
    scalars.rounding_seed = 401;
    adamw(tensors, scalars);
    return tensors;
  };
  const AdamWTensors on_gpu = update_on(*device), on_host = update_on(at::kCPU);
  CHECK(same_bits(on_gpu.exp_avg, on_host.exp_avg));
  CHECK(same_bits(on_gpu.exp_avg_sq, on_host.exp_avg_sq));
  CHECK(same_bits(on_gpu.master, on_host.master));
  CHECK(same_bits(on_gpu.parameter, on_host.parameter));
  const AdamWTensors again = train(at::kBFloat16);
  CHECK(again.exp_avg_sq.equal(rounded.exp_avg_sq));
  CHECK(again.master.equal(rounded.master));
}

TEST_CASE("an update with a non-finite loss or norm changes nothing") {
  const auto device = rank_gpu();
  if (!device) return;
  const auto fp64 = at::TensorOptions().dtype(at::kDouble).device(*device);
  const at::Tensor scale = at::zeros({}, fp64.dtype(at::kFloat));
  for (const auto& [squares, loss, finite] : std::vector<std::tuple<double, double, bool>>{
           {16.0, 1.0, true}, {INFINITY, 1.0, false}, {16.0, NAN, false}, {NAN, 1.0, false}}) {
    clipping_scale_out(scale, at::tensor({squares, loss}, fp64), 1.0);
    CHECK(std::isfinite(scale.item<double>()) == finite);
    if (finite) CHECK(scale.item<float>() == static_cast<float>(clipping_scale(squares, 1.0)));
    AdamWTensors tensors{.gradient = at::ones({100}, fp64.dtype(at::kFloat)),
                         .master = at::ones({100}, fp64.dtype(at::kFloat)),
                         .exp_avg = at::zeros({100}, fp64.dtype(at::kFloat)),
                         .exp_avg_sq = at::zeros({100}, fp64.dtype(at::kFloat)),
                         .parameter = at::ones({100}, fp64.dtype(at::kFloat))};
    AdamWUpdate update = adamw_update({}, 1e-2, 1, 1.0);
    update.device_gradient_scale = scale.const_data_ptr<float>();
    adamw(tensors, update);
    CHECK((tensors.exp_avg.abs().sum().item<double>() > 0) == finite);
    CHECK(tensors.master.eq(1).all().item<bool>() != finite);
    CHECK(tensors.parameter.equal(tensors.master));
  }
}

TEST_CASE("an update with a non-finite loss or norm leaves parameters in host memory unchanged") {
  const auto device = rank_gpu();
  if (!device) return;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t numel : {5, 100'003}) {
      INFO(c10::toString(dtype) << " " << numel);
      OptimizerShard shard(numel, {.placement = Placement::kDevice, .device = *device});
      shard.write(StateKind::kMaster, at::randn({numel}));
      const at::Tensor parameter = at::empty({numel}, at::TensorOptions().dtype(dtype).pinned_memory(true));
      shard.publish(parameter);
      const at::Tensor before = parameter.clone();
      const at::Tensor master = shard.state(StateKind::kMaster, numel).clone();
      const auto on_device = at::TensorOptions().dtype(at::kFloat).device(*device);
      const at::Tensor gradient = at::ones({numel}, on_device);
      AdamWUpdate update = adamw_update({.weight_decay = 0.1}, 1e-2, 1, 1.0);
      const auto update_with = [&](double factor) {
        const at::Tensor scale = at::full({}, factor, on_device);
        update.device_gradient_scale = scale.const_data_ptr<float>();
        // The allocator returns the memory that was freed last: the pending copy would begin with these bytes.
        at::full({numel}, 12345.0, on_device.dtype(dtype));
        shard.update(update, gradient, parameter);
        c10::cuda::device_synchronize();
      };
      for (const double factor : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
        update_with(factor);
        CHECK(parameter.equal(before));
        CHECK(shard.state(StateKind::kMaster, numel).equal(master));
        CHECK(shard.state(StateKind::kExpAvg, numel).eq(0).all().item<bool>());
      }
      update_with(1.0);
      CHECK(!parameter.equal(before));
      CHECK(parameter.equal(shard.state(StateKind::kMaster, numel).cpu().to(dtype)));
    }
  }
}

TEST_CASE("shards that move to the GPU wait for gathers that still read host memory") {
  const auto device = rank_gpu();
  if (!device) return;
  const std::vector<UnitSpec> units{{.name = "one", .parameters = {{"a", {1 << 22}}}},
                                    {.name = "two", .parameters = {{"b", {1 << 22}}}}};
  const std::vector<FlatLayout> layouts{FlatLayout(1 << 22, 1), FlatLayout(1 << 22, 1)};
  LocalCommunicator communicator;
  for (const bool pinned : {true, false}) {
    ShardedParameters store(
        units, layouts, 0, communicator,
        {.sharded = true, .placement = Placement::kHost, .pinned = pinned, .limits = {}, .device = *device});
    for (size_t u = 0; u < units.size(); ++u) store.shard(u).fill_(static_cast<double>(u + 1));
    store.plan({0, 1, 0, 1});
    store.invalidate();
    c10::cuda::CUDAEvent held_up;
    {
      // The gathers wait for the work queued on this stream; the following work is on another one.
      const c10::StreamGuard on_other_stream(c10::cuda::getStreamFromPool());
      at::cuda::sleep(1'000'000'000);
      for (size_t u = 0; u < units.size(); ++u) store.publish(u);
      held_up.record(c10::cuda::getCurrentCUDAStream());
    }
    CHECK(store.move_to_device(int64_t{1} << 30) == int64_t{2} * (1 << 22) * 4);
    CHECK(held_up.query());
    CHECK(store.memory_use().host_parameters == 0);
    for (const size_t unit : {0, 1, 0, 1}) {
      CHECK(store.gather(unit).front().eq(static_cast<double>(unit + 1)).all().item<bool>());
      store.release(unit);
    }
  }
}

TEST_CASE("quantized gathers on GPUs run after the writes of the shards and earlier uses of the buffers") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator communicator(mpi());
  constexpr int64_t kNorm = 100, kWeight = 1 << 20;
  const int ranks = mpi().world_size();
  const FlatLayout layout(kNorm + kWeight, ranks);
  std::vector<UnitSpec> units;
  for (const char* name : {"one", "two", "three"}) {
    units.push_back({.name = name, .parameters = {{"norm", {kNorm}}, {"weight", {kWeight}}}});
  }
  const std::vector<FlatLayout> layouts(units.size(), layout);
  const std::vector<CodedRange> weight{{.begin = kNorm, .count = kWeight}};
  const auto codec = std::make_shared<const ToyCodec>(std::vector<std::vector<CodedRange>>(units.size(), weight));
  // Exact in bf16, and others for each unit and update.
  const auto values_of = [&](size_t unit, int update) {
    return at::arange(layout.padded_numel(), at::kLong)
        .remainder(199)
        .add(1 + static_cast<int64_t>(unit) + 3 * update)
        .to(at::kBFloat16);
  };
  for (const bool overlap : {true, false}) {
    ShardedParameters store(units, layouts, mpi().rank(), communicator,
                            {.sharded = true,
                             .overlap = overlap,
                             .codec = codec,
                             .limits = {.prefetch_bucket_size = 0,
                                        .param_persistence_threshold = 0,
                                        .max_live_parameters = 0,
                                        .max_reuse_distance = 0},
                             .device = *device,
                             .dtype = at::kBFloat16});
    for (int update = 0; update < 3; ++update) {
      std::vector<at::Tensor> same;
      const std::vector<size_t> uses{0, 1, 2, 2, 1, 0};
      store.plan(uses);
      std::vector<at::Tensor> values, codes;
      for (size_t u = 0; u < units.size(); ++u) {
        const at::Tensor whole = values_of(u, update), of_weight = whole.narrow(0, kNorm, kWeight);
        at::Tensor maximum = at::zeros({}), made = at::zeros({kWeight}, at::kByte);
        codec->raise_maximum(of_weight, maximum);
        codec->encode_out(of_weight, maximum, made);
        values.push_back(whole.to(*device));
        codes.push_back(made.to(*device));
      }
      store.invalidate();
      // The new values come late, and the host goes on.
      at::cuda::sleep(100'000'000);
      for (size_t u = 0; u < units.size(); ++u) {
        store.shard(u).copy_(values[u].narrow(0, layout.shard_begin(mpi().rank()), layout.shard_numel()));
        store.publish(u);
      }
      for (const size_t unit : uses) {
        const std::span<const at::Tensor> views = store.gather(unit);
        REQUIRE(store.scales(unit).defined());
        same.push_back(views[0].eq(values[unit].narrow(0, 0, kNorm)).all());
        same.push_back(views[1].eq(codes[unit]).all());
        store.release(unit);
      }
      for (size_t i = 0; i < same.size(); ++i) {
        INFO("overlap " << overlap << ", update " << update << ", use " << i / 2);
        CHECK(same[i].item<bool>());
      }
    }
  }
}

TEST_CASE("results do not change if host updates run concurrently with a GPU and before the norm is known") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator parameters(mpi());
  NcclCommunicator gradients(mpi());
  check_host_overlap(*device, parameters, gradients, mpi());
}

TEST_CASE("released gradients do not change results on GPUs") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator parameters(mpi());
  NcclCommunicator gradients(mpi());
  check_gradient_release(*device, parameters, gradients, mpi());
  // Kernels overwrite 32 MiB in much less time than a copy takes.
  check_shared_gradients(*device, int64_t{1} << 24);
  if (mpi().world_size() == 1) return;
  LocalCommunicator alone;
  NcclCommunicator node_parameters(mpi(), NcclEngine::kKernels), node_gradients(mpi(), NcclEngine::kKernels);
  check_gradient_release(*device, {alone, node_parameters}, {alone, node_gradients}, mpi());
}

TEST_CASE("states that move to the GPU between two steps are updated there") {
  const auto device = rank_gpu();
  if (!device) return;
  NcclCommunicator parameters(mpi());
  NcclCommunicator gradients(mpi());
  for (const double ratio : {0.9, 0.0}) {
    for (const int stage : {2, 3}) {
      ToyRun run{.stage = stage, .samples = mpi().world_size(), .steps = 1, .optimizer = Placement::kHost};
      ZeroEngine engine = make_toy_engine(run, *device, parameters, gradients);
      engine.initialize(ToyWeights(), mpi());
      train_toy(engine, run, *device, mpi().rank(), mpi().world_size());
      const MemoryUse before = engine.memory_use();
      engine.set_host_ratio(ratio);
      const MemoryUse after = engine.memory_use();
      CHECK(after.optimizer_states > before.optimizer_states);
      CHECK(after.optimizer_states + after.host_optimizer_states == before.host_optimizer_states);
      run.steps = 3;
      train_toy(engine, run, *device, mpi().rank(), mpi().world_size(), /*first_step=*/1);
      // All states on the GPU from the start, which differ in the last bits only.
      ToyRun device_run = run;
      device_run.optimizer = Placement::kDevice;
      ZeroEngine other = make_toy_engine(device_run, *device, parameters, gradients);
      other.initialize(ToyWeights(), mpi());
      train_toy(other, device_run, *device, mpi().rank(), mpi().world_size());
      for (size_t u = 0; u < toy_units().size(); ++u) {
        const std::span<const float> one = engine.read_state(u, StateKind::kMaster);
        const std::vector<float> copy(one.begin(), one.end());
        const std::span<const float> two = other.read_state(u, StateKind::kMaster);
        for (size_t i = 0; i < copy.size(); ++i) REQUIRE(copy[i] == Approx(two[i]).epsilon(1e-5).margin(1e-6));
      }
    }
  }
}

}  // namespace mpzero::parallel
