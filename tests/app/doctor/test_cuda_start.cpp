#include "app/doctor/cuda_start.hpp"
#include "base/collectives.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

GpuSurvey survey(const FakeRoot& root, const std::string& nvml) {
  const Setting setting("MPZERO_FAKE_NVML", nvml);
  return survey_gpus(root.system().nvml);
}

}  // namespace

TEST_CASE("only an NVLink domain of several hosts has a cluster id and a clique id") {
  const FakeRoot root;
  CHECK(survey(root, "").gpus.front().nvlink_domain.empty());
  CHECK(survey(root, "cluster=171 clique=3").gpus.front().nvlink_domain == "000000000000000000000000000000ab 3");
  CHECK(survey(root, "cluster=171 fabric=2").gpus.front().nvlink_domain.empty());
}

TEST_CASE("CUDA is initialized on the GPUs, and its errors are explained") {
  const FakeRoot root;
  const auto start = [&](const std::string& cuda, const std::string& nvml = "", const Job& job = {}) {
    const Setting cuda_setting("MPZERO_FAKE_CUDA", cuda);
    std::vector<CudaSurvey> surveys;
    for (int rank = 0; rank < job.local_ranks; ++rank) {
      SingleProcess alone;
      surveys.push_back(
          all_gather(alone, survey_cuda(root.system().cuda, {.index = rank, .of = job.local_ranks})).front());
    }
    return std::vector{check_cuda_start(job, survey(root, nvml), surveys)};
  };
  CHECK(find(start(""), "cuda").message == "initializes on 8 GPUs");

  // The Fabric Manager is down: the management library shows 8 healthy GPUs.
  const std::vector<Finding> down = start("init=802", "fabric=1");
  CHECK(find(down, "cuda").status == Status::kFailure);
  CHECK(find(down, "cuda").message ==
        "cuInit fails: CUDA_ERROR_SYSTEM_NOT_READY (802): NVIDIA's Fabric Manager is not running or has not finished "
        "starting");
  CHECK_THAT(find(down, "cuda").remedy, Catch::Contains("systemctl status nvidia-fabricmanager"));

  // Each rank opens its shard of the GPUs.
  const Job two{.local_ranks = 2};
  CHECK(find(start("context=46 sick=5", "", two), "cuda").message ==
        "cuDevicePrimaryCtxRetain fails for GPU 0000:1F:00.0: error 46: another process has exclusive use of the "
        "GPU, or the GPU needs a reset");
  CHECK(find(start("gpus=1", "", {.local_ranks = 4}), "cuda").message == "initializes on 1 GPU");

  const Job given{.given_gpus = {8, "Slurm", "SLURM_GPUS_ON_NODE"}};
  CHECK(find(start("gpus=7", "", given), "cuda").message ==
        "CUDA detects 7 of the 8 GPUs that Slurm assigned to the job");
  {
    const Setting some("CUDA_VISIBLE_DEVICES", "0,1");
    CHECK(find(start("gpus=2", "", given), "cuda").status == Status::kOk);
  }
  const Setting none_listed("CUDA_VISIBLE_DEVICES", "");
  CHECK(find(start("init=100"), "cuda").message == "not initialized: CUDA_VISIBLE_DEVICES hides all GPUs");
  CHECK(find(start("init=100", "", {.device = "cuda"}), "cuda").status == Status::kFailure);

  CHECK(check_cuda_start({.device = "cpu"}, {}, {}).status == Status::kOk);
  CHECK(check_cuda_start({}, {}, {}).status == Status::kOk);
  const Finding none = check_cuda_start({.device = "cuda"}, {}, {survey_cuda({"libno-such-cuda.so.1"}, {})});
  CHECK(none.status == Status::kFailure);
  CHECK_THAT(none.message, Catch::Contains("libno-such-cuda.so.1"));
}

}  // namespace mpzero::doctor
