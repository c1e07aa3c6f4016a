#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/environment.hpp"

// EC2's instance metadata service, version 2 (IMDSv2):
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-v2-how-it-works.html
namespace mpzero {

struct MetadataEndpoint {
  std::string host;  // IP address without brackets
  std::string port;
};

// Returns the same endpoint as the AWS SDKs: AWS_EC2_METADATA_SERVICE_ENDPOINT ("http://ADDRESS:PORT"), else the
// default address for AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE ("IPv4" or "IPv6"). Returns std::nullopt if
// AWS_EC2_METADATA_DISABLED is "true". Throws UserError for invalid values.
std::optional<MetadataEndpoint> metadata_endpoint(const parallel::Environment& environment);

// HTTP client for EC2's instance metadata service. `patience`: timeout of a request. Responses are limited to 64 KiB.
class InstanceMetadata {
 public:
  explicit InstanceMetadata(MetadataEndpoint endpoint, std::chrono::milliseconds patience);
  ~InstanceMetadata();
  InstanceMetadata(const InstanceMetadata&) = delete;
  InstanceMetadata& operator=(const InstanceMetadata&) = delete;

  // Returns the text at a path such as "/latest/meta-data/instance-id"; std::nullopt if not found (404). Throws Failure
  // for network errors and invalid responses. The error message is a clause without a final period.
  std::optional<std::string> get(const std::string& path);
  // Cancels the pending request and all later requests. Thread-safe.
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
