#pragma once

#include <filesystem>
#include <string>

namespace mpzero::doctor {

// The processor's name, e.g. "Intel(R) Xeon(R) Platinum 8488C". One without a number, as hypervisors give to virtual
// machines, with what tells its kind: "AMD EPYC, family 26, model 2". "CPU" where the system says nothing.
std::string processor_name(const std::filesystem::path& root = "/");

}  // namespace mpzero::doctor
