#include "app/ec2/instance_metadata.hpp"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "app/http/http_exchange.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

constexpr const char* kTokenPath = "/latest/api/token";
constexpr const char* kTokenLifetime = "21600";  // seconds, the longest that the service grants
constexpr unsigned kOk = 200;
constexpr unsigned kUnauthorized = 401;
constexpr unsigned kNotFound = 404;
constexpr size_t kLongestToken = 4096;

// A token becomes a header of later requests: nothing in it may end the header.
bool is_token(const std::string& text) {
  if (text.empty() || text.size() > kLongestToken) return false;
  for (const char c : text) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

}  // namespace

std::optional<MetadataEndpoint> metadata_endpoint(const parallel::Environment& environment) {
  if (environment("AWS_EC2_METADATA_DISABLED").value_or("") == "true") return std::nullopt;
  const std::string url = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or("");
  if (url.empty()) {
    const std::string mode = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").value_or("");
    if (mode == "IPv6" || mode == "ipv6") return MetadataEndpoint{.host = "fd00:ec2::254", .port = "80"};
    if (mode.empty() || mode == "IPv4" || mode == "ipv4") return MetadataEndpoint{"169.254.169.254", "80"};
    throw_user_error("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE is '{}': set it to IPv4 or IPv6, or unset it.", mode);
  }
  const auto refuse = [&url] {
    throw_user_error(
        "AWS_EC2_METADATA_SERVICE_ENDPOINT is '{}', which is not of the form http://HOST:PORT: correct or unset it.",
        url);
  };
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) refuse();
  std::string place = url.substr(kScheme.size());
  if (place.ends_with('/')) place.pop_back();
  MetadataEndpoint endpoint{.host = place, .port = "80"};
  if (place.starts_with('[')) {
    const size_t end = place.find(']');
    if (end == std::string::npos) refuse();
    endpoint.host = place.substr(1, end - 1);
    place = place.substr(end + 1);
    if (!place.empty() && place.front() != ':') refuse();
    if (!place.empty()) endpoint.port = place.substr(1);
  } else if (const size_t colon = place.find(':'); colon != std::string::npos) {
    endpoint = {.host = place.substr(0, colon), .port = place.substr(colon + 1)};
  }
  const bool digits = endpoint.port.find_first_not_of("0123456789") == std::string::npos;
  if (endpoint.host.empty() || endpoint.port.empty() || endpoint.port.size() > 5 || !digits ||
      endpoint.host.find_first_of("/ @?#") != std::string::npos) {
    refuse();
  }
  return endpoint;
}

struct InstanceMetadata::Cancellation {
  std::mutex mutex;
  HttpExchange* current = nullptr;
  bool cancelled = false;
};

InstanceMetadata::InstanceMetadata(MetadataEndpoint endpoint, std::chrono::milliseconds patience)
    : endpoint_(std::move(endpoint)), patience_(patience), cancellation_(std::make_unique<Cancellation>()) {}

InstanceMetadata::~InstanceMetadata() = default;

void InstanceMetadata::cancel() {
  const std::lock_guard lock(cancellation_->mutex);
  cancellation_->cancelled = true;
  if (cancellation_->current != nullptr) cancellation_->current->stop();
}

HttpAnswer InstanceMetadata::ask(const std::string& method, const std::string& path, const std::string& header,
                                 const std::string& value) {
  HttpExchange exchange(
      {.host = endpoint_.host, .port = endpoint_.port, .method = method, .path = path, .headers = {{header, value}}});
  {
    const std::lock_guard lock(cancellation_->mutex);
    if (cancellation_->cancelled) throw_failure("the request was cancelled");
    cancellation_->current = &exchange;
  }
  // Before the exchange ends its life, however that comes.
  const auto leave = [this](void*) {
    const std::lock_guard lock(cancellation_->mutex);
    cancellation_->current = nullptr;
  };
  const std::unique_ptr<void, decltype(leave)> left(this, leave);
  return exchange.run(patience_);
}

std::optional<std::string> InstanceMetadata::get(const std::string& path) {
  // A token may have expired: a new one is tried once.
  for (const bool last : {false, true}) {
    if (token_.empty()) {
      HttpAnswer answer = ask("PUT", kTokenPath, "X-aws-ec2-metadata-token-ttl-seconds", kTokenLifetime);
      if (answer.status != kOk) throw_failure("it answers {} to PUT {}", answer.status, kTokenPath);
      if (!is_token(answer.text)) throw_failure("its answer to PUT {} is no token", kTokenPath);
      token_ = std::move(answer.text);
    }
    HttpAnswer answer = ask("GET", path, "X-aws-ec2-metadata-token", token_);
    if (answer.status == kOk) return std::move(answer.text);
    if (answer.status == kNotFound) return std::nullopt;
    if (last || answer.status != kUnauthorized) throw_failure("it answers {} to GET {}", answer.status, path);
    token_.clear();
  }
  return std::nullopt;
}

}  // namespace mpzero
