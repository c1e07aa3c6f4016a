#include "bench/roofline.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace mpzero::bench {
namespace {

constexpr int kRepeats = 20;
constexpr int kAlgorithms = 24;
constexpr size_t kFinalists = 4;

at::TensorOptions bf16_on_gpu() { return at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA); }

std::vector<at::Tensor> random_sets(int sets, at::IntArrayRef shape) {
  std::vector<at::Tensor> made;
  for (int i = 0; i < sets; ++i) made.push_back(at::randn(shape, bf16_on_gpu()));
  return made;
}

}  // namespace

Timing time_of(int sets, int repeats, const Body& body) {
  return measure::measure(at::kCUDA, sets, {.repeats = repeats, .least = repeats}, body);
}

Ceilings measure_ceilings() {
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(at::kCUDA);
  const int64_t count = int64_t{1} << 30;
  const at::Tensor source = at::empty({count}, bytes).random_();
  at::Tensor destination = at::empty({count}, bytes);
  const Timing copy = time_of(2, kRepeats, [&](int) {
    destination.copy_(source);
    return std::vector<at::Tensor>{};
  });
  const int64_t side = 8192;
  const auto a = random_sets(2, {side, side}), b = random_sets(2, {side, side});
  const Timing product = time_of(2, kRepeats, [&](int set) {
    return std::vector<at::Tensor>{at::mm(a[static_cast<size_t>(set)], b[static_cast<size_t>(set)])};
  });
  const auto cube = static_cast<double>(side) * side * side;
  return {.bytes_per_second = 2.0 * static_cast<double>(count) / copy.seconds, .flops = 2.0 * cube / product.seconds};
}

double best_matmul_seconds(const model::MatmulShape& s, bool accumulates, int sets) {
  const model::LtMatmul matmul(s, kAlgorithms);
  const auto stored = [](int64_t rows, int64_t columns, bool transposed) {
    return transposed ? std::vector<int64_t>{columns, rows} : std::vector<int64_t>{rows, columns};
  };
  const auto a = random_sets(sets, stored(s.rows, s.inner, s.a_transposed));
  const auto b = random_sets(sets, stored(s.inner, s.columns, s.b_transposed));
  std::vector<at::Tensor> outs;
  for (int set = 0; set < sets; ++set) {
    outs.push_back(at::zeros({s.rows, s.columns}, bf16_on_gpu().dtype(s.out_type)));
  }
  const auto seconds = [&](size_t algorithm, int repeats) {
    return time_of(sets, repeats,
                   [&](int set) {
                     at::Tensor& out = outs[static_cast<size_t>(set)];
                     matmul.run(a[static_cast<size_t>(set)], b[static_cast<size_t>(set)],
                                accumulates ? out : at::Tensor(), out, algorithm);
                     return std::vector<at::Tensor>{};
                   })
        .seconds;
  };
  std::vector<std::pair<double, size_t>> quick;
  for (size_t algorithm = 0; algorithm < matmul.algorithms(); ++algorithm) {
    quick.emplace_back(seconds(algorithm, 1), algorithm);
  }
  std::sort(quick.begin(), quick.end());
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(kFinalists, quick.size()); ++i) {
    best = std::min(best, seconds(quick[i].second, kRepeats / 2));
  }
  return best;
}

void Roofline::add(const std::string& part, const std::string& name, double calls, double seconds, double amount,
                   const char* unit, double ceiling_seconds) {
  if (part != last_part_) {
    fmt::print("\n{}: {}\n  {:34} {:>6} {:>10} {:>10} {:>14} {:>8}\n", workload_, part, "", "calls", "us/call",
               "ms/step", "rate", "ceiling");
  }
  last_part_ = part;
  fmt::print("  {:34} {:6.0f} {:10.1f} {:10.2f} {:7.0f} {:6} {:7.1f}%\n", name, calls, seconds * 1e6,
             calls * seconds * 1e3, amount / seconds, unit, 100.0 * ceiling_seconds / seconds);
  std::fflush(stdout);
  rows_.push_back({{"part", part},
                   {"name", name},
                   {"calls", calls},
                   {"seconds", seconds},
                   {"rate", amount / seconds},
                   {"unit", unit},
                   {"share_of_ceiling", ceiling_seconds / seconds}});
}

void Roofline::memory(const std::string& part, const std::string& name, double calls, double bytes, double seconds) {
  add(part, name, calls, seconds, bytes * 1e-9, "GB/s", bytes / ceilings_.bytes_per_second);
}

void Roofline::compute(const std::string& part, const std::string& name, double calls, double flops, double seconds) {
  add(part, name, calls, seconds, flops * 1e-12, "TFLOPS", flops / ceilings_.flops);
}

void Roofline::matmul(const std::string& part, const std::string& name, double calls, const model::MatmulShape& shape,
                      bool adds, double seconds) {
  const model::Operation operation = on_matmul(shape, adds);
  add(part, name, calls, seconds, operation.flops * 1e-12, "TFLOPS",
      best_matmul_seconds(shape, adds, measure::sets_for(operation.bytes)));
}

