#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "app/ec2/ec2_notice.hpp"
#include "app/ec2/instance_metadata.hpp"
#include "app/health/stop_request.hpp"

namespace mpzero {

struct Ec2WatchOptions {
  MetadataEndpoint endpoint;
  double began = 0;  // Unix time of the run's start, in seconds
  std::string host;  // for messages
  // AWS recommends polling every 5 seconds.
  std::chrono::milliseconds interval{5000};
  std::chrono::milliseconds patience{1000};  // timeout of a request
};

// Polls EC2's metadata service for notices that this instance will be stopped or terminated, and requests a stop of the
// run in time to save a checkpoint. Runs on its own thread. One rank per node creates a watch.
class Ec2Watch {
 public:
  using Warn = std::function<void(const std::string&)>;

  // Calls `warn` on the watch's thread. `stop` and all data used by `warn` must outlive the watch.
  Ec2Watch(Ec2WatchOptions options, StopRequest& stop, Warn warn);
  // Cancels a pending request.
  ~Ec2Watch();
  Ec2Watch(const Ec2Watch&) = delete;
  Ec2Watch& operator=(const Ec2Watch&) = delete;

  // Returns the number of notices received so far, by kind.
  std::map<Ec2Notice::Kind, int64_t> counts() const;
  // Returns true if the service responded to the last poll.
  bool answers() const;

 private:
  // A page of the metadata service, requested every `period` polls and, after a failure, again at the next poll.
  struct Source {
    const char* path;
    const char* notices;  // name in messages
    void (Ec2Watch::*take)(const std::string& page);
    int period = 1;
    int polls_left = 0;  // until the next request
    int failures = 0;    // consecutive failures
    bool complained = false;
  };

  void run();
  // Requests all pages that are due.
  void poll();
  // Requests the instance id unless it is already known.
  void identify();
  void take_interruption(const std::string& page) { act_on(read_interruption(page)); }
  void take_rebalance(const std::string& page) { act_on(read_rebalance(page)); }
  void take_events(const std::string& page);
  void act_on(const Ec2Notice& notice);
  // Warns about pages that have failed several times in a row, once per page. `problem`: the last error.
  void complain(const std::string& problem);

  const Ec2WatchOptions options_;
  StopRequest& stop_;
  const Warn warn_;
  InstanceMetadata metadata_;
  std::string instance_;  // instance id; empty: unknown
  std::array<Source, 3> sources_;
  std::set<Ec2Notice> warned_;
  std::set<std::string> unreadable_;  // reported parse errors of events
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  bool answers_ = false;
  std::set<Ec2Notice> seen_;
  std::thread thread_;  // last member, because the thread uses all other members
};

// Returns the options for this process; std::nullopt if this host is not an EC2 instance and
// AWS_EC2_METADATA_SERVICE_ENDPOINT is unset, or if the service is disabled. See metadata_endpoint() for errors.
std::optional<Ec2WatchOptions> ec2_watch_options(double began);

}  // namespace mpzero
