// The sums of operations of bench/ROOFLINE.md: its table "Steps", "its operations one by one", from a calibration that
// was made of the same page's calls.
#include <string>
#include <vector>

#include "app/plan/calibration.hpp"
#include "app/plan/unit_times.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/hand_made.hpp"
#include "tests/catch.hpp"

namespace mpzero::plan {
namespace {

using model::ModelConfig;
using model::Recompute;

ModelConfig preset(const std::string& name) {
  return ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/" + name + ".json");
}

const Calibration& roofline() {
  static const Calibration kRead =
      Calibration::from_file(MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json");
  return kRead;
}

// A device of round figures: a product takes a microsecond for each 1e9 operations, attention for each 1e8, a kernel
// for each 1e6 bytes.
CalibrationData round_figures() {
  CalibrationData data = hand_made("a device", /*gpu=*/true);
  const model::MatmulShape shape{.rows = 1000, .columns = 1000, .inner = 500};
  data.matmuls.push_back({.shape = shape, .adds = false, .seconds = 1e-6});
  data.attention.push_back({.shape = {1, 1000, 1, 1, 50}, .forward_seconds = 1e-6, .backward_seconds = 2.5e-6});
  data.copies.on_device = 1e12;
  data.launch_seconds = 1e-5;
  return data;
}

}  // namespace

TEST_CASE("the times of operations add up to the six terms of the roofline") {
  struct Work {
    const char* preset;
    int64_t sequences, length;
    double forward, backward, head;  // ms, of all layers
  };
  for (const Work& work : std::vector<Work>{{"qwen3_0_6b", 8, 2048, 31.19, 73.96, 24.46},
                                            {"qwen3_0_6b", 1, 2048, 5.39, 12.50, 2.90},
                                            {"qwen2_5_0_5b", 8, 2048, 25.25, 53.43, 21.55},
                                            {"qwen2_5_0_5b", 1, 2048, 4.26, 9.15, 2.65},
                                            {"llama_3_8b", 1, 8192, 200.89, 438.33, 36.45},
                                            {"llama_3_8b", 4, 512, 44.09, 92.75, 8.92}}) {
    INFO(work.preset << " " << work.sequences << "x" << work.length);
    const ModelConfig model = preset(work.preset);
    const UnitTimes times = unit_times(roofline(), model, {.sequences = work.sequences, .length = work.length});
    const double ms = 1e3 / times.step_factor;
    const auto layers = static_cast<double>(model.num_hidden_layers);
    CHECK(layers * times.layer_forward[Recompute::kNone].on_device() * ms == Approx(work.forward).epsilon(0.02));
    CHECK(layers * times.layer_backward[Recompute::kNone].on_device() * ms == Approx(work.backward).epsilon(0.02));
    // The page's products of the head all add to a gradient; the first of a step overwrites it. The page excludes the
    // copy of the head's fp32 gradient, which is summed over chunks of tokens, to bf16.
    const bool in_chunks = work.sequences * work.length > 4096;
    const auto elements = static_cast<double>(model.vocab_size * model.hidden_size);
    const double copied = in_chunks ? device_copy_seconds(roofline(), elements * (4 + 2) / 2) : 0;
    CHECK(times.head.on_device() * ms == Approx(work.head + copied * 1e3).epsilon(0.05));
    CHECK(times.layer_forward[Recompute::kNone].extrapolated == 0);
    CHECK(times.layer_backward[Recompute::kNone].extrapolated == 0);
    CHECK(times.layer_forward[Recompute::kNone].total() >= times.layer_forward[Recompute::kNone].on_device());
  }
}

TEST_CASE("the host optimizer and copies match the roofline") {
  CHECK(host_adamw_seconds(roofline(), 605000000) == Approx(0.1));
  CHECK(pcie_seconds(roofline(), 55.6e9, PcieDirection::kToDevice) == Approx(1));
  CHECK(device_copy_seconds(roofline(), 2.12e12) == Approx(1));
}

TEST_CASE("the times of a small model match hand-computed values") {
  const ModelConfig model = preset("llama_3_8b");
  const Calibration calibration(round_figures(), "by hand");
  const MicroBatchShape shape{.sequences = 1, .length = 1024};
  const UnitTimes times = unit_times(calibration, model, shape);
  // Weights of a layer: q, k, v 4096 x 6144, output 4096 x 4096, gate and up 4096 x 28672, down 14336 x 4096.
  const double weights = 4096.0 * (6144 + 4096 + 28672 + 14336);
  CHECK(times.layer_forward[Recompute::kNone].matmuls == Approx(1e-15 * 2 * 1024 * weights));
  CHECK(times.layer_backward[Recompute::kNone].matmuls == Approx(2 * times.layer_forward[Recompute::kNone].matmuls));
  CHECK(times.layer_backward[Recompute::kSelective].matmuls ==
        Approx(2 * times.layer_forward[Recompute::kNone].matmuls));
  // All but down.
  CHECK(times.layer_backward[Recompute::kFull].matmuls ==
        Approx(3 * times.layer_forward[Recompute::kNone].matmuls - 1e-15 * 2 * 1024 * 14336 * 4096));
  // 2 x T^2 x heads x D operations, 1e14 a second; 2.5 times as many backward.
  CHECK(times.layer_forward[Recompute::kNone].attention == Approx(2e-14 * 1024 * 1024 * 4096));
  CHECK(times.layer_backward[Recompute::kNone].attention ==
        Approx(2.5 * times.layer_forward[Recompute::kNone].attention));
  CHECK(times.layer_backward[Recompute::kFull].attention ==
        Approx(3.5 * times.layer_forward[Recompute::kNone].attention));
  // bf16: two norms of 2 x H, rotation of 2 x 40 heads, swiglu of 3 x I, at 1e12 bytes a second.
  CHECK(times.layer_forward[Recompute::kNone].elementwise ==
        Approx(2e-12 * 1024 * (2 * 2 * 4096 + 2 * 40 * 128 + 3 * 14336)));
  // Selective recomputation writes swiglu's and both norms' outputs again.
  CHECK(times.layer_backward[Recompute::kSelective].elementwise - times.layer_backward[Recompute::kNone].elementwise ==
        Approx(2e-12 * 1024 * (2 * 4096 + 14336)));
  CHECK(times.layer_forward[Recompute::kNone].launch_bound == Approx(9e-5));  // four products, attention, four kernels
  // Each tile of 256 tokens: a norm, two products, the activation, and a copy into the output.
  MicroBatchShape in_tiles = shape;
  in_tiles.mlp_tile = 256;
  const UnitTimes tiled = unit_times(calibration, model, in_tiles);
  CHECK(tiled.layer_forward[Recompute::kFull].launch_bound == Approx(9e-5));
  CHECK(tiled.layer_forward[Recompute::kTiled].launch_bound == Approx(5e-5 + 4 * 5e-5));
  CHECK(tiled.layer_forward[Recompute::kHost].launch_bound == tiled.layer_forward[Recompute::kTiled].launch_bound);
  CHECK(times.head.matmuls == Approx(1e-15 * 6 * 1024 * 4096.0 * 128256));
  // Zeros for 128256 x 4096 gradients, unless they are there.
  CHECK(times.embedding_backward.elementwise == Approx(2e-12 * 4096 * (128256 + 3.0 * 1024)));
  MicroBatchShape later = shape;
  later.accumulates = true;
  CHECK(unit_times(calibration, model, later).embedding_backward.elementwise == Approx(2e-12 * 4096 * 3.0 * 1024));
}

TEST_CASE("the times of T5 layers match hand-computed values") {
  CalibrationData data = round_figures();
  // fp32, whose products take ten times as long.
  data.matmuls.push_back(
      {.shape = {.rows = 1000, .columns = 1000, .inner = 500, .type = at::kFloat, .out_type = at::kFloat},
       .adds = false,
       .seconds = 1e-5});
  ModelConfig t5 = ModelConfig::from_file(MPZERO_SOURCE_DIR "/tests/model/fixtures/t5.json");  // d 24, 3 heads of 10
  MicroBatchShape shape{.sequences = 2, .length = 164, .source_length = 100};
  const Calibration calibration(data, "by hand");
  const UnitTimes encoder = unit_times(calibration, t5, shape);
  // Two products of each score, 1e14 operations a second, and 8 passes over it in fp32, 1e12 bytes a second; five and
  // 21 backward.
  const auto attention = [](double scores) { return scores * (2 * 2 * 10 / 1e14 + 8 * 4 / 1e12); };
  const auto backward = [](double scores) { return scores * (5 * 2 * 10 / 1e14 + 21 * 4 / 1e12); };
  CHECK(encoder.layer_forward[Recompute::kNone].attention == Approx(attention(2 * 3 * 100 * 100)));
  CHECK(encoder.layer_backward[Recompute::kNone].attention == Approx(backward(2 * 3 * 100 * 100)));
  CHECK(encoder.layer_forward[Recompute::kNone].matmuls == Approx(2 * 200 * 24 * (4 * 30 + 2 * 40) / 1e15));
  // bf16: two norms of 2 d, ReLU of 2 x 40.
  CHECK(encoder.layer_forward[Recompute::kNone].elementwise == Approx(2 * 200 * (2 * 2 * 24 + 2 * 40) / 1e12));
  shape.layer = t5.t5->encoder_layers;
  const UnitTimes decoder = unit_times(calibration, t5, shape);
  CHECK(decoder.layer_forward[Recompute::kNone].attention ==
        Approx(attention(2 * 3 * 64 * 64) + attention(2 * 3 * 64 * 100)));
  // Dropout reads and writes its matrices: three outputs, ReLU's, and both scores in fp32.
  t5.t5->dropout_rate = 0.1;
  const double dropped = 2.0 * 2 * 128 * (3 * 24 + 40) + 2.0 * 4 * 2 * 3 * 64 * (64 + 100),
               added = 3 * 2.0 * 128 * 24 * 3;
  const UnitTimes with_dropout = unit_times(calibration, t5, shape);
  CHECK(with_dropout.layer_forward[Recompute::kNone].elementwise -
            decoder.layer_forward[Recompute::kNone].elementwise ==
        Approx((dropped + added) / 1e12));
}

TEST_CASE("the times of an FP8 layer match hand-computed values, without measured FP8 times") {
  const Calibration calibration(round_figures(), "a file");
  CHECK_FALSE(calibration.has_fp8());
  const ModelConfig model = preset("qwen3_tiny");
  MicroBatchShape shape{.sequences = 1, .length = 1024};
  const UnitTimes bf16 = unit_times(calibration, model, shape);
  const model::Fp8Options fp8;
  shape.fp8 = fp8;
  shape.casts = WeightCasts::kKept;
  const UnitTimes kept = unit_times(calibration, model, shape);
  CHECK(kept.layer_forward[Recompute::kNone].matmuls == Approx(bf16.layer_forward[Recompute::kNone].matmuls / 2));
  CHECK(kept.layer_backward[Recompute::kNone].matmuls == Approx(bf16.layer_backward[Recompute::kNone].matmuls / 2));
  CHECK(kept.head.total() == Approx(bf16.head.total()));
  // Casts move 0.75 of 1e12 bytes a second. Of both forms, with a known largest magnitude: 4 bytes an element; of
  // attention's output one form and the magnitude: 5.
  const double tokens = 1024, hidden = static_cast<double>(model.hidden_size),
               inner = static_cast<double>(model.intermediate_size), query = static_cast<double>(model.query_size());
  const double inputs = tokens * (2 * hidden + inner);
  const double casts =
      kept.layer_forward[Recompute::kNone].elementwise - bf16.layer_forward[Recompute::kNone].elementwise;
  CHECK(casts == Approx((4 * inputs + 5 * tokens * query) / 0.75e12));
  // Nothing is kept for the backward: one form.
  CHECK(kept.layer_forward[Recompute::kFull].elementwise - bf16.layer_forward[Recompute::kNone].elementwise ==
        Approx((3 * inputs + 5 * tokens * query) / 0.75e12));
  // The weights, once for both passes.
  shape.casts = WeightCasts::kFirstUse;
  const UnitTimes first = unit_times(calibration, model, shape);
  const double packed = query + 2 * static_cast<double>(model.key_value_size());
  const double weights = hidden * (packed + query + 3 * inner);
  CHECK(first.layer_forward[Recompute::kNone].elementwise - kept.layer_forward[Recompute::kNone].elementwise ==
        Approx(6 * weights / 0.75e12));
  CHECK(first.layer_backward[Recompute::kFull].total() == Approx(kept.layer_backward[Recompute::kFull].total()));
  // A quarter of the layers as those, the rest as these.
  const UnitTimes mean = mean_of({{1, first}, {3, kept}});
  CHECK(mean.layer_forward[Recompute::kNone].on_device() ==
        Approx(0.25 * first.layer_forward[Recompute::kNone].on_device() +
               0.75 * kept.layer_forward[Recompute::kNone].on_device()));
  CHECK(mean.layer_forward[Recompute::kNone].launch_bound ==
        Approx(0.25 * first.layer_forward[Recompute::kNone].launch_bound +
               0.75 * kept.layer_forward[Recompute::kNone].launch_bound));
  CHECK(mean.step_factor == Approx(1));
  // A scale for each row: slower casts.
  shape.casts = WeightCasts::kKept;
  shape.fp8->recipe.scaling = model::fp8::Scaling::kRowwise;
  CHECK(unit_times(calibration, model, shape).layer_forward[Recompute::kNone].elementwise -
            bf16.layer_forward[Recompute::kNone].elementwise ==
        Approx((6 * inputs + 5 * tokens * query) / 0.5e12));
}

TEST_CASE("an FP8 layer uses the measured FP8 times") {
  CalibrationData data = round_figures();
  // Half as long again as an estimate of it.
  const model::MatmulShape shape{.rows = 1000,
                                 .columns = 1000,
                                 .inner = 500,
                                 .b_transposed = true,
                                 .type = at::kFloat8_e4m3fn,
                                 .fp8 = model::Fp8Shape{.fast_accumulation = true}};
  data.matmuls.push_back({.shape = shape, .adds = false, .seconds = 0.75e-6});
  data.kernels["fp8_cast"].push_back({at::kBFloat16, 1e6, 2e-6});
  const Calibration calibration(data, "a file");
  CHECK(calibration.has_fp8());
  const ModelConfig model = preset("qwen3_tiny");
  const UnitTimes bf16 = unit_times(calibration, model, {.sequences = 1, .length = 1024});
  const UnitTimes times = unit_times(
      calibration, model, {.sequences = 1, .length = 1024, .fp8 = model::Fp8Options{}, .casts = WeightCasts::kKept});
  CHECK(times.layer_forward[Recompute::kNone].matmuls == Approx(0.75 * bf16.layer_forward[Recompute::kNone].matmuls));
  CHECK(calibration.seconds({.name = "fp8_cast", .bytes = 4e6}).seconds == Approx(8e-6));
}

TEST_CASE("launch times limit small micro-batches") {
  const Calibration calibration(round_figures(), "by hand");
  const UnitTimes times = unit_times(calibration, preset("qwen3_tiny"), {.sequences = 1, .length = 16});
  CHECK(times.layer_forward[Recompute::kNone].launch_bound > times.layer_forward[Recompute::kNone].on_device());
  CHECK(times.layer_forward[Recompute::kNone].total() == times.layer_forward[Recompute::kNone].launch_bound);
  Seconds both = times.layer_forward[Recompute::kNone];
  both += times.head;
  CHECK(both.launch_bound == Approx(times.layer_forward[Recompute::kNone].launch_bound + times.head.launch_bound));
  CHECK(both.matmuls == Approx(times.layer_forward[Recompute::kNone].matmuls + times.head.matmuls));
}

TEST_CASE("missing times are reported") {
  const Calibration calibration(round_figures(), "round.json");
  CHECK(error_from([&] { host_adamw_seconds(calibration, 1); }) ==
        "round.json: the calibration has no times for AdamW on the host; calibrate the target machine with `mpzero "
        "plan --calibrate FILE`");
  CHECK(error_from([&] { unit_times(calibration, preset("qwen3_tiny"), {.type = at::kFloat}); }) ==
        "round.json: the calibration has no times for matmuls in fp32; calibrate the target machine with `mpzero "
        "plan --calibrate FILE`");
}

}  // namespace mpzero::plan
