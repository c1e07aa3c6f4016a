// How much slower AdamW's updates in host memory are while a checkpoint of the same states is written concurrently, and
// how fast the checkpoint is written, compared with a save without updates and a plain direct sequential write of as
// many bytes: all in one run, in alternating rounds. During updates a checkpoint is written in three ways: by threads
// without binding, by threads bound to the cores that the updates leave free, and by the bound threads at the pace that
// training sets.
//
//   bench_save_during_updates FOLDER [PARAMETERS=300000000] [ROUNDS=3] [THREADS=0] [GAP=0.25]
//
// FOLDER is on the disk to measure. THREADS update; 0: as many as for a rank that has this machine to itself, bound to
// the same cores, and the writers get the cores that a rank's writers would get. GAP is how long the host rests after
// each update, as it does during a GPU's forward and backward pass, as a fraction of the update's time. Host memory: 28
// bytes per parameter. Prints one JSON object.
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "io/checkpoint_dir/background_save.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "io/checkpoint_dir/save_throttle.hpp"
#include "io/files/atomic_file.hpp"
#include "parallel/host/core_assignment.hpp"
#include "parallel/host/host_memory.hpp"
#include "parallel/optimizer/host_optimizer.hpp"

namespace mpzero::parallel {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A decoder layer of Qwen3-0.6B: the sizes of consecutive updates and writes.
constexpr int64_t kUnitElements = 15'730'176;
constexpr double kBytesOfStates = 12;
constexpr const char* kTag = "bench-1steps";
constexpr int kWarmUpSteps = 5;
constexpr int kStepsBetween = 30;
constexpr size_t kPlainBlock = 16 << 20;
constexpr StateKind kKinds[] = {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// CPU time of all threads so far, user and system.
double cpu_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  constexpr double kMicrosecond = 1e-6;
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * kMicrosecond;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}
double median(const std::vector<double>& values) { return quantile(values, 0.5); }
double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(std::max<size_t>(1, values.size()));
}

struct Settings {
  fs::path folder;
  int64_t parameters = 300'000'000;
  int rounds = 3;
  int threads = 0;
  double gap = 0.25;
};

// The optimizer of a rank that has the machine to itself, and the states that it updates.
class Updates {
 public:
  Updates(int64_t units, int threads, const std::vector<int>& cores) : team_(threads, cores) {
    std::vector<OptimizerShard*> shards;
    for (int64_t u = 0; u < units; ++u) {
      shards_.push_back(
          std::make_unique<OptimizerShard>(0, OptimizerShard::Options{.placement = Placement::kHost, .team = &team_}));
      shards_.back()->states() = make_host_states(kUnitElements, &team_);
      fill_with_noise(shards_.back()->states());
      shards.push_back(shards_.back().get());
      gradients_.push_back(host_tensor(kUnitElements, at::kBFloat16, false, &team_).fill_(0.01));
      parameters_.push_back(host_tensor(kUnitElements, at::kBFloat16, false, &team_));
    }
    const HostMemoryDemand demand{.lengths = std::vector<int64_t>(static_cast<size_t>(units), kUnitElements),
                                  .gradient_dtype = at::kBFloat16,
                                  .parameter_dtype = at::kBFloat16};
    optimizer_ = std::make_unique<HostOptimizer>(team_, shards,
                                                 HostOptimizer::Options{.gradient_dtype = demand.gradient_dtype,
                                                                        .parameter_dtype = demand.parameter_dtype,
                                                                        .memory = plan_host_memory(demand, 0)});
    optimizer_->add_spares_for_holds();
  }

  // Returns the seconds taken.
  double step() {
    const auto start = Clock::now();
    for (size_t u = 0; u < shards_.size(); ++u) optimizer_->take_gradient(u, gradients_[u], parameters_[u]);
    ++steps_;
    optimizer_->finish(adamw_update({.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}, 1e-5, steps_, 0.5));
    optimizer_->wait_for_all();
    return seconds_since(start);
  }
  StateHold hold(size_t unit) { return optimizer_->hold(unit); }
  size_t num_units() const { return shards_.size(); }

 private:
  // Bits that no disk can compress.
  static void fill_with_noise(const OptimizerStates& states) {
    for (const at::Tensor& tensor : {states.master, states.exp_avg, states.exp_avg_sq}) {
      float* const values = tensor.data_ptr<float>();
      at::parallel_for(0, tensor.numel(), 1 << 16, [&](int64_t first, int64_t last) {
        std::minstd_rand random(static_cast<uint32_t>(first) + 1);
        for (int64_t i = first; i < last; ++i) values[i] = 1e-3F + static_cast<float>(random()) * 1e-10F;
      });
    }
  }

