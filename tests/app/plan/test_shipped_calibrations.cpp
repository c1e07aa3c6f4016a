#include <unistd.h>

#include <string>

#include "app/plan/calibration.hpp"
#include "app/plan/calibration_file.hpp"
#include "app/plan/shipped_calibrations.hpp"
#include "app/plan/unit_times.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/hand_made.hpp"
#include "tests/catch.hpp"

namespace mpzero::plan {
namespace {

namespace fs = std::filesystem;

const std::vector<fs::path> kFolders{"/nonexistent", MPZERO_SOURCE_DIR "/configs/calibrations"};

std::string file_for(const std::string& gpu) { return calibration_for(gpu, kFolders).filename().string(); }

}  // namespace

TEST_CASE("GPU calibrations are found by CUDA's names and by the names in tables") {
  CHECK(file_for("NVIDIA H200") == "h200.json");
  CHECK(file_for("H200 141GB") == "h200.json");
  CHECK(file_for("NVIDIA H100 80GB HBM3") == "h100.json");
  CHECK(file_for("H100 80GB") == "h100.json");
  CHECK(file_for("NVIDIA A100-SXM4-40GB") == "a100_40gb.json");
  CHECK(file_for("A100 80GB") == "a100_80gb.json");
  CHECK(file_for("NVIDIA L40S") == "l40s.json");
  CHECK(file_for("L40S 48GB") == "l40s.json");
  for (const char* other : {"NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA GH200 480GB", "L40S 480GB"}) {
    CHECK_THAT(error_from([&] { file_for(other); }), Catch::Contains("no calibration for " + std::string(other)));
  }
  CHECK(error_from([] { file_for("Tesla T4"); }) ==
        "no calibration for Tesla T4 in configs/calibrations (available: NVIDIA A100-SXM4-40GB, NVIDIA "
        "A100-SXM4-80GB, NVIDIA H100 80GB HBM3, NVIDIA H200, NVIDIA L40S); measure such a machine with `mpzero "
        "plan --calibrate FILE`, and pass --calibration FILE");
  CHECK(error_from([] { calibration_for("NVIDIA H200", {"/nonexistent", "/none"}); }) ==
        "no calibrations in /nonexistent or /none; run mpzero from its checkout, or "
        "measure this machine with `mpzero plan --calibrate FILE`");
  CHECK(fs::exists(calibration_for("NVIDIA H200")));
}

TEST_CASE("the shipped calibrations rank GPUs like their data sheets and report their errors") {
  const auto llama = model::ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/llama_3_8b.json");
  double last = 0;
  Seconds h200;
  for (const char* gpu : {"H200 141GB", "H100 80GB", "L40S", "A100 80GB", "A100 40GB"}) {
    INFO(gpu);
    const Calibration calibration = Calibration::from_file(calibration_for(gpu, kFolders));
    const UnitTimes times = unit_times(calibration, llama, {.sequences = 1, .length = 8192});
    if (std::string(gpu) == "L40S") {
      // Faster products than an A100's by its data sheet, and far slower memory.
      const UnitTimes a100 = unit_times(Calibration::from_file(calibration_for("A100 80GB", kFolders)), llama,
                                        {.sequences = 1, .length = 8192});
      CHECK(times.layer_forward[model::Recompute::kNone].matmuls < a100.layer_forward[model::Recompute::kNone].matmuls);
      CHECK(times.layer_forward[model::Recompute::kNone].elementwise >
            2 * a100.layer_forward[model::Recompute::kNone].elementwise);
      CHECK(calibration.error() >= 0.25);
      continue;
    }
    if (std::string(gpu) == "H200 141GB") h200 = times.layer_forward[model::Recompute::kNone];
    if (std::string(gpu) == "H100 80GB") {
      // The same multiprocessors, on two machines, and slower memory.
      CHECK(times.layer_forward[model::Recompute::kNone].matmuls == Approx(h200.matmuls).epsilon(0.15));
      CHECK(times.layer_forward[model::Recompute::kNone].elementwise > 1.05 * h200.elementwise);
    } else {
      CHECK(times.layer_forward[model::Recompute::kNone].total() > last);
    }
    last = times.layer_forward[model::Recompute::kNone].total();
    const bool measured = calibration.data().source.find("Not measured") == std::string::npos;
    if (std::string(gpu).starts_with("H")) CHECK(measured);
    if (std::string(gpu).starts_with("A100")) CHECK_FALSE(measured);
    CHECK((calibration.error() > 0.1) == !measured);
    CHECK(pcie_seconds(calibration, 1e9, PcieDirection::kToDevice) > 0);
  }
}

TEST_CASE("among a processor's calibrations, the most similar ranks and threads are selected") {
  const fs::path folder = fs::temp_directory_path() / ("mpzero_cpus_" + std::to_string(getpid()));
  fs::create_directories(folder);
  CalibrationData data = hand_made("A CPU", /*gpu=*/false);
  const auto write = [&](const std::string& name, int ranks, int threads) {
    data.host.ranks = ranks;
    data.host.threads = threads;
    write_calibration(folder / name, data);
  };
  write("one.json", 1, 8);
  write("two.json", 2, 4);
  write("eight.json", 8, 1);
  const auto chosen = [&](int ranks, int threads) {
    return calibration_for("A CPU, bound", {folder}, {.ranks = ranks, .threads = threads}).filename().string();
  };
  CHECK(chosen(1, 8) == "one.json");
  CHECK(chosen(1, 16) == "one.json");
  CHECK(chosen(2, 4) == "two.json");
  CHECK(chosen(4, 1) == "eight.json");
  // A GPU's name says nothing of a processor, and the other way round.
  CHECK_THAT(error_from([&] { calibration_for("A CPU", {folder}); }), Catch::Contains("no calibration for A CPU"));
  fs::remove_all(folder);
}

}  // namespace mpzero::plan
