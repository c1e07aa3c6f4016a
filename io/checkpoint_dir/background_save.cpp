#include "io/checkpoint_dir/background_save.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "io/files/write_pace.hpp"

namespace mpzero::io {
namespace {

// Window size and minimum number of samples for the step time without a save.
constexpr size_t kUsualSteps = 32;
constexpr size_t kFewestSteps = 5;
// Number of steps at the beginning of a save that are excluded from the measurement. See SaveThrottle.
constexpr int64_t kOpeningSteps = 2;
// Steps per measurement. Times of single steps are too noisy.
constexpr size_t kStepsMeasured = 4;
// Decay factor for older measurements.
constexpr double kForget = 0.8;
// Maximum duration of a save relative to a save without throttling.
constexpr double kLongest = 8;
// Maximum fraction of the save interval that a save may take.
constexpr double kShareOfTime = 0.75;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

void SaveThrottle::step_alone(double seconds) {
  alone_.push_back(seconds);
  if (alone_.size() > kUsualSteps) alone_.pop_front();
}

double SaveThrottle::usual_seconds() const { return median({alone_.begin(), alone_.end()}); }

void SaveThrottle::begin(int64_t bytes, int64_t steps) {
  total_ = bytes;
  written_ = 0;
  steps_until_next_ = steps;
  steps_ = 0;
  fastest_ = 0;
  recent_.clear();
  recent_bytes_ = 0;
}

double SaveThrottle::step_during_save(double seconds, int64_t written) {
  const int64_t bytes = written - written_;
  written_ = written;
  ++steps_;
  fastest_ = std::max(fastest_, static_cast<double>(bytes) / seconds);
  if (alone_.size() < kFewestSteps) return WritePace::kUnlimited;
  if (steps_ > kOpeningSteps) {
    recent_.push_back(seconds);
    recent_bytes_ += bytes;
    if (recent_.size() == kStepsMeasured) measure();
  }
  return steps_ < kOpeningSteps ? WritePace::kUnlimited : rate();
}

void SaveThrottle::measure() {
  // The cost per byte is unknown if the save has not written any bytes.
  if (recent_bytes_ == 0) return recent_.clear();
  const double extra = median(recent_) - usual_seconds();
  extra_seconds_ = kForget * extra_seconds_ + extra * static_cast<double>(recent_.size());
  bytes_ = kForget * bytes_ + static_cast<double>(recent_bytes_);
  recent_.clear();
  recent_bytes_ = 0;
}

double SaveThrottle::rate() const {
  if (extra_seconds_ <= 0 || bytes_ <= 0) return WritePace::kUnlimited;
  double rate = kAllowedSlowdown * bytes_ / extra_seconds_;
  if (rate >= fastest_) return WritePace::kUnlimited;
  rate = std::max(rate, fastest_ / kLongest);
  if (steps_until_next_ > 0) {
    const double time_left =
        usual_seconds() * (kShareOfTime * static_cast<double>(steps_until_next_) - static_cast<double>(steps_));
    const auto left = static_cast<double>(total_ - written_);
    if (time_left <= 0 || left / time_left >= fastest_) return WritePace::kUnlimited;
    rate = std::max(rate, left / time_left);
  }
  return rate;
}

namespace {

// Added to the nice value of the thread. Child threads inherit the result.
constexpr int kNiceness = 10;

// Priority and affinity are best effort. Errors are ignored.
void lower_priority() {
  const auto self = static_cast<id_t>(::gettid());
  (void)::setpriority(PRIO_PROCESS, self, ::getpriority(PRIO_PROCESS, self) + kNiceness);
}

void keep_to(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  (void)::sched_setaffinity(0, sizeof set, &set);
}

// Status of a rank's task, its duration in seconds if done, and its error message if failed.
enum class Status : uint8_t { kAtWork, kDone, kFailed };
using Report = std::tuple<Status, double, std::string>;

Report report(const BackgroundTask* task) {
  if (task == nullptr) return {Status::kDone, 0, ""};
  if (!task->ended()) return {Status::kAtWork, 0, ""};
  if (!task->error().empty()) return {Status::kFailed, 0, task->error()};
  return {Status::kDone, task->seconds(), ""};
}

// Calls `what`, if set, at scope exit.
class AtExit {
 public:
  explicit AtExit(const std::function<void()>& what) : what_(what) {}
  ~AtExit() {
    if (what_) what_();
  }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;