  ThreadTeam team_;
  std::vector<std::unique_ptr<OptimizerShard>> shards_;
  std::vector<at::Tensor> gradients_, parameters_;
  std::unique_ptr<HostOptimizer> optimizer_;
  int64_t steps_ = 0;
};

// The part of the states in a snapshot.
class Held {
 public:
  explicit Held(Updates& updates) {
    for (size_t u = 0; u < updates.num_units(); ++u) holds_.push_back(updates.hold(u));
  }
  io::ShardValues values() const {
    return {.fetch = [this](size_t unit, StateKind kind) -> std::span<const float> {
              const at::Tensor& state = holds_[unit].states()[kind];
              return {state.const_data_ptr<float>(), static_cast<size_t>(state.numel())};
            },
            .all_stay = true};
  }

 private:
  std::vector<StateHold> holds_;
};

double plain_write(const fs::path& path, const Held& held, size_t units) {
  const auto start = Clock::now();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0666);
  if (file < 0) io::throw_system_error("open", path, errno);
  off_t at = 0;
  for (size_t u = 0; u < units; ++u) {
    for (const StateKind kind : kKinds) {
      const std::span<const std::byte> bytes = std::as_bytes(held.values().fetch(u, kind));
      for (size_t begin = 0; begin < bytes.size(); begin += kPlainBlock) {
        const size_t count = std::min(kPlainBlock, bytes.size() - begin);
        if (::pwrite(file, bytes.data() + begin, count, at) != static_cast<ssize_t>(count)) {
          io::throw_system_error("write", path, errno);
        }
        at += static_cast<off_t>(count);
      }
    }
  }
  if (::fsync(file) != 0) io::throw_system_error("sync", path, errno);
  ::close(file);
  return seconds_since(start);
}

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings),
        folder_(settings.folder / fmt::format("mpzero-bench-{}", ::getpid())),
        machine_(CpuTopology::of_this_machine()) {
    io::make_folders(folder_);
    const int64_t num_units = std::max<int64_t>(1, settings.parameters / kUnitElements);
    bytes_ = kBytesOfStates * static_cast<double>(num_units * kUnitElements);
    cores_ = machine_.hardware_threads(cores_for_updates(machine_.cores()));
    threads_ = settings.threads > 0 ? settings.threads : static_cast<int>(cores_.size());
    if (static_cast<size_t>(threads_) > cores_.size()) {
      cores_.clear();
    } else {
      cores_.resize(static_cast<size_t>(threads_));
      writers_cores_ = left_over(machine_.hardware_threads(machine_.cores()), cores_);
    }
    for (int64_t u = 0; u < num_units; ++u) {
      const std::string name = fmt::format("layers.{}", u);
      specs_.push_back({name, {{name + ".weight", {kUnitElements}}}});
    }
    job_.checkpoint_dir = folder_;
    job_.tag = kTag;
    job_.model_type = "bench";
    job_.progress.dtype = "bf16";
    for (const UnitSpec& unit : specs_) job_.shards.push_back({&unit, 0, kUnitElements});
    updates_ = std::make_unique<Updates>(num_units, threads_, cores_);
  }
  ~Bench() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  nlohmann::json run() {
    for (int i = 0; i < kWarmUpSteps; ++i) gap_ = settings_.gap * updates_->step();
    std::array<Way, 3> ways{Way{.name = "anywhere", .bound = false, .paced = false},
                            Way{.name = "bound", .bound = true, .paced = false},
                            Way{.name = "bound_and_paced", .bound = true, .paced = true}};
    std::vector<double> alone, alone_cpu, plain;
    for (int round = 0; round < settings_.rounds; ++round) {
      for (Way& way : ways) measure(way);
      const double cpu_before = cpu_seconds();
      alone.push_back(save({.name = "alone", .bound = true, .paced = false},
                           [](io::BackgroundSave&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
      alone_cpu.push_back(cpu_seconds() - cpu_before);
      const Held held(*updates_);
      plain.push_back(plain_write(folder_ / "plain", held, updates_->num_units()));
      fs::remove(folder_ / "plain");
    }
    nlohmann::json by_way;
    for (const Way& way : ways) by_way[way.name] = summary(way);
    return {{"parameters", bytes_ / kBytesOfStates},
            {"threads", threads_},
            {"cores_of_updates", cores_},
            {"cores_of_writers", writers_cores_},
            {"bytes", bytes_},
            {"beside", by_way},
            {"save_alone_bytes_per_second", bytes_ / median(alone)},
            {"save_alone_cpu_seconds", median(alone_cpu)},
            {"plain_bytes_per_second", bytes_ / median(plain)},
            {"save_alone_of_plain", median(plain) / median(alone)}};
  }

 private:
  // How a checkpoint is written during steps, and the results.
  struct Way {
    std::string name;
    bool bound = false;  // to the cores that the updates leave free
    bool paced = false;
    std::vector<double> steps{}, steps_during_saves{}, slowdowns{}, seconds{}, blocked{};
  };

  void measure(Way& way) {
    std::vector<double> before, during;
    for (int i = 0; i < kStepsBetween; ++i) {
      before.push_back(step());
      throttle_.step_alone(before.back());
    }
    change_memory();
    throttle_.begin(static_cast<int64_t>(bytes_), 0);
    way.seconds.push_back(save(way, [&](io::BackgroundSave& save) {
      during.push_back(step());
      if (way.paced) save.pace().set_rate(throttle_.step_during_save(during.back(), save.pace().bytes()));
    }));
    way.blocked.push_back(began_seconds_);
    way.slowdowns.push_back(median(during) / median(before) - 1);
    way.steps.insert(way.steps.end(), before.begin(), before.end());
    way.steps_during_saves.insert(way.steps_during_saves.end(), during.begin(), during.end());
  }

  // The step during which states are held moves them to the spare memory, which may be slower. They are moved once more
  // before the save, so that the steps of a save run in the same memory as those before it.
  void change_memory() {
    const Held held(*updates_);
    step();
  }

  nlohmann::json summary(const Way& way) const {
    return {{"step_seconds", median(way.steps)},
            {"step_seconds_beside", median(way.steps_during_saves)},
            {"steps_beside", way.steps_during_saves.size()},
            {"slowdown", median(way.steps_during_saves) / median(way.steps) - 1},
            {"slowdown_of_mean", mean(way.steps_during_saves) / mean(way.steps) - 1},
            {"slowdown_by_round", way.slowdowns},
            {"spread_of_steps", quantile(way.steps, 0.9) / quantile(way.steps, 0.1) - 1},
            {"save_bytes_per_second", bytes_ / median(way.seconds)},
            {"blocked_seconds", median(way.blocked)}};
  }

  // Seconds, including the rest.
  double step() {
    const auto start = Clock::now();
    updates_->step();
    std::this_thread::sleep_for(std::chrono::duration<double>(gap_));
    return seconds_since(start);
  }

  // Writes a checkpoint and calls `meanwhile` repeatedly; returns the seconds until everything is written.
  template <typename Meanwhile>
  double save(const Way& way, const Meanwhile& meanwhile) {
    fs::remove_all(folder_ / kTag);
    const auto start = Clock::now();
    const Held held(*updates_);
    io::BackgroundSave save(job_, held.values(), group_, io::disk(), way.bound ? writers_cores_ : std::vector<int>());
    began_seconds_ = seconds_since(start);
    while (save.poll(), save.in_flight()) meanwhile(save);
    if (!save.error().empty()) throw_failure("{}", save.error());
    return save.writing_seconds();
  }

  Settings settings_;
  fs::path folder_;
  CpuTopology machine_;
  std::vector<int> cores_;
  int threads_ = 0;
  double bytes_ = 0;
  double gap_ = 0;
  double began_seconds_ = 0;
  std::vector<int> writers_cores_;
  io::SaveThrottle throttle_;
  std::vector<UnitSpec> specs_;
  io::SaveJob job_;
  SingleProcess group_;
  std::unique_ptr<Updates> updates_;
};

}  // namespace
}  // namespace mpzero::parallel

int main(int argc, char** argv) {
  if (argc < 2 || argc > 6) {
    std::fputs("bench_save_during_updates FOLDER [PARAMETERS=300000000] [ROUNDS=3] [THREADS=0] [GAP=0.25]\n", stderr);
    return mpzero::kUserErrorExitCode;
  }
  try {
    mpzero::parallel::Settings settings{.folder = argv[1]};
    if (argc > 2) settings.parameters = std::atoll(argv[2]);
    if (argc > 3) settings.rounds = std::atoi(argv[3]);
    if (argc > 4) settings.threads = std::atoi(argv[4]);
    if (argc > 5) settings.gap = std::atof(argv[5]);
    mpzero::parallel::Bench bench(settings);
    fmt::print("{}\n", bench.run().dump(1));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_save_during_updates: %s\n", error.what());
    return mpzero::kFailureExitCode;
  }
}
