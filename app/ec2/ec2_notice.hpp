#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace mpzero {

// A notice from EC2 about an instance.
struct Ec2Notice {
  enum class Kind : uint8_t {
    // A spot instance will be reclaimed in two minutes:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
    kInterruption,
    // A spot instance is at elevated risk of being reclaimed:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
    kRebalance,
    // The instance will be rebooted, stopped, retired or disconnected:
    // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html
    kEvent
  };
  Kind kind = Kind::kInterruption;
  std::string what;    // "terminate", "system-reboot", ...
  double at = 0;       // time of the event (for kRebalance, of the notice), Unix time in seconds
  std::string moment;  // `at` in EC2's format
  auto operator<=>(const Ec2Notice&) const = default;
};

// Scheduled events of an instance, excluding completed and canceled events.
struct Ec2Events {
  std::vector<Ec2Notice> active;
  std::vector<std::string> unreadable;  // errors for events that cannot be parsed; clauses without a final period
};

// Parse the responses for spot/instance-action, events/recommendations/rebalance and events/maintenance/scheduled.
// Throw JsonError if a response is not valid JSON. Throw Failure if the format of a response is invalid; the message is
// a clause without a final period.
Ec2Notice read_interruption(const std::string& text);
Ec2Notice read_rebalance(const std::string& text);
Ec2Events read_events(const std::string& text);

enum class Ec2Response : uint8_t { kWarn, kStop };

// Returns how a run responds to a notice. Interruptions always stop the run. Rebalance recommendations stop only runs
// that started before the notice, and events stop only runs that started more than `lead` seconds before the event.
// A restarted run therefore does not stop again for the same notice. `began`: start time of the run; `now`: current
// time; both are Unix times in seconds.
Ec2Response respond(const Ec2Notice& notice, double began, double now, double lead);

// Returns a noun phrase such as "EC2 spot interruption of instance i-0123 at 2026-01-02T03:04:05Z (terminate)".
// `instance` may be empty.
std::string describe(const Ec2Notice& notice, const std::string& instance);

}  // namespace mpzero
