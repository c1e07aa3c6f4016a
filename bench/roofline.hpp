#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/measure/stopwatch.hpp"
#include "model/kernels/cublas_lt.hpp"
#include "model/matmuls.hpp"

namespace mpzero::bench {

using measure::Body;
using measure::Timing;

// Measures `body` on the GPU.
Timing time_of(int sets, int repeats, const Body& body);

// Measured peak rates of this GPU.
struct Ceilings {
  double bytes_per_second = 0;  // device copy; counts bytes read and written
  double flops = 0;             // bf16 matmul of 8192^3
};
Ceilings measure_ceilings();

// Returns the time in seconds of the fastest algorithm that cuBLASLt proposes for a matmul. `accumulates`: the matmul
// accumulates into its output.
double best_matmul_seconds(const model::MatmulShape& shape, bool accumulates, int sets);

// Measured operations of a step, compared with their ceilings.
class Roofline {
 public:
  Roofline(std::string workload, const Ceilings& ceilings) : workload_(std::move(workload)), ceilings_(ceilings) {}

  // `part`: part of the step, e.g. "layer forward". `calls`: number of calls per step, or 0 for an alternative
  // implementation. `bytes`: minimum number of bytes to move per call. `seconds`: per call.
  void memory(const std::string& part, const std::string& name, double calls, double bytes, double seconds);
  // `flops`: per call. The ceiling is the rate of the 8192^3 matmul.
  void compute(const std::string& part, const std::string& name, double calls, double flops, double seconds);
  // The ceiling is the fastest cuBLASLt algorithm for the shape. `adds`: the matmul adds a matrix to its result.
  void matmul(const std::string& part, const std::string& name, double calls, const model::MatmulShape& shape,
              bool adds, double seconds);
  // Records a measured pass, compared with the sum of the operations whose part begins with `parts` (empty: all
  // operations).
  void full_pass(const std::string& name, double calls, const std::string& parts, const Timing& timing,
                 double flops_per_call = 0);

  // Records the tuning results of matmuls, with the times of ATen and of cuBLASLt's first heuristic result.
  void tuned(const std::vector<model::TunedMatmul>& matmuls);

  // Returns a table of the operations, with their shares of the step time.
  std::string to_markdown() const;
  nlohmann::json to_json() const {
    return {{"workload", workload_}, {"operations", rows_}, {"wholes", full_passes_}, {"tuned", tuned_}};
  }

 private:
  void add(const std::string& part, const std::string& name, double calls, double seconds, double amount,
           const char* unit, double ceiling_seconds);

  std::string workload_;
  Ceilings ceilings_;
  nlohmann::json rows_ = nlohmann::json::array(), full_passes_ = nlohmann::json::array(),
                 tuned_ = nlohmann::json::array();
  std::string last_part_;
};

}  // namespace mpzero::bench