 private:
  const std::function<void()>& what_;
};

bool any(const std::vector<Report>& reports, Status status) {
  return std::ranges::any_of(reports, [&](const Report& report) { return std::get<Status>(report) == status; });
}

// Returns the error of the first failed rank. Adds the rank number unless all ranks report the same error.
std::string error_in(const std::vector<Report>& reports) {
  const auto first =
      std::ranges::find(reports, Status::kFailed, [](const Report& report) { return std::get<Status>(report); });
  const std::string& error = std::get<std::string>(*first);
  const bool unanimous = std::count(reports.begin(), reports.end(), *first) == std::ssize(reports);
  return unanimous ? error : fmt::format("rank {}: {}", first - reports.begin(), error);
}

}  // namespace

BackgroundTask::BackgroundTask(std::function<void(std::stop_token)> work, std::vector<int> cores)
    : thread_([this, work = std::move(work), cores = std::move(cores)](const std::stop_token& stop) {
        lower_priority();
        keep_to(cores);
        const auto start = std::chrono::steady_clock::now();
        try {
          work(stop);
        } catch (const std::bad_alloc&) {
          error_ = "out of host memory while writing a checkpoint";
        } catch (const std::exception& error) {
          error_ = error.what();
        }
        seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        ended_.store(true, std::memory_order_release);
      }) {}

BackgroundSave::BackgroundSave(SaveJob job, ShardValues values, ProcessGroup& group, FileSystem& files,
                               std::vector<int> cores)
    : job_(std::move(job)), values_(std::move(values)), group_(group), files_(files), cores_(std::move(cores)) {
  left_ = begin_save(job_, group_, files_);
  const auto write = [this](std::stop_token stop) {
    const AtExit report_done(values_.done);
    shard_file_ =
        write_shards(job_, group_.rank(), values_, {.files = &files_, .stop = std::move(stop), .pace = &pace_});
  };
  writing_ = std::make_unique<BackgroundTask>(write, cores_);
}

BackgroundSave::~BackgroundSave() = default;

void BackgroundSave::give_up(std::string error) {
  error_ = std::move(error);
  state_ = State::kGivingUp;
  writing_->request_stop();
}

BackgroundSave::State BackgroundSave::poll() {
  switch (state_) {
    case State::kWriting: {
      const std::vector<Report> reports = all_gather(group_, report(writing_.get()));
      if (any(reports, Status::kFailed)) {
        give_up(error_in(reports));
      } else if (!any(reports, Status::kAtWork)) {
        for (const Report& report : reports) writing_seconds_ = std::max(writing_seconds_, std::get<double>(report));
        unhindered_seconds_ = max(group_, pace_.without_limit(writing_->seconds()));
        shard_files_ = all_gather(group_, shard_file_);
        if (group_.rank() == 0) {
          finishing_ = std::make_unique<BackgroundTask>(
              [this](const std::stop_token&) { published_ = publish_save(job_, shard_files_, files_); }, cores_);
        }
        state_ = State::kPublishing;
      }
      break;
    }
    case State::kPublishing: {
      const std::vector<Report> reports = all_gather(group_, report(finishing_.get()));
      if (any(reports, Status::kFailed)) {
        finishing_.reset();
        give_up(error_in(reports));
      } else if (!any(reports, Status::kAtWork)) {
        std::move(left_.begin(), left_.end(), std::back_inserter(published_.left));
        state_ = State::kSaved;
      }
      break;
    }
    case State::kGivingUp: {
      // All ranks must have stopped writing before the folder is removed.
      if (any(group_, !writing_->ended())) break;
      if (group_.rank() == 0 && !finishing_) {
        finishing_ =
            std::make_unique<BackgroundTask>([this](const std::stop_token&) { discard_save(job_, files_); }, cores_);
      }
      if (!any(group_, finishing_ && !finishing_->ended())) state_ = State::kAbandoned;
      break;
    }
    case State::kSaved:
    case State::kAbandoned:
      break;
  }
  return state_;
}

BackgroundSave::State BackgroundSave::wait() {
  constexpr auto kPause = std::chrono::milliseconds(2);
  pace_.set_rate(WritePace::kUnlimited);
  while (poll(), in_flight()) std::this_thread::sleep_for(kPause);
  return state_;
}

}  // namespace mpzero::io
