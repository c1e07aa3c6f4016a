#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace mpzero {

// What EC2 announces about an instance.
struct Ec2Notice {
  enum class Kind : uint8_t {
    // A spot instance is taken back in two minutes:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    kInterruption,
    // A spot instance is likelier to be taken back than others:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
    kRebalance,
    // The instance is rebooted, stopped, retired or disconnected:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html
    kEvent
  };
  Kind kind = Kind::kInterruption;
  std::string what;    // "terminate", "system-reboot", ...
  double at = 0;       // seconds since 1970: when it happens; of kRebalance, when it was said
  std::string moment;  // the same as EC2 writes it
  auto operator<=>(const Ec2Notice&) const = default;
};

// The scheduled events of an instance. Those that have ended or were cancelled are left out.
struct Ec2Events {
  std::vector<Ec2Notice> active;
  std::vector<std::string> unreadable;  // why, as a clause, of each event that is none
};

// The answers of the service at spot/instance-action, events/recommendations/rebalance and
// events/maintenance/scheduled. Throws JsonError or Failure with a clause if it is no such answer.
Ec2Notice read_interruption(const std::string& text);
Ec2Notice read_rebalance(const std::string& text);
Ec2Events read_events(const std::string& text);

// How a run responds to a notice.
enum class Ec2Response : uint8_t { kWarn, kStop };

// `began`: when this start of the run began; `now`: both in seconds since 1970. `lead`: how long before an event a run
// stops. A start that follows such a stop on the same instance does not stop for the same notice again: it would never
// do a step. An interruption always stops it.
Ec2Response respond(const Ec2Notice& notice, double began, double now, double lead);

// "EC2 reclaims the spot instance i-0123 at 2026-01-02T03:04:05Z (terminate)"; `instance` may be empty.
std::string describe(const Ec2Notice& notice, const std::string& instance);

}  // namespace mpzero
