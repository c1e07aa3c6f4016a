#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace mpzero {

// A notice from EC2 about an instance.
struct Ec2Notice {
  enum class Kind : uint8_t {
    // A spot instance is reclaimed in two minutes:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    kInterruption,
    // A spot instance is at elevated risk of being reclaimed:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
    kRebalance,
    // The instance is rebooted, stopped, retired or disconnected:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html
    kEvent
  };
  Kind kind = Kind::kInterruption;
  std::string what;    // "terminate", "system-reboot", ...
  double at = 0;       // time of the event, or for kRebalance of the notice, in seconds since 1970
  std::string moment;  // `at` as EC2 writes it
  auto operator<=>(const Ec2Notice&) const = default;
};

// Scheduled events of an instance, without those that have ended or were cancelled.
struct Ec2Events {
  std::vector<Ec2Notice> active;
  std::vector<std::string> unreadable;  // for each event that cannot be parsed, the reason as a clause
};

// Parse the service's responses at spot/instance-action, events/recommendations/rebalance and
// events/maintenance/scheduled. Throw JsonError, or Failure with a clause, if a response has another format.
Ec2Notice read_interruption(const std::string& text);
Ec2Notice read_rebalance(const std::string& text);
Ec2Events read_events(const std::string& text);

// How a run responds to a notice.
enum class Ec2Response : uint8_t { kWarn, kStop };

// `began`: when this start of the run began; `now`: current time; both in seconds since 1970. `lead`: how long before
// an event a run stops. An interruption always stops the run. After a stop for another notice, the next start on the
// same instance does not stop for the same notice: it would never complete a step.
Ec2Response respond(const Ec2Notice& notice, double began, double now, double lead);

// "EC2 reclaims the spot instance i-0123 at 2026-01-02T03:04:05Z (terminate)"; `instance` may be empty.
std::string describe(const Ec2Notice& notice, const std::string& instance);

}  // namespace mpzero