void Roofline::full_pass(const std::string& name, double calls, const std::string& parts, const Timing& timing,
                         double flops_per_call) {
  double sum = 0, ceiling = 0;
  for (const auto& row : rows_) {
    if (!row["part"].get<std::string>().starts_with(parts)) continue;
    const double seconds = row["calls"].get<double>() * row["seconds"].get<double>();
    sum += seconds;
    ceiling += seconds * row["share_of_ceiling"].get<double>();
  }
  const double measured = calls * timing.seconds;
  fmt::print("{}: {:26} {:8.2f} ms measured, {:8.2f} ms sum of operations, {:8.2f} ms at the ceilings; host {:.2f} ms",
             workload_, name, measured * 1e3, sum * 1e3, ceiling * 1e3, calls * timing.host_seconds * 1e3);
  if (flops_per_call > 0) fmt::print("; {:.1f}% of 989 TFLOPS", flops_per_call / timing.seconds / 989e12 * 100);
  fmt::print("\n");
  full_passes_.push_back({{"name", name},
                          {"seconds", measured},
                          {"sum_of_operations", sum},
                          {"sum_at_ceilings", ceiling},
                          {"host_seconds", calls * timing.host_seconds}});
}

void Roofline::tuned(const std::vector<model::TunedMatmul>& matmuls) {
  double sum = 0;
  fmt::print("\n{}: tuned matmuls\n  {:>7} x {:>7} x {:>7}  {:2} {:5} {:8} {:>9} {:>9} {:>9} {:>6} {:>8}  {}\n",
             workload_, "rows", "columns", "inner", "", "out", "", "us", "ATen us", "first us", "tried", "tuned ms",
             "algorithm");
  for (const model::TunedMatmul& m : matmuls) {
    const model::MatmulShape& s = m.shape;
    const std::string layout = fmt::format("{}{}", s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N');
    const char* type = s.out_type == at::kFloat ? "fp32" : "bf16";
    const char* extra = m.adds ? "+ matrix" : s.bias ? "+ bias" : "";
    fmt::print("  {:7} x {:7} x {:7}  {} {:5} {:8} {:9.1f} {:9.1f} {:9.1f} {:6} {:8.1f}  {}\n", s.rows, s.columns,
               s.inner, layout, type, extra, m.seconds * 1e6, m.aten_seconds * 1e6, m.first_seconds * 1e6, m.tried,
               m.tuning_seconds * 1e3, m.algorithm);
    sum += m.tuning_seconds;
    tuned_.push_back({{"rows", s.rows},
                      {"columns", s.columns},
                      {"inner", s.inner},
                      {"layout", layout},
                      {"out", type},
                      {"extra", extra},
                      {"seconds", m.seconds},
                      {"aten_seconds", m.aten_seconds},
                      {"first_seconds", m.first_seconds},
                      {"tried", m.tried},
                      {"tuning_seconds", m.tuning_seconds},
                      {"algorithm", m.algorithm}});
  }
  fmt::print("{}: tuning took {:.0f} ms\n", workload_, sum * 1e3);
  std::fflush(stdout);
}

std::string Roofline::to_markdown() const {
  double step = 0;
  for (const auto& full_pass : full_passes_) {
    if (full_pass["name"] == "step") step = full_pass["seconds"].get<double>();
  }
  std::string table = fmt::format(
      "\n### {}\n\n| part | operation | calls per step | us per call | rate | share of ceiling | share of step |\n"
      "|---|---|---|---|---|---|---|\n",
      workload_);
  for (const auto& row : rows_) {
    const double calls = row["calls"].get<double>(), seconds = row["seconds"].get<double>();
    if (calls == 0) continue;
    table += fmt::format("| {} | {} | {:.0f} | {:.1f} | {:.0f} {} | {:.0f}% | {:.1f}% |\n",
                         row["part"].get<std::string>(), row["name"].get<std::string>(), calls, seconds * 1e6,
                         row["rate"].get<double>(), row["unit"].get<std::string>(),
                         100 * row["share_of_ceiling"].get<double>(), 100 * calls * seconds / step);
  }
  table += "\n| part | measured | sum of operations | sum at the ceilings | host |\n|---|---|---|---|---|\n";
  for (const auto& full_pass : full_passes_) {
    table +=
        fmt::format("| {} | {:.2f} ms | {:.2f} ms | {:.2f} ms | {:.2f} ms |\n", full_pass["name"].get<std::string>(),
                    1e3 * full_pass["seconds"].get<double>(), 1e3 * full_pass["sum_of_operations"].get<double>(),
                    1e3 * full_pass["sum_at_ceilings"].get<double>(), 1e3 * full_pass["host_seconds"].get<double>());
  }
  table +=
      "\n| matmul, rows x columns x inner | result | tuned | ATen | first heuristic result | algorithm "
      "|\n|---|---|---|---|---|---|\n";
  for (const auto& row : tuned_) {
    table +=
        fmt::format("| {} x {} x {}, {} | {} {} | {:.1f} us | {:.1f} us | {:.1f} us | {} |\n",
                    row["rows"].get<int64_t>(), row["columns"].get<int64_t>(), row["inner"].get<int64_t>(),
                    row["layout"].get<std::string>(), row["out"].get<std::string>(), row["extra"].get<std::string>(),
                    1e6 * row["seconds"].get<double>(), 1e6 * row["aten_seconds"].get<double>(),
                    1e6 * row["first_seconds"].get<double>(), row["algorithm"].get<std::string>());
  }
  return table;
}

}  // namespace mpzero::bench
