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
  // AWS recommends to ask every 5 seconds.
  std::chrono::milliseconds interval{5000};
  std::chrono::milliseconds patience{1000};  // of one request
};

// Asks EC2's metadata service, in a thread of its own, whether this instance is about to end, and requests a stop of
// the run in time to save. One rank of each node has one.
class Ec2Watch {
 public:
  using Warn = std::function<void(const std::string&)>;

  // `warn` is called by the thread. `stop` and what `warn` uses must outlive it.
  Ec2Watch(Ec2WatchOptions options, StopRequest& stop, Warn warn);
  // Ends a request that is being made.
  ~Ec2Watch();
  Ec2Watch(const Ec2Watch&) = delete;
  Ec2Watch& operator=(const Ec2Watch&) = delete;

  // Notices so far, by kind.
  std::map<Ec2Notice::Kind, int64_t> counts() const;
  // Whether the service has answered the last time that it was asked.
  bool answers() const;

 private:
  // A page of the service with notices. It is asked for at one of `period` polls; after a failure, at the next one.
  struct Source {
    const char* path;
    const char* notices;  // in messages
    void (Ec2Watch::*take)(const std::string& page);
    int period = 1;
    int polls_left = 0;  // until it is asked for again
    int failures = 0;    // in a row
    bool complained = false;
  };

  void run();
  // Asks for all pages whose time has come.
  void poll();
  // Asks for the instance's id, once.
  void identify();
  void take_interruption(const std::string& page) { act_on(read_interruption(page)); }
  void take_rebalance(const std::string& page) { act_on(read_rebalance(page)); }
  void take_events(const std::string& page);
  void act_on(const Ec2Notice& notice);
  // Warns of the pages that have failed several times in a row, once of each. `problem`: the newest.
  void complain(const std::string& problem);

  const Ec2WatchOptions options_;
  StopRequest& stop_;
  const Warn warn_;
  InstanceMetadata metadata_;
  std::string instance_;  // its id; empty: not known yet
  std::array<Source, 3> sources_;
  std::set<Ec2Notice> warned_;
  std::set<std::string> unreadable_;  // events, by what is wrong with them, of which it has warned
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  bool answers_ = false;
  std::set<Ec2Notice> seen_;
  std::thread thread_;  // the last member: it uses the others
};

// The options of this process, or std::nullopt where there is no such service to ask: this is no EC2 instance, and no
// other service is named. Throws UserError as metadata_endpoint().
std::optional<Ec2WatchOptions> ec2_watch_options(double began);

}  // namespace mpzero
