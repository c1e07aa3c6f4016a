#include <map>
#include <set>
#include <string>

#include "app/gpu/gpu_models.hpp"
#include "app/machine/instances.hpp"
#include "base/device/simulated.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

// What another source than the table's says: rates with sparsity, of which the dense ones are half.
TEST_CASE("dense rates are half of the rates with sparsity") {
  const std::map<std::string, std::pair<double, double>> bf16_and_fp8{{"NVIDIA H100 80GB HBM3", {1979, 3958}},
                                                                      {"NVIDIA H100 PCIe", {1513, 3026}},
                                                                      {"NVIDIA H200", {1979, 3958}},
                                                                      {"NVIDIA GH200 480GB", {1979, 3958}},
                                                                      {"NVIDIA L40S", {724, 1466}},
                                                                      {"NVIDIA L4", {242, 485}},
                                                                      {"NVIDIA B200", {4500, 9000}},
                                                                      {"NVIDIA GB200", {5000, 10000}},
                                                                      {"NVIDIA B300 SXM6 AC", {4500, 9000}}};
  for (const auto& [name, rates] : bf16_and_fp8) {
    INFO(name);
    CHECK(dense_bf16_flops(name).value() == Approx(rates.first / 2 * 1e12).epsilon(2e-3));
    CHECK(dense_fp8_flops(name).value() == Approx(rates.second / 2 * 1e12).epsilon(2e-3));
  }
  CHECK(dense_bf16_flops("NVIDIA A100-SXM4-40GB") == 312e12);
  CHECK(dense_bf16_flops("NVIDIA A10G") == 70e12);
  CHECK(fp32_flops("NVIDIA H200") == 67e12);
  // 989 TFLOP/s and 64 GB/s; 2,250 TFLOP/s and 64 GB/s.
  for (const auto& [name, flops] : {std::pair("NVIDIA H200", 989e12 / 64e9), {"B200", 2250e12 / 64e9}}) {
    simulate_hardware(name, /*threads=*/0);
    CHECK(simulated_target().flops_per_byte == Approx(flops));
  }
  for (const char* unknown : {"NVIDIA GH200 480GB", "Tesla T4", "cpu"}) {
    simulate_hardware(unknown, /*threads=*/2);
    CHECK(simulated_target() == SimulatedTarget{.threads = 2});
  }
  CHECK(fp32_flops("NVIDIA A100-SXM4-80GB") == 19.5e12);
}

TEST_CASE("the rate of an unsupported dtype is unknown") {
  for (const char* name : {"Tesla T4", "Tesla V100-SXM2-16GB"}) CHECK_FALSE(dense_bf16_flops(name));
  for (const char* name : {"NVIDIA A100-SXM4-80GB", "NVIDIA A10G", "Tesla T4"}) CHECK_FALSE(dense_fp8_flops(name));
}

// Whatever stands before or after a known name makes another GPU of it.
TEST_CASE("a name that only resembles a known GPU is not matched") {
  CHECK(find_gpu_model("NVIDIA GB200") != find_gpu_model("NVIDIA B200"));
  for (const GpuModel& model : all_gpu_models()) {
    const std::string name(model.cuda_name);
    INFO(name);
    CHECK(find_gpu_model(name) == &model);
    CHECK(find_gpu_model(name + " MIG 1g.10gb") == nullptr);
    CHECK(find_gpu_model("X" + name) == nullptr);
    CHECK(find_gpu_model(name.substr(0, name.size() - 1) + "_") == nullptr);
  }
  for (const char* name : {"", "NVIDIA", "NVIDIA GeForce RTX 4090", "NVIDIA B20", "B2000", "H100 94GB", "A1000"}) {
    INFO(name);
    CHECK(find_gpu_model(name) == nullptr);
  }
}

TEST_CASE("the table contains each GPU of EC2's instances") {
  for (const doctor::Instance& instance : doctor::all_instances()) {
    if (instance.gpus == 0) continue;
    INFO(instance.type);
    const GpuModel* const model = find_gpu_model(instance.gpu);
    REQUIRE(model != nullptr);
    CHECK(model->name == instance.gpu);
  }
  CHECK(find_gpu_model("A100-80GB")->cuda_name == "NVIDIA A100-SXM4-80GB");
  CHECK(find_gpu_model("A100 40GB")->cuda_name == "NVIDIA A100-SXM4-40GB");
}

TEST_CASE("names are unique, and GPUs with the same name have the same rates") {
  std::set<std::string_view> names;
  for (const GpuModel& model : all_gpu_models()) {
    INFO(model.cuda_name);
    CHECK(names.insert(model.cuda_name).second);
    const GpuModel& first = *find_gpu_model(model.name);
    CHECK((model.bf16 == first.bf16 && model.fp8 == first.fp8 && model.fp32 == first.fp32));
    CHECK((model.bf16 == 0 || model.capability >= 80));
    CHECK((model.fp8 == 0 || model.capability >= 89));
  }
}

}  // namespace
}  // namespace mpzero
