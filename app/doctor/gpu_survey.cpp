#include "app/doctor/gpu_survey.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero::doctor {
namespace {

using Json = nlohmann::json;

// Visits every member that may be missing, by its name.
template <typename Gpu, typename Visit>
void for_each_member(Gpu& gpu, Visit visit) {
  visit("temperature", gpu.temperature);
  visit("sm_clock", gpu.sm_clock);
  visit("max_sm_clock", gpu.max_sm_clock);
  visit("throttle_reasons", gpu.throttle_reasons);
  visit("ecc", gpu.ecc);
  visit("uncorrected_errors", gpu.uncorrected_errors);
  visit("rows_pending", gpu.rows_pending);
  visit("rows_failed", gpu.rows_failed);
  visit("pcie_width", gpu.pcie_width);
  visit("max_pcie_width", gpu.max_pcie_width);
  visit("total_memory", gpu.total_memory);
  visit("used_memory", gpu.used_memory);
  visit("mig", gpu.mig);
}

Json to_value(const GpuState& gpu) {
  Json value = {{"name", gpu.name}, {"pci_address", gpu.pci_address}};
  for_each_member(gpu, [&](const char* name, const auto& member) {
    if (member) value[name] = *member;
  });
  for (const GpuProcess& process : gpu.processes) {
    Json& one = value["processes"].emplace_back(Json{{"pid", process.pid}});
    if (process.bytes) one["bytes"] = *process.bytes;
  }
  return value;
}

GpuState to_gpu(const Json& value) {
  GpuState gpu;
  value.at("name").get_to(gpu.name);
  value.at("pci_address").get_to(gpu.pci_address);
  for_each_member(gpu, [&]<typename Number>(const char* name, std::optional<Number>& member) {
    if (value.contains(name)) member = value.at(name).get<Number>();
  });
  for (const Json& one : value.value("processes", Json::array())) {
    GpuProcess process{.pid = one.at("pid"), .bytes = std::nullopt};
    if (one.contains("bytes")) process.bytes = one.at("bytes").get<uint64_t>();
    gpu.processes.push_back(process);
  }
  return gpu;
}

// A GPU without an address cannot be distinguished from those that are known.
bool holds(const std::vector<GpuState>& gpus, const GpuState& gpu) {
  return gpu.pci_address.empty() || std::any_of(gpus.begin(), gpus.end(), [&](const GpuState& one) {
           return parallel::same_gpu(one.pci_address, gpu.pci_address);
         });
}

}  // namespace

void to_json(Json& json, const GpuSurvey& survey) {
  Json gpus = Json::array();
  for (const GpuState& gpu : survey.gpus) gpus.push_back(to_value(gpu));
  json = {{"library", survey.library},
          {"problem", survey.problem},
          {"driver", survey.driver},
          {"cuda_version", survey.cuda_version},
          {"gpus", std::move(gpus)}};
}

void from_json(const Json& json, GpuSurvey& survey) {
  json.at("library").get_to(survey.library);
  json.at("problem").get_to(survey.problem);
  json.at("driver").get_to(survey.driver);
  json.at("cuda_version").get_to(survey.cuda_version);
  for (const Json& gpu : json.at("gpus")) survey.gpus.push_back(to_gpu(gpu));
}

GpuSurvey merge_surveys(const std::vector<GpuSurvey>& surveys) {
  GpuSurvey merged = surveys.front();
  for (const GpuSurvey& survey : std::span(surveys).subspan(1)) {
    if (merged.problem.empty()) merged.problem = survey.problem;
    for (const GpuState& gpu : survey.gpus) {
      if (!holds(merged.gpus, gpu)) merged.gpus.push_back(gpu);
    }
  }
  std::stable_sort(merged.gpus.begin(), merged.gpus.end(),
                   [](const GpuState& a, const GpuState& b) { return a.pci_address < b.pci_address; });
  return merged;
}

}  // namespace mpzero::doctor
