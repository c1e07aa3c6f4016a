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
  double began = 0;  // when this start of the run began, in seconds since 1970
  std::string host;  // for messages
  // AWS recommends polling every 5 seconds.
  std::chrono::milliseconds interval{5000};
  std::chrono::milliseconds patience{1000};  // timeout of a request
};

// Polls EC2's metadata service on its own thread for notices that this instance will end, and requests a stop of the
// run in time to save. One rank per node creates a watch.
class Ec2Watch {
 public:
  using Warn = std::function<void(const std::string&)>;

  // Calls `warn` on its thread. `stop` and data that `warn` uses must outlive the watch.
  Ec2Watch(Ec2WatchOptions options, StopRequest& stop, Warn warn);
  // Cancels a pending request.
  ~Ec2Watch();
  Ec2Watch(const Ec2Watch&) = delete;
  Ec2Watch& operator=(const Ec2Watch&) = delete;

  // Notices so far, by kind.
  std::map<Ec2Notice::Kind, int64_t> counts() const;
  // Whether the service answered the last poll.
  bool answers() const;

 private:
  // A page of notices. Requested every `period` polls; after a failure, at the next poll.
  struct Source {
    const char* path;
    const char* notices;  // in messages
    void (Ec2Watch::*take)(const std::string& page);
    int period = 1;
    int polls_left = 0;  // until the next request
    int failures = 0;    // in a row
    bool complained = false;
  };

  void run();
  // Requests all pages that are due.
  void poll();
  // Requests the instance's id, once.
  void identify();
  void take_interruption(const std::string& page) { act_on(read_interruption(page)); }
  void take_rebalance(const std::string& page) { act_on(read_rebalance(page)); }
  void take_events(const std::string& page);
  void act_on(const Ec2Notice& notice);
  // Warns once about each page that has failed several times in a row. `problem`: the last error.
  void complain(const std::string& problem);

  const Ec2WatchOptions options_;
  StopRequest& stop_;
  const Warn warn_;
  InstanceMetadata metadata_;
  std::string instance_;  // id; empty: unknown
  std::array<Source, 3> sources_;
  std::set<Ec2Notice> warned_;
  std::set<std::string> unreadable_;  // problems of events that were warned about
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  bool answers_ = false;
  std::set<Ec2Notice> seen_;
  std::thread thread_;  // the last member: it uses the others
};

// Options of this process; std::nullopt without a metadata service: not an EC2 instance, and no other endpoint is set.
// Throws UserError as metadata_endpoint().
std::optional<Ec2WatchOptions> ec2_watch_options(double began);

}  // namespace mpzero
