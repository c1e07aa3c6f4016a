#pragma once

#include <string>
#include <vector>

#include "parallel/mpi_runtime.hpp"

namespace mpzero {

// `mpzero train`: `arguments` are the flags behind it. Collective over all ranks of `mpi`.
void train(const std::vector<std::string>& arguments, parallel::MpiRuntime& mpi);

}  // namespace mpzero
