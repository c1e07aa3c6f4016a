#include "app/ec2/instance_metadata.hpp"

#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"

namespace mpzero {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr uint32_t kMostHeaderBytes = 8192;
constexpr uint64_t kMostBodyBytes = uint64_t{1} << 16;
constexpr unsigned kHttp11 = 11;
constexpr const char* kTokenPath = "/latest/api/token";
constexpr const char* kTokenLifetime = "21600";  // maximum lifetime in seconds
constexpr unsigned kOk = 200;
constexpr unsigned kUnauthorized = 401;
constexpr unsigned kNotFound = 404;
constexpr size_t kLongestToken = 4096;

// Tokens are sent in an HTTP header, so a token must not contain whitespace or control characters.
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
    throw_user_error("AWS_EC2_METADATA_SERVICE_ENDPOINT is '{}', not of the form http://ADDRESS:PORT: fix or unset it.",
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
  // Avoid name resolution, which may take longer than the timeout.
  if (endpoint.host == "localhost") endpoint.host = "127.0.0.1";
  boost::system::error_code no_address;
  asio::ip::make_address(endpoint.host, no_address);
  const bool digits = endpoint.port.find_first_not_of("0123456789") == std::string::npos;
  if (no_address || endpoint.port.empty() || endpoint.port.size() > 5 || !digits) refuse();
  return endpoint;
}

// A request and its connection. The handlers of pending operations keep the object alive.
struct InstanceMetadata::Exchange : std::enable_shared_from_this<Exchange> {
  explicit Exchange(asio::io_context& context) : stream(context) {
    parser.header_limit(kMostHeaderBytes);
    parser.body_limit(kMostBodyBytes);
  }
  void begin(const tcp::endpoint& service) {
    stream.async_connect(service, [self = shared_from_this()](beast::error_code connected) {
      if (connected) return self->end(connected);
      http::async_write(self->stream, self->request, [self](beast::error_code written, size_t) {
        if (written) return self->end(written);
        // Read the header separately: Boost 1.74 ignores the body limit if the body arrives with the header.
        http::async_read_header(self->stream, self->buffer, self->parser, [self](beast::error_code begun, size_t) {
          if (begun) return self->end(begun);
          http::async_read(self->stream, self->buffer, self->parser,
                           [self](beast::error_code result, size_t) { self->end(result); });
        });
      });
    });
  }
  void end(beast::error_code result) {
    error = result;
    ended = true;
  }

  beast::tcp_stream stream;
  http::request<http::empty_body> request;
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  beast::error_code error = beast::error::timeout;
  bool ended = false;
};

struct InstanceMetadata::Loop {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
};

InstanceMetadata::InstanceMetadata(MetadataEndpoint endpoint, std::chrono::milliseconds patience)
    : endpoint_(std::move(endpoint)), patience_(patience), loop_(std::make_unique<Loop>()) {}

InstanceMetadata::~InstanceMetadata() = default;

void InstanceMetadata::cancel() { loop_->context.stop(); }

InstanceMetadata::Answer InstanceMetadata::ask(Method method, const std::string& path, const std::string& header,
                                               const std::string& value) {
  if (loop_->context.stopped()) throw_failure("the request was canceled");
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  const auto exchange = std::make_shared<Exchange>(loop_->context);
  exchange->request = {method == Method::kPut ? http::verb::put : http::verb::get, path, kHttp11};
  exchange->request.set(http::field::host, endpoint_.host);
  exchange->request.set(http::field::connection, "close");
  exchange->request.set(header, value);
  exchange->stream.expires_at(deadline);
  exchange->begin({asio::ip::make_address(endpoint_.host), static_cast<uint16_t>(std::atoi(endpoint_.port.c_str()))});
  while (!exchange->ended && loop_->context.run_one_until(deadline) > 0) {
  }
  exchange->stream.close();
  if (loop_->context.stopped()) throw_failure("the request was canceled");
  if (exchange->error == beast::error::timeout) throw_failure("the request timed out");
  if (exchange->error) throw_failure("{}", exchange->error.message());
  return {.status = exchange->parser.get().result_int(), .text = std::move(exchange->parser.get().body())};
}

std::optional<std::string> InstanceMetadata::get(const std::string& path) {
  // The token may have expired, so retry once with a new token.
  for (const bool last : {false, true}) {
    if (token_.empty()) {
      Answer answer = ask(Method::kPut, kTokenPath, "X-aws-ec2-metadata-token-ttl-seconds", kTokenLifetime);
      if (answer.status != kOk) throw_failure("status {} in response to PUT {}", answer.status, kTokenPath);
      if (!is_token(answer.text)) throw_failure("the response to PUT {} is not a token", kTokenPath);
      token_ = std::move(answer.text);
    }
    Answer answer = ask(Method::kGet, path, "X-aws-ec2-metadata-token", token_);
    if (answer.status == kOk) return std::move(answer.text);
    if (answer.status == kNotFound) return std::nullopt;
    if (last || answer.status != kUnauthorized) throw_failure("status {} in response to GET {}", answer.status, path);
    token_.clear();
  }
  return std::nullopt;
}

}  // namespace mpzero
