#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/stopwatch.hpp"
#include "model/kernels/cublas_lt.hpp"
#include "model/matmuls.hpp"

namespace mpzero::bench {

// What this GPU does at best, measured.
struct Ceilings {
  double bytes_per_second = 0;  // device copy, read and written bytes counted
  double flops = 0;             // bf16 matrix product of 8192^3
};
Ceilings measure_ceilings();

// The seconds of the fastest of the algorithms that cuBLASLt proposes for a matrix product; `accumulates`: one that
// adds to what is in its result.
double best_matmul_seconds(const model::MatmulShape& shape, bool accumulates, int sets);

// The operations of one part of a step, and how close each comes to the ceiling.
class Roofline {
 public:
  Roofline(std::string workload, const Ceilings& ceilings) : workload_(std::move(workload)), ceilings_(ceilings) {}

  // `part`: what the operation belongs to, "layer forward" say. `calls`: how often a step runs it; 0: another way to do
  // it. `bytes`: the fewest that it must move, a call.
  void memory(const std::string& part, const std::string& name, double calls, double bytes, int sets, const Body& body);
  // `flops` a call. The ceiling is that of the large matrix product.
  void compute(const std::string& part, const std::string& name, double calls, double flops, int sets,
               const Body& body);
  // The ceiling is the best cuBLASLt time of the same product; `adds`: a matrix to it.
  void matmul(const std::string& part, const std::string& name, double calls, const model::MatmulShape& shape,
              bool adds, int sets, const Body& body);
  // A whole that was measured, beside the sum of the parts whose names begin with `parts`; an empty name: of all.
  void whole(const std::string& name, double calls, const std::string& parts, const Timing& timing,
             double flops_per_call = 0);

  // What tuning chose for the products, beside ATen's and cuBLASLt's own first choice.
  void tuned(const std::vector<model::TunedMatmul>& matmuls);

  // A table of the operations, with their shares of the whole called "step".
  std::string to_markdown() const;
  nlohmann::json to_json() const {
    return {{"workload", workload_}, {"operations", rows_}, {"wholes", wholes_}, {"tuned", tuned_}};
  }

 private:
  void add(const std::string& part, const std::string& name, double calls, double seconds, double amount,
           const char* unit, double ceiling_seconds);

  std::string workload_;
  Ceilings ceilings_;
  nlohmann::json rows_ = nlohmann::json::array(), wholes_ = nlohmann::json::array(), tuned_ = nlohmann::json::array();
  std::string last_part_;
};

}  // namespace mpzero::bench
