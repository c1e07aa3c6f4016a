#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/environment.hpp"

// EC2's instance metadata service, version 2:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-v2-how-it-works.html
namespace mpzero {

struct MetadataEndpoint {
  std::string host;  // an address, without brackets
  std::string port;
};

// Where the AWS SDKs look for it: AWS_EC2_METADATA_SERVICE_ENDPOINT ("http://ADDRESS:PORT"), else by
// AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE ("IPv4", "IPv6") the address of every instance. std::nullopt:
// AWS_EC2_METADATA_DISABLED is "true". Throws UserError for another value.
std::optional<MetadataEndpoint> metadata_endpoint(const parallel::Environment& environment);

// Asks the service over HTTP. A request takes no longer than `patience`, and its answer no more than 64 KiB.
class InstanceMetadata {
 public:
  explicit InstanceMetadata(MetadataEndpoint endpoint, std::chrono::milliseconds patience);
  ~InstanceMetadata();
  InstanceMetadata(const InstanceMetadata&) = delete;
  InstanceMetadata& operator=(const InstanceMetadata&) = delete;

  // The text at a path such as "/latest/meta-data/instance-id"; std::nullopt: the service says that there is none
  // (404). Throws Failure, with a clause without its full stop, if it does not answer as EC2's does.
  std::optional<std::string> get(const std::string& path);
  // Ends a request that another thread has made, and all later ones.
  void cancel();

 private:
  struct Exchange;
  struct Loop;
  enum class Method : uint8_t { kGet, kPut };
  struct Answer {
    unsigned status = 0;
    std::string text;
  };
  Answer ask(Method method, const std::string& path, const std::string& header, const std::string& value);

  const MetadataEndpoint endpoint_;
  const std::chrono::milliseconds patience_;
  std::string token_;  // empty: none yet
  const std::unique_ptr<Loop> loop_;
};

}  // namespace mpzero
