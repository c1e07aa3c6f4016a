#include "app/machine/cuda_driver.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "app/gpu/shared_library.hpp"
#include "app/machine/gpu_promise.hpp"
#include "base/environment.hpp"

namespace mpzero::doctor {
namespace {

using Json = nlohmann::json;

// Declarations of the driver API's stable C interface: https://docs.nvidia.com/cuda/cuda-driver-api
using Result = int;
using Device = int;
constexpr Result kSuccess = 0, kNotFound = 500;

// Calls CUDA until a call fails.
class Driver {
 public:
  Driver(const SharedLibrary& library, CudaSurvey& survey) : library_(library), survey_(survey) {}

  template <typename... Arguments>
  bool call(const char* name, Arguments... arguments) {
    auto* function = library_.function<Result(Arguments...)>(name);
    survey_.error = function == nullptr ? kNotFound : function(arguments...);
    if (survey_.error == kSuccess) return true;
    survey_.failed_call = name;
    auto* name_of = library_.function<Result(Result, const char**)>("cuGetErrorName");
    const char* text = nullptr;
    if (name_of != nullptr && name_of(survey_.error, &text) == kSuccess && text != nullptr) survey_.error_name = text;
    return false;
  }

  // The addresses of all devices.
  bool list() {
    int count = 0;
    if (!call("cuDeviceGetCount", &count)) return false;
    for (Device device = 0; device < count; ++device) {
      std::array<char, 32> address{};
      if (!call("cuDeviceGetPCIBusId", address.data(), static_cast<int>(address.size()), device)) return false;
      survey_.gpus.emplace_back(address.data());
    }
    return true;
  }

  bool open(Device device) {
    void* context = nullptr;
    if (call("cuDevicePrimaryCtxRetain", &context, device)) return call("cuDevicePrimaryCtxRelease_v2", device);
    survey_.failed_gpu = survey_.gpus[static_cast<size_t>(device)];
    return false;
  }

 private:
  const SharedLibrary& library_;
  CudaSurvey& survey_;
};

}  // namespace

void to_json(Json& json, const CudaSurvey& survey) {
  json = {{"asked", survey.asked},
          {"library_error", survey.library_error},
          {"gpus", survey.gpus},
          {"failed_call", survey.failed_call},
          {"failed_gpu", survey.failed_gpu},
          {"error", survey.error},
          {"error_name", survey.error_name}};
  if (survey.listed) json["listed"] = *survey.listed;
}

void from_json(const Json& json, CudaSurvey& survey) {
  json.at("asked").get_to(survey.asked);
  json.at("library_error").get_to(survey.library_error);
  json.at("gpus").get_to(survey.gpus);
  json.at("failed_call").get_to(survey.failed_call);
  json.at("failed_gpu").get_to(survey.failed_gpu);
  json.at("error").get_to(survey.error);
  json.at("error_name").get_to(survey.error_name);
  if (json.contains("listed")) survey.listed = json.at("listed").get<int>();
}

CudaSurvey survey_cuda(const std::vector<std::string>& libraries, const Asker& asker) {
  CudaSurvey survey;
  survey.asked = true;
  survey.listed = listed_gpus(parallel::process_environment);
  const SharedLibrary library(libraries);
  if (!library) {
    survey.library_error = library.reason();
    return survey;
  }
  Driver driver(library, survey);
  if (!driver.call("cuInit", 0U) || !driver.list()) return survey;
  const int count = static_cast<int>(survey.gpus.size());
  for (Device device = 0; device < count; ++device) {
    if (count >= asker.of && device % asker.of != asker.index) continue;
    if (!driver.open(device)) return survey;
  }
  return survey;
}

}  // namespace mpzero::doctor
