#include "app/train/start_facts.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/config/settings_table.hpp"
#include "app/config/zero_options.hpp"
#include "app/log/version.hpp"
#include "app/machine/device.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/host_name.hpp"

namespace mpzero {

nlohmann::ordered_json start_facts(const RunSetup& setup, const RunStart& start, const RunMemory& memory,
                                   parallel::MpiRuntime& mpi) {
  const RunConfig& config = setup.config;
  const std::vector<std::string> hosts = all_gather(mpi, host_name());
  return {{"version", version_text()},
          {"began", start.began},
          {"job", parallel::process_environment("SLURM_JOB_ID").value_or("")},
          {"model_type", config.model_type},
          {"parameters", model::num_parameters(setup.model)},
          {"devices", describe_devices(start.device, mpi)},
          {"gpus", start.device.is_cuda() ? mpi.world_size() : 0},
          {"world_size", mpi.world_size()},
          {"hosts", hosts},
          {"metrics_file", config.metrics_file},
          {"steps_done", start.steps_done},
          {"max_steps", config.max_steps},
          {"zero_stage", config.zero.stage},
          {"flops_per_token", training_flops_per_token(config, setup.model, config.seq_length)},
          {"settings", settings_rows(setup)},
          {"memory", memory.breakdown()}};
}

}  // namespace mpzero
