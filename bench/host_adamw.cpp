// Measures CPU AdamW, compared with a plain AVX-512 loop over the same arrays in the same run. AdamW reads bf16
// gradients, updates fp32 master weights and moments, and writes bf16 parameters: 28 bytes per parameter, or 20 with
// bf16 moments.
//
//   build/bin/bench_host_adamw [PARAMETERS] [THREADS]     prints the best and median time over alternating rounds
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "bench/bare_adamw.hpp"
#include "parallel/host/host_memory.hpp"
#include "parallel/host/thread_team.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"
#include "parallel/optimizer/optimizer_shard.hpp"

namespace mpzero::parallel {
namespace {

constexpr int kRounds = 12;
constexpr int64_t kLanes = 16;

struct Candidate {
  std::string name;
  double bytes;                  // per parameter
  std::function<bool()> update;  // returns false if this CPU lacks AVX-512
  std::vector<double> seconds = {};
};

double seconds_of(const std::function<bool()>& work, bool& done) {
  const auto start = std::chrono::steady_clock::now();
  done = work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void report(Candidate& candidate, int64_t parameters, int threads, double ceiling) {
  std::sort(candidate.seconds.begin(), candidate.seconds.end());
  const double best = candidate.seconds.front();
  const double median = candidate.seconds[candidate.seconds.size() / 2];
  const double rate = static_cast<double>(parameters) / median / 1e9;
  fmt::print(
      "{:<28} {} threads: median {:.1f} ms, best {:.1f} ms, {:.2f} Gparam/s, {:.0f} GB/s, {:.1f}% of the plain loop\n",
      candidate.name, threads, median * 1e3, best * 1e3, rate, rate * candidate.bytes, 100 * ceiling / median);
}

void measure(int64_t parameters, int threads) {
  ThreadTeam team(threads);
  const auto tensor = [&](at::ScalarType dtype) { return host_tensor(parameters, dtype, false, &team); };
  const at::Tensor gradient = tensor(at::kBFloat16).fill_(0.01), parameter = tensor(at::kBFloat16);
  const OptimizerStates states = make_host_states(parameters, at::kFloat, &team);
  const OptimizerStates low = make_host_states(parameters, at::kBFloat16, &team);
  const OptimizerStates next = make_host_states(parameters, at::kFloat, &team);
  const OptimizerStates next_low = make_host_states(parameters, at::kBFloat16, &team);
  states.master.fill_(0.01);
  low.master.fill_(0.01);
  const auto in_place = [&](const OptimizerStates& of) {
    return spans_of({.gradient = gradient,
                     .master = of.master,
                     .exp_avg = of.exp_avg,
                     .exp_avg_sq = of.exp_avg_sq,
                     .parameter = parameter});
  };
  const auto ahead = [&](const OptimizerStates& of, const OptimizerStates& to) {
    AdamWSpans spans = in_place(of);
    spans.next_master = to.master.data_ptr<float>();
    spans.next_exp_avg = to.exp_avg.data_ptr();
    spans.next_exp_avg_sq = to.exp_avg_sq.data_ptr();
    return spans;
  };
  const AdamWUpdate update = adamw_update({.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}, 1e-4, 10, 0.5);
  const bench::BareAdamW arrays{.gradient = static_cast<const uint16_t*>(gradient.const_data_ptr()),
                                .master = states.master.data_ptr<float>(),
                                .exp_avg = states.exp_avg.data_ptr<float>(),
                                .exp_avg_sq = states.exp_avg_sq.data_ptr<float>(),
                                .parameter = static_cast<uint16_t*>(parameter.data_ptr())};

  const auto with_team = [&](const AdamWSpans& spans) {
    team.run((parameters + kHostBlock - 1) / kHostBlock, [&](int64_t block) {
      adamw_host_range(spans, update, block * kHostBlock, std::min((block + 1) * kHostBlock, parameters));
    });
    return true;
  };
  // Uses one contiguous range per thread, like a static OpenMP loop.
  const auto bare = [&] {
    const int64_t part = (parameters / threads + kLanes - 1) / kLanes * kLanes;
    std::atomic<bool> done{true};
    team.run(threads, [&](int64_t thread) {
      if (!bare_adamw(arrays, std::min(thread * part, parameters), std::min((thread + 1) * part, parameters)))
        done = false;
    });
    return done.load();
  };
  std::vector<Candidate> candidates{{"plain AVX-512 loop", 28, bare},
                                    {"AdamW in place", 28, [&] { return with_team(in_place(states)); }},
                                    {"AdamW out of place", 28, [&] { return with_team(ahead(states, next)); }},
                                    {"bf16 moments in place", 20, [&] { return with_team(in_place(low)); }},
                                    {"bf16 moments out of place", 20, [&] { return with_team(ahead(low, next_low)); }}};
  for (int round = 0; round <= kRounds; ++round) {
    for (Candidate& candidate : candidates) {
      bool done = false;
      const double seconds = seconds_of(candidate.update, done);
      if (done && round > 0) candidate.seconds.push_back(seconds);
    }
  }
  double ceiling = 0;
  for (Candidate& candidate : candidates) {
    if (candidate.seconds.empty()) {
      fmt::print("{}: this CPU has no AVX-512\n", candidate.name);
      continue;
    }
    if (ceiling == 0) {
      std::sort(candidate.seconds.begin(), candidate.seconds.end());
      ceiling = candidate.seconds[candidate.seconds.size() / 2];
    }
    report(candidate, parameters, threads, ceiling);
  }
}

}  // namespace
}  // namespace mpzero::parallel

// An exception ends the measurement with its message: NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  const int64_t parameters = argc > 1 ? std::atoll(argv[1]) / 16 * 16 : 200'000'000;
  const int threads = argc > 2 ? std::atoi(argv[2]) : at::get_num_threads();
  mpzero::parallel::measure(parameters, threads);
  return 0;
}
