#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/config/recorded_settings.hpp"
#include "app/config/run_config.hpp"
#include "io/checkpoint/run_record.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// A run that has been read, checked and brought together, before anything large is allocated.
struct RunSetup {
  RunConfig config;
  model::ModelConfig model;
  std::string data_order;             // io::TrainingProgress::data_order
  DataIdentity data;                  // known once the run starts: see identify_data
  std::vector<std::string> warnings;  // for the user, one line each
  std::string start;                  // likewise; see io::SaveJob
  io::RunRecord run;                  // known once it is clear what the run resumes from
};

// Reads flags, ds_config.json, the model's config.json and the sizes of the data sets. Throws UserError for whatever
// its user should change. Every rank gets the same result.
RunSetup set_up_run(const std::vector<std::string>& arguments, int world_size);

}  // namespace mpzero
