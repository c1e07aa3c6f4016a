#include "app/checkpoint/checkpointer.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "app/checkpoint/carried_states.hpp"
#include "app/machine/host_threads.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGibibyte = 1 << 30;
constexpr double kGigabyte = 1e9;
// Slowdown factor above which a save is reported as throttled.
constexpr double kNoticeable = 1.05;
// Fraction of available host memory that a snapshot may use. The rest is reserved for later allocations and other
// processes.
constexpr double kShareForSnapshots = 0.8;

// Adds the elapsed time to both targets on destruction.
class Stopwatch {
 public:
  Stopwatch(double& one, double& other) : one_(one), other_(other) {}
  ~Stopwatch() {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    one_ += seconds;
    other_ += seconds;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& one_;
  double& other_;
  Clock::time_point start_ = Clock::now();
};

int64_t bytes_of(const io::SaveJob& job) {
  const int64_t carried = job.carried ? job.carried->bytes() : 0;
  return std::accumulate(job.shards.begin(), job.shards.end(), carried, [](int64_t sum, const io::UnitShard& shard) {
    return sum + shard.count * static_cast<int64_t>(states_of(*shard.unit).size() * sizeof(float));
  });
}

std::string sentence(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

Checkpointer::Checkpointer(const RunSetup& setup, const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
                           at::Device device, parallel::MpiRuntime& mpi, StepLog& log, RunFolder& folder,
                           io::FileSystem& files, Waits last_save_waits)
    : setup_(setup),
      config_(setup.config),
      units_(units),
      engine_(engine),
      mpi_(mpi),
      log_(log),
      folder_(folder),
      files_(files),
      device_(device),
      last_save_waits_(std::move(last_save_waits)) {}

int64_t Checkpointer::steps_until_next_save(const RunPosition& at) const {
  const int64_t left = config_.max_steps - at.step;
  return std::min(steps_to_next_save(config_, at).value_or(left), left);
}

bool Checkpointer::is_due(const RunPosition& at) const {
  return at.step >= config_.max_steps ? config_.save_final : saves_at(config_, at);
}

void Checkpointer::prepare(const RunPosition& at, int64_t available_bytes) {
  // If only the last checkpoint is saved, a copy has no benefit, because training has ended by then.
  if (!config_.async_save || steps_until_next_save(at) == config_.max_steps - at.step) return;
  const std::vector<io::UnitShard> shards = checkpoint_shards(config_, units_, engine_, mpi_.rank());
  std::vector<bool> writes;
  writes.reserve(shards.size());
  for (const io::UnitShard& shard : shards) writes.push_back(shard.count > 0);
  auto snapshot = std::make_unique<StateSnapshot>(engine_, std::move(writes), saves_carried(setup_, engine_), device_,
                                                  at::get_num_threads());
  // Ranks on a host share memory, and all ranks must make the same decision.
  struct Need {
    int64_t wanted = 0;
    int64_t left = 0;
  };
  const auto excess = [](const Need& need) {
    return static_cast<double>(need.wanted) - kShareForSnapshots * static_cast<double>(need.left);
  };
  Need tightest;
  for (const Need& need : all_gather(mpi_, Need{snapshot->bytes() * mpi_.local_size(), available_bytes})) {
    if (excess(need) > excess(tightest)) tightest = need;
  }
  if (excess(tightest) > 0) {
    log_.warn(
        fmt::format("training will pause during saves: a copy of the training state needs {:.1f} GiB of host memory, "
                    "but only {:.1f} GiB is available; use more hosts or a smaller model.",
                    static_cast<double>(tightest.wanted) / kGibibyte, static_cast<double>(tightest.left) / kGibibyte));
    return;
  }
  snapshot_ = std::move(snapshot);
  snapshot_->allocate();
  if (config_.zero.offload_optimizer) writers_cores_ = cores_for_checkpoints(device_, mpi_);
}

void Checkpointer::save(const RunPosition& position) {
  if (save_) {
    log_.say(fmt::format("The save of step {} is waiting for the save of step {} to finish", position.step,
                         save_->job().progress.step));
    wait_for_save();
  }
  blocked_by_save_ = 0;
  io::SaveJob job = checkpoint_job(setup_, position, units_, engine_, mpi_.rank());
  job.check_owner = [this] { folder_.check_owner(); };
  if (snapshot_) {
    job.carried = carried_in(*snapshot_, setup_, units_, engine_);
    start_in_background(job);
  } else {
    {
      const Stopwatch blocked(blocked_seconds_, blocked_by_save_);
      job.carried = carried_now(setup_, units_, engine_);
    }
    save_while_training_waits(job);
  }
}

void Checkpointer::start_in_background(const io::SaveJob& job) {
  const Stopwatch blocked(blocked_seconds_, blocked_by_save_);
  snapshot_->begin();
  const auto fetch = [this](size_t shard, StateKind kind) {
    snapshot_->wait();
    return snapshot_->values(shard, kind);
  };
  // Called on the writing thread, not in after_step(): the update before after_step() may wait for this release.
  const auto done = [this] { snapshot_->release(); };
  try {
    save_ = std::make_unique<io::BackgroundSave>(job, io::ShardValues{.fetch = fetch, .all_stay = true, .done = done},
                                                 mpi_, files_, writers_cores_);
    const RunPosition at{.step = job.progress.step, .sequences_seen = job.progress.sequences_seen};
    throttle_.begin(bytes_of(job), steps_until_next_save(at));
  } catch (const Error& error) {
    snapshot_->wait();
    snapshot_->release();
    abandon(job, error.what());
  }
}

void Checkpointer::save_while_training_waits(const io::SaveJob& job) {
  const auto fetch = [&](size_t shard, StateKind kind) {
    return engine_.read_state(shard, kind).first(static_cast<size_t>(job.shards[shard].count));
  };
  io::Published published;
  try {
    const Stopwatch blocked(blocked_seconds_, blocked_by_save_);
    published = io::save_checkpoint(job, {.fetch = fetch}, mpi_);
  } catch (const Error& error) {
    abandon(job, error.what());
    return;
  }
  saved_step_ = job.progress.step;
  save_seconds_ = blocked_by_save_;
  last_error_.clear();
  log_.say(fmt::format("Saved checkpoint: {} ({:.1f} s, {:.2f} GB/s)", (job.checkpoint_dir / job.tag).string(),
                       blocked_by_save_, static_cast<double>(published.bytes) / kGigabyte / blocked_by_save_));
  log_.saved(job.progress.step, blocked_by_save_, published.bytes, blocked_by_save_);
  remark_on(published);
}

void Checkpointer::remark_on(const io::Published& published) {
  if (!published.remark.empty()) log_.warn(published.remark);
  folder_.name_leftovers(published.left);
  folder_.name_unread(published.unread);
}

double Checkpointer::before_update() {
  if (save_) {
    const Stopwatch blocked(blocked_seconds_, blocked_by_save_);
    snapshot_->before_update();
  }
  return std::exchange(blocked_seconds_, 0.0);
}

void Checkpointer::before_validation() {
  if (save_) save_->pace().set_rate(io::WritePace::kUnlimited);
}

void Checkpointer::after_step(const RunPosition& position, double seconds, bool stops) {
  watch_save(seconds);
  if (!stops && is_due(position)) save(position);
}

void Checkpointer::watch_save(double step_seconds) {
  if (!save_) return throttle_.step_alone(step_seconds);
  save_->poll();
  if (save_->in_flight()) {
    save_->pace().set_rate(throttle_.step_during_save(step_seconds, save_->pace().bytes()));
  } else {
    conclude();
  }
}

void Checkpointer::conclude() {
  const std::unique_ptr<io::BackgroundSave> save = std::move(save_);
  const double gpu_waited = snapshot_->gpu_seconds_waited();
  blocked_seconds_ += gpu_waited;
  blocked_by_save_ += gpu_waited;
  const io::SaveJob& job = save->job();
  if (!save->error().empty()) {
    abandon(job, save->error());
    return;
  }
  saved_step_ = job.progress.step;
  save_seconds_ = save->unhindered_seconds();
  last_error_.clear();
  const io::Published& published = save->published();
  const double seconds = save->writing_seconds();
  const bool held_back = seconds > kNoticeable * save->unhindered_seconds();
  log_.say(fmt::format(
      "Saved checkpoint: {} (written in {:.1f} s during training, {:.2f} GB/s{}; training paused for {:.3f} s)",
      (job.checkpoint_dir / job.tag).string(), seconds, static_cast<double>(published.bytes) / kGigabyte / seconds,
      held_back ? fmt::format(", throttled to avoid slowing down training; {:.1f} s at full speed",
                              save->unhindered_seconds())
                : std::string(),
      blocked_by_save_));
  log_.saved(job.progress.step, seconds, published.bytes, blocked_by_save_);
  remark_on(published);
}

void Checkpointer::abandon(const io::SaveJob& job, const std::string& reason) {
  last_error_ = fmt::format("could not save the checkpoint for step {}: {}; {}", job.progress.step, sentence(reason),
                            saved_step_ ? fmt::format("the checkpoint for step {} remains", *saved_step_)
                                        : std::string("there is no earlier checkpoint"));
  log_.save_failed();
  // finish() reports errors of the last checkpoint.
  if (job.progress.step >= last_step_.value_or(config_.max_steps)) return;
  folder_.stop_where_taken();
  log_.warn(last_error_ + ", and training continues.");
}

void Checkpointer::save_last(const RunPosition& position) {
  last_step_ = position.step;
  const bool under_way = save_ && save_->job().progress.step == position.step;
  if (saved_step_ != position.step && !under_way) save(position);
  finish(position);
}

double Checkpointer::expected_save_seconds() const { return save_ ? 2 * save_seconds_ : save_seconds_; }

std::optional<double> Checkpointer::write_rate() const {
  return save_ ? std::optional(save_->pace().rate()) : std::nullopt;
}

void Checkpointer::wait_for_save() {
  if (!save_) return;
  const Stopwatch blocked(blocked_seconds_, blocked_by_save_);
  save_->wait();
  conclude();
}

void Checkpointer::finish(const RunPosition& last) {
  wait_for_save();
  const bool due = last_step_ == last.step || is_due(last);
  const auto failed = [&] { return due && !last_error_.empty() && saved_step_ != last.step; };
  for (const std::chrono::seconds wait : last_save_waits_) {
    if (!failed()) return;
    folder_.stop_where_taken();
    log_.warn(fmt::format("{}; retrying in {} s.", last_error_, wait.count()));
    std::this_thread::sleep_for(wait);
    save(last);
    wait_for_save();
  }
  if (failed()) throw Failure(last_error_, ErrorScope::kAllRanks);
}

void Checkpointer::finish_after_error() {
  try {
    if (!save_) return;
    log_.say(fmt::format("Waiting for the save of step {} to finish", save_->job().progress.step));
    save_->wait();
    conclude();
  } catch (const std::exception& error) {
    // Keep the error that ended training.
    log_.warn(error.what());
  }
}

}  // namespace mpzero
