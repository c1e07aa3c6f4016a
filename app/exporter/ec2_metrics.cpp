#include "app/exporter/ec2_metrics.hpp"

#include <map>

namespace mpzero {

void collect_ec2(const Ec2Watch& watch, Families& to) {
  using Kind = Ec2Notice::Kind;
  const std::map<Kind, int64_t> counts = watch.counts();
  const auto count = [&](Kind kind) {
    const auto found = counts.find(kind);
    return found == counts.end() ? 0.0 : static_cast<double>(found->second);
  };
  constexpr const char* kName = "mpzero_ec2_notices_total";
  constexpr const char* kHelp = "Notices of EC2 about this instance.";
  to.counter(kName, kHelp, count(Kind::kInterruption), {{"kind", "interruption"}});
  to.counter(kName, kHelp, count(Kind::kRebalance), {{"kind", "rebalance"}});
  to.counter(kName, kHelp, count(Kind::kEvent), {{"kind", "event"}});
  to.gauge("mpzero_ec2_metadata_up", "1 while EC2's metadata service answers.", watch.answers() ? 1 : 0);
}

}  // namespace mpzero
