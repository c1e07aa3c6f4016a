#include "app/ec2/instance_metadata.hpp"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <mutex>
#include <utility>

#include "base/error.hpp"

namespace mpzero {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr const char* kTokenPath = "/latest/api/token";
constexpr const char* kTokenLifetime = "21600";  // seconds, the longest that the service grants
constexpr uint32_t kMostHeaderBytes = 8192;
constexpr uint64_t kMostBodyBytes = 65536;
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

// One request on a connection of its own.
class InstanceMetadata::Exchange {
 public:
  Exchange(const MetadataEndpoint& endpoint, http::request<http::empty_body> request)
      : endpoint_(endpoint), request_(std::move(request)), resolver_(context_), stream_(context_) {
    parser_.header_limit(kMostHeaderBytes);
    parser_.body_limit(kMostBodyBytes);
  }

  // Throws Failure.
  Answer run(std::chrono::milliseconds patience) {
    stream_.expires_after(patience);
    beast::error_code not_an_address;
    const asio::ip::address address = asio::ip::make_address(endpoint_.host, not_an_address);
    if (not_an_address) {
      resolver_.async_resolve(endpoint_.host, endpoint_.port, [this](beast::error_code error, const auto& results) {
        if (error) return end(error);
        stream_.async_connect(results, [this](beast::error_code failed, const auto&) { write(failed); });
      });
    } else {
      const auto port = static_cast<uint16_t>(std::stoi(endpoint_.port));
      stream_.async_connect(tcp::endpoint(address, port), [this](beast::error_code failed) { write(failed); });
    }
    context_.run_for(patience);
    if (!ended_) error_ = beast::error::timeout;
    if (error_) throw_failure("{}", error_ == beast::error::timeout ? "it does not answer in time" : error_.message());
    return {.status = parser_.get().result_int(), .text = std::move(parser_.get().body())};
  }
  void stop() { context_.stop(); }

 private:
  void write(beast::error_code error) {
    if (error) return end(error);
    http::async_write(stream_, request_, [this](beast::error_code failed, size_t) {
      if (failed) return end(failed);
      // The header on its own: Boost 1.74 forgets the limit of the body if the body comes with it.
      http::async_read_header(stream_, buffer_, parser_, [this](beast::error_code refused, size_t) {
        if (refused) return end(refused);
        http::async_read(stream_, buffer_, parser_, [this](beast::error_code result, size_t) { end(result); });
      });
    });
  }
  void end(beast::error_code error) {
    error_ = error;
    ended_ = true;
  }

  const MetadataEndpoint& endpoint_;
  http::request<http::empty_body> request_;
  asio::io_context context_{1};
  tcp::resolver resolver_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  beast::error_code error_;
  bool ended_ = false;
};

struct InstanceMetadata::Cancellation {
  std::mutex mutex;
  Exchange* current = nullptr;
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

InstanceMetadata::Answer InstanceMetadata::ask(const std::string& method, const std::string& path,
                                               const std::string& header, const std::string& value) {
  http::request<http::empty_body> request(http::string_to_verb(method), path, 11);
  request.set(http::field::host, endpoint_.host);
  request.set(http::field::connection, "close");
  request.set(header, value);
  Exchange exchange(endpoint_, std::move(request));
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
      Answer answer = ask("PUT", kTokenPath, "X-aws-ec2-metadata-token-ttl-seconds", kTokenLifetime);
      if (answer.status != kOk) throw_failure("it answers {} to PUT {}", answer.status, kTokenPath);
      if (!is_token(answer.text)) throw_failure("its answer to PUT {} is no token", kTokenPath);
      token_ = std::move(answer.text);
    }
    Answer answer = ask("GET", path, "X-aws-ec2-metadata-token", token_);
    if (answer.status == kOk) return std::move(answer.text);
    if (answer.status == kNotFound) return std::nullopt;
    if (last || answer.status != kUnauthorized) throw_failure("it answers {} to GET {}", answer.status, path);
    token_.clear();
  }
  return std::nullopt;
}

}  // namespace mpzero
