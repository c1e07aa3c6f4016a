#include "app/watchdog/watchdog.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <stop_token>
#include <system_error>
#include <tuple>
#include <utility>

#include "app/health/stop_report.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/text/printable.hpp"
#include "base/text/times.hpp"
#include "parallel/mpi/deadline.hpp"

namespace mpzero {
namespace {

using Clock = RankActivity::Clock;
using std::chrono::milliseconds;

// Interval between checks of the other ranks of the host and of the `first` file.
constexpr milliseconds kLook(300);
// Seconds between a signal and its handling during training. A launcher also signals all ranks after one rank has died.
// If the rank makes progress within this time, no rank has died.
constexpr double kSettle = 0.5;
// Maximum time to wait for rank 0 on this host to record the end of the run.
constexpr milliseconds kPrecedence(1500);
// Maximum time to wait for a cause before reporting a network error. The cause may be an error or the death of another
// rank: the connections of a killed process close before the process has ended.
constexpr milliseconds kCauseLimit(1000);

std::string environment(const char* name) { return parallel::process_environment(name).value_or(""); }

std::vector<std::filesystem::path> evidence_folders(const std::filesystem::path& checkpoint_dir) {
  std::vector<std::filesystem::path> folders = {checkpoint_dir};
  for (const char* name : {"MPZERO_LOG_DIR", "LOG_DIR", "TMPDIR"}) {
    if (const std::string folder = environment(name); !folder.empty()) {
      folders.emplace_back(folder);
      return folders;
    }
  }
  folders.emplace_back("/tmp");
  return folders;
}

// Returns an absolute path without a trailing slash. Keeps symbolic links, because resolving a link may hang.
std::string absolute_name(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(folder, error);
  return ((error ? folder : absolute) / "").lexically_normal().parent_path().string();
}

void report_stop(int exit_status) {
  print_error(exit_status == kInterruptedExitCode ? "mpzero: interrupted twice: stopped immediately without saving.\n"
                                                  : "mpzero: stopped before the first step without saving.\n");
}

template <class Condition>
void wait_while(const Condition& condition, milliseconds limit) {
  for (const auto start = Clock::now(); condition() && Clock::now() - start < limit;) {
    std::this_thread::sleep_for(milliseconds(20));
  }
}

// Starts a thread that runs until the ranks have connected. The thread ends the process on a stop request or after
// `stuck_after` seconds (0: never). Rank 0 ends first and reports, and then the launcher stops the others. If it
// does not, they report that the limit has passed.
std::jthread guard_meeting(const StopRequest& stop, int rank, const Watchdog::Options& options) {
  return std::jthread([&stop, rank, options, start = Clock::now()](const std::stop_token& have_met) {
    const double stop_patience = rank == 0 ? 2 : 5;
    const double patience = options.stuck_after + (rank == 0 ? 0 : 10);
    while (!have_met.stop_requested()) {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (stop.requested() && stop.seconds_since() >= stop_patience) {
        if (options.stuck_after > 0 && seconds > options.stuck_after) std::_Exit(kFailureExitCode);
        const int exit_status = stop.is_immediate() ? kInterruptedExitCode : kStoppedExitCode;
        if (rank == 0) report_stop(exit_status);
        std::_Exit(exit_status);
      }
      if (options.stuck_after > 0 && seconds > patience) {
        parallel::end_process(
            fmt::format("the ranks did not connect within {:.0f} s after MPI started: a rank or its host is hung; "
                        "check the hosts of this job or raise --stuck_after",
                        patience));
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
}

}  // namespace

Watchdog::Watchdog(parallel::MpiRuntime& mpi, const StopRequest& stop, const Options& options)
    : mpi_(mpi),
      stop_(stop),
      checkpoint_dir_(options.checkpoint_dir),
      writer_(evidence_folders(options.checkpoint_dir), start_),
      activity_(options.stuck_after),
      control_(activity_.recorder().channel("control", parallel::FlightRecorder::Shows::kNothing)),
      poll_(activity_.recorder()) {
  tzset();  // call early: other threads may change the environment later
  meet(options);
  thread_ = std::thread([this] {
    while (!leaving_) take_turn();
  });
  mpi_.record_in(&control_);  // after the thread, which may fail to start
}

void Watchdog::meet(const Options& options) {
  const std::jthread guard = guard_meeting(stop_, mpi_.rank(), options);
  start_.job = environment("SLURM_JOB_ID");
  start_.restart = std::atoi(environment("SLURM_RESTART_COUNT").c_str());
  start_.launch = environment("MPZERO_LAUNCH");
  start_.checkpoint_dir = absolute_name(checkpoint_dir_);
  start_.rank = mpi_.rank();
  const std::time_t now = std::time(nullptr);
  std::random_device random;
  const std::string id = fmt::format("{:%Y%m%dT%H%M%SZ}-{:08x}", fmt::gmtime(now), random());
  std::tie(start_.id, start_.time) = broadcast(mpi_, std::tuple(id, static_cast<int64_t>(now)));
  const std::tuple own(name_in_job(parallel::process_environment).value_or(host_name()),
                       static_cast<int64_t>(getpid()));
  for (const auto& [host, pid] : all_gather(mpi_, own)) {
    start_.hosts.push_back(host);
    start_.pids.push_back(pid);
  }
  board_.emplace(start_.id + "-" + host_name(), mpi_.local_size(), mpi_.local_rank(), mpi_.rank());
  std::string problem = board_->problem();
  if (!problem.empty())
    problem = fmt::format("a rank on {} cannot read the state of other ranks: {}", std::get<0>(own), problem);
  for (const std::string& one : all_gather(mpi_, problem)) {
    if (warning_.empty()) warning_ = one;
  }
  board_->remove_name();
  if (mpi_.rank() == 0) writer_.record_start();
}

Watchdog::~Watchdog() {
  activity_.enter(RunPhase::kEnding, activity_.report().step);
  if (std::uncaught_exceptions() == 0) {
    const int64_t barrier = control_.begin("barrier", 0);
    mpi_.meet();
    control_.complete(barrier);
  }
  board_->announce_end(0);
  leaving_ = true;
  thread_.join();
  mpi_.record_in(nullptr);
}

void Watchdog::take_turn() {
  pollfd wanted{.fd = stop_.descriptor(), .events = POLLIN, .revents = 0};
  poll(&wanted, 1, static_cast<int>(RankActivity::kTurn.count()));
  if (wanted.revents != 0) {
    stop_.drain();
    // Avoid a busy loop: the descriptor stays readable while a signal is repeated.
    std::this_thread::sleep_for(milliseconds(10));
  }
  report_ = activity_.take_turn();
  const bool looks = Clock::now() >= next_look_;
  if (looks) next_look_ = Clock::now() + kLook;
  board_->write(report_, activity_.recorder().records(0));
  if (looks) follow_neighbors();
  if (const auto error = poll_.error()) fail(error->why, error->text, kFailureExitCode);
  if (stop_.requested() && (looks || stop_.is_immediate())) handle_stop();
  if (report_.limit > 0 && report_.idle > report_.limit) fail(Why::kStuck, "", kFailureExitCode);
}

void Watchdog::follow_neighbors() {
  const std::vector<Neighbor> before = std::exchange(neighbors_, board_->neighbors());
  std::vector<int> lost;
  for (const Neighbor& one : neighbors_) {
    if (one.exit_status == kStoppedExitCode || one.exit_status == kInterruptedExitCode) {
      begin_end();
      std::_Exit(*one.exit_status);
    }
    if (one.exit_status.value_or(0) != 0) {
      const std::string error = fmt::format("rank {} has exited with status {}", one.rank, *one.exit_status);
      end_failed(evidence(Why::kSignal, error, *one.exit_status), /*claims=*/false);
    }
    if (!one.alive && !one.exit_status) lost.push_back(one.rank);
  }
  if (!lost.empty()) fail(Why::kSignal, "ended without reporting an error", kFailureExitCode, lost);
  // A rank that waits for other ranks at the end of the run is not stuck while any other rank of the host makes
  // progress.
  const auto waits = [](const Neighbor& now, const Neighbor& then) {
    return now.activity.phase == RunPhase::kEnding || now.activity.progress == then.activity.progress;
  };
  if (report_.phase == RunPhase::kEnding && !std::ranges::equal(neighbors_, before, waits)) activity_.moved_on();
}

void Watchdog::handle_stop() {
  if (stop_.is_immediate()) end_stopped(kInterruptedExitCode);
  if (stop_.seconds_since() < kSettle) return;
  const bool is_early = report_.phase <= RunPhase::kSetUp;
  if (!is_early && report_.idle < kSettle) return;
  {
    const std::lock_guard lock(end_mutex_);
    if (reported_) return;
    // The launcher may have sent the signal because another rank has died.
    if (!is_early && report_.phase != RunPhase::kEnding && !std::exchange(wrote_signal_, true)) {
      Evidence own = evidence(Why::kSignal, stop_.reason(), kFailureExitCode);
      own.provisional = true;
      writer_.write(own, {}, /*claims=*/false);
    }
  }
  // One rank of the host reads the file repeatedly. The others see on the board that this rank has ended.
  const bool is_lowest = std::ranges::none_of(
      neighbors_, [this](const Neighbor& one) { return one.alive && !one.exit_status && one.rank < start_.rank; });
  const int first = is_early || is_lowest ? writer_.read_first().rank : -1;
  if (first >= 0) {
    end_failed(evidence(Why::kSignal, fmt::format("rank {} has exited", first), kFailureExitCode), /*claims=*/false);
  }
  if (is_early) end_stopped(kStoppedExitCode);
}

Evidence Watchdog::evidence(Why why, std::string error, int exit_status, std::vector<int> culprits) const {
  constexpr size_t kCollectives = 6;
  Evidence evidence{.why = why,
                    .error = std::move(error),
                    .culprits = std::move(culprits),
                    .exit_status = exit_status,
                    .time = seconds_since_1970(),
                    .activity = activity_.report(),
                    .channels = activity_.recorder().records(kCollectives),
                    .neighbors = board_->neighbors()};
  for (Neighbor& one : evidence.neighbors) {
    const size_t known = std::min(one.channels.size(), evidence.channels.size());
    for (size_t i = 0; i < known; ++i) one.channels[i].name = evidence.channels[i].name;
  }
  return evidence;
}

void Watchdog::report_shared(const std::string& error, int exit_status, const std::vector<int>& culprits) {
  const std::lock_guard lock(end_mutex_);
  reported_ = exit_status;
  if (start_.rank != 0) return;
  // Do not create the file `first`, which would end ranks that are about to throw the same error.
  if (exit_status == kFailureExitCode) {
    writer_.write(evidence(Why::kSharedError, error, exit_status, culprits), {}, /*claims=*/false);
  }
  print_error(fmt::format("mpzero: error: {}\n", printable(error)));
}

void Watchdog::fail(Why why, const std::string& error, int exit_status, const std::vector<int>& culprits) {
  end_failed(evidence(why, error, exit_status, culprits), /*claims=*/true);
}

void Watchdog::begin_end() {
  end_mutex_.lock();
  if (reported_) std::_Exit(*reported_);
}

void Watchdog::end_failed(Evidence evidence, bool claims) {
  begin_end();
  const bool may_follow = evidence.why == Why::kCommunicatorError || evidence.activity.phase == RunPhase::kNetwork;
  if (claims && may_follow && evidence.culprits.empty()) {
    const auto none_ends = [this] {
      return std::ranges::none_of(board_->neighbors(),
                                  [](const Neighbor& one) { return one.exit_status || !one.alive; });
    };
    wait_while(none_ends, kCauseLimit);
    evidence = this->evidence(evidence.why, evidence.error, evidence.exit_status);
  }
  const EvidenceWriter::Outcome outcome = writer_.write(evidence, {}, claims);
  // If the folder responds to only some ranks, two folders may contain `first`. Only one rank per host reports.
  const bool is_first = claims && outcome.first.rank == start_.rank && board_->claim_failure();
  const std::string reason = describe(evidence, start_);
  // A user error needs no evidence.
  const bool is_elsewhere = !outcome.elsewhere.empty() && evidence.why != Why::kUserError;
  const std::string elsewhere =
      is_elsewhere ? fmt::format("; evidence: {}", printable(outcome.elsewhere.string())) : "";
  if (is_first) print_error(fmt::format("mpzero: error: {}{}\n", reason, elsewhere));
  board_->announce_end(evidence.exit_status);
  const auto rank_0_records = [this] {
    return std::ranges::any_of(board_->neighbors(), [](const Neighbor& one) { return one.rank == 0 && one.alive; });
  };
  if (is_first) wait_while(rank_0_records, kPrecedence);
  if (is_first || start_.rank == 0) record_end("failed", outcome.first.reason.empty() ? reason : outcome.first.reason);
  // Reading the condition of the host may take longer than the launcher waits.
  if (outcome.is_written) writer_.write(evidence, host_condition(poll_.device()), /*claims=*/false);
  std::_Exit(evidence.exit_status);
}

void Watchdog::end_stopped(int exit_status) {
  if (!board_->claim_stop()) return;  // another rank of this host reports the stop
  begin_end();
  if (stop_.is_own()) write_stop_json();
  report_stop(exit_status);
  record_end("stopped", exit_status == kInterruptedExitCode ? "interrupted twice" : "stopped before the first step");
  board_->announce_end(exit_status);
  std::_Exit(exit_status);
}

void Watchdog::write_stop_json() const {
  const StopReport report = {.job = start_.job,
                             .restart = start_.restart,
                             .reason = stop_.reason(),
                             .hosts = {start_.hosts.at(static_cast<size_t>(start_.rank))}};
  parallel::no_longer_than(kDiskLimit, [folder = checkpoint_dir_, report] {
    try {
      std::filesystem::create_directories(folder);  // the folder does not exist before the first save
      write_stop_report(folder, report);
    } catch (const std::exception& error) {
      print_error(fmt::format("mpzero: warning: cannot write stop.json: {}\n", error.what()));
    }
  });
}

void Watchdog::record_end(std::string_view status, const std::string& reason) {
  std::function<void(std::string_view, std::string_view)> record;
  {
    const std::lock_guard lock(record_mutex_);
    record = record_;
  }
  if (record) {
    // The disk or the reader of stdout may not respond.
    parallel::no_longer_than(kDiskLimit, [=, status = std::string(status)] {
      try {
        record(status, reason);
      } catch (const std::exception& error) {
        print_error(fmt::format("mpzero: warning: cannot record the end of this run: {}\n", error.what()));
      }
    });
  }
}

Watchdog::Watch::Watch(Watchdog& watchdog, std::vector<parallel::Communicator*> communicators) : watchdog_(watchdog) {
  watchdog_.poll_.watch(std::move(communicators));
}

Watchdog::Watch::~Watch() { watchdog_.poll_.watch({}); }

Watchdog::EndRecord::EndRecord(Watchdog& watchdog, std::function<void(std::string_view, std::string_view)> record)
    : watchdog_(watchdog), exceptions_(std::uncaught_exceptions()) {
  const std::lock_guard lock(watchdog_.record_mutex_);
  watchdog_.record_ = std::move(record);
}

Watchdog::EndRecord::~EndRecord() {
  if (std::uncaught_exceptions() > exceptions_) return;
  const std::lock_guard lock(watchdog_.record_mutex_);
  watchdog_.record_ = nullptr;
}

}  // namespace mpzero
