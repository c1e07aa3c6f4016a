#include "app/ec2/ec2_watch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "app/machine/system.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text/times.hpp"

namespace mpzero {
namespace {

// Scheduled events are announced days in advance, so poll for events only once per minute.
constexpr int kPollsPerEventPoll = 12;
// Seconds between the notice of an interruption and the interruption, counted from the first poll that returns the
// notice. The time in the notice is not used: if the host clock is fast, the run would skip a save that is still
// possible.
constexpr double kInterruptionLead = 120;
// Seconds between the stop of a run and a scheduled event.
constexpr double kEventLead = 900;
// Consecutive failures before a warning, because the service may drop requests of a busy host.
constexpr int kFailuresToWarn = 3;
constexpr size_t kLongestId = 64;
// Limits memory usage if the service returns new notices at each poll.
constexpr size_t kMostNotices = 100;

bool is_plain(const std::string& text) {
  return !text.empty() && text.size() <= kLongestId &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

Ec2Watch::Ec2Watch(Ec2WatchOptions options, StopRequest& stop, Warn warn)
    : options_(std::move(options)),
      stop_(stop),
      warn_(std::move(warn)),
      metadata_(options_.endpoint, options_.patience),
      sources_({{{.path = "/latest/meta-data/spot/instance-action",
                  .notices = "spot interruptions",
                  .take = &Ec2Watch::take_interruption},
                 {.path = "/latest/meta-data/events/recommendations/rebalance",
                  .notices = "rebalance recommendations",
                  .take = &Ec2Watch::take_rebalance},
                 {.path = "/latest/meta-data/events/maintenance/scheduled",
                  .notices = "scheduled events",
                  .take = &Ec2Watch::take_events,
                  .period = kPollsPerEventPoll}}}),
      thread_([this] { run(); }) {}

Ec2Watch::~Ec2Watch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  metadata_.cancel();
  thread_.join();
}

std::map<Ec2Notice::Kind, int64_t> Ec2Watch::counts() const {
  const std::lock_guard lock(mutex_);
  std::map<Ec2Notice::Kind, int64_t> counts;
  for (const Ec2Notice& notice : seen_) ++counts[notice.kind];
  return counts;
}

bool Ec2Watch::answers() const {
  const std::lock_guard lock(mutex_);
  return answers_;
}

void Ec2Watch::run() {
  while (true) {
    poll();
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, options_.interval, [this] { return ends_; })) return;
  }
}

void Ec2Watch::poll() {
  std::string problem;
  for (Source& source : sources_) {
    if (source.polls_left-- > 0) continue;
    try {
      identify();
      if (const auto page = metadata_.get(source.path)) (this->*source.take)(*page);
      source.failures = 0;
      source.polls_left = source.period - 1;
    } catch (const std::exception& error) {
      problem = error.what();
      ++source.failures;
      source.polls_left = 0;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    answers_ = problem.empty();
  }
  complain(problem);
}

void Ec2Watch::identify() {
  if (!instance_.empty()) return;
  const std::string id = metadata_.get("/latest/meta-data/instance-id").value_or("");
  if (!is_plain(id)) throw_failure("the instance id is invalid");
  instance_ = id;
}

void Ec2Watch::take_events(const std::string& page) {
  const Ec2Events events = read_events(page);
  for (const Ec2Notice& notice : events.active) act_on(notice);
  for (const std::string& problem : events.unreadable) {
    if (unreadable_.size() == kMostNotices || !unreadable_.insert(problem).second) continue;
    warn_(
        fmt::format("cannot parse an EC2 scheduled event for instance {0} on host {1} ({2}); the run does not stop for "
                    "this event; check `aws ec2 describe-instance-status --instance-ids {0}`",
                    instance_, options_.host, problem));
  }
}

void Ec2Watch::act_on(const Ec2Notice& notice) {
  {
    const std::lock_guard lock(mutex_);
    if (seen_.size() == kMostNotices && !seen_.contains(notice)) return;
    seen_.insert(notice);
  }
  const double now = seconds_since_1970();
  const std::string text = fmt::format("{} on host {}", describe(notice, instance_), options_.host);
  if (respond(notice, options_.began, now, kEventLead) == Ec2Response::kStop) {
    const bool ends = notice.kind == Ec2Notice::Kind::kInterruption;
    stop_.request(text, ends ? kInterruptionLead : 0);
  } else if (warned_.insert(notice).second) {
    const bool later = notice.kind == Ec2Notice::Kind::kEvent && now < notice.at - kEventLead;
    warn_(fmt::format(
        "{}: {}", text,
        later ? "the run saves and stops 15 minutes before the event"
              : "the notice precedes the start of this run, so the run continues; drain the node to move the run"));
  }
}

void Ec2Watch::complain(const std::string& problem) {
  std::vector<const char*> missed;
  for (Source& source : sources_) {
    if (source.failures < kFailuresToWarn || std::exchange(source.complained, true)) continue;
    missed.push_back(source.notices);
  }
  if (missed.empty()) return;
  const bool all = missed.size() == sources_.size();
  warn_(fmt::format("EC2's metadata service ({}:{}) failed on host {}: {}. Not monitored on this host: {}{}",
                    options_.endpoint.host, options_.endpoint.port, options_.host, problem, fmt::join(missed, ", "),
                    all ? ". Containers need a hop limit of 2 (aws ec2 modify-instance-metadata-options "
                          "--http-put-response-hop-limit 2); AWS_EC2_METADATA_DISABLED=true disables this check"
                        : ""));
}

std::optional<Ec2WatchOptions> ec2_watch_options(double began) {
  const bool named = parallel::process_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or("") != "";
  const doctor::System system;
  if (!named && !doctor::is_ec2(system)) return std::nullopt;
  const std::optional<MetadataEndpoint> endpoint = metadata_endpoint(parallel::process_environment);
  if (!endpoint) return std::nullopt;
  return Ec2WatchOptions{.endpoint = *endpoint, .began = began, .host = doctor::host_name(system)};
}

}  // namespace mpzero
