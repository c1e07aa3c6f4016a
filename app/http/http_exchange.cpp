#include "app/http/http_exchange.hpp"

#include <netdb.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.hpp"

namespace mpzero {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr uint32_t kMostHeaderBytes = 8192;
constexpr unsigned kHttp11 = 11;

using Clock = std::chrono::steady_clock;
using Endpoints = std::vector<tcp::endpoint>;

// getaddrinfo() waits for a name server for many seconds, and nothing ends it. So a thread of its own calls it, which
// no one waits for.
class NameLookup : public std::enable_shared_from_this<NameLookup> {
 public:
  void start(const std::string& host, const std::string& port) {
    std::thread([self = shared_from_this(), host, port] { self->look_up(host, port); }).detach();
  }
  // std::nullopt: not by then, or stop() was called. Throws Failure if there is no such host.
  std::optional<Endpoints> wait_until(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return stopped_ || done_; });
    if (stopped_ || !done_) return std::nullopt;
    if (!problem_.empty()) throw_failure("{}", problem_);
    return endpoints_;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  void look_up(const std::string& host, const std::string& port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    const std::lock_guard lock(mutex_);
    if (error != 0) problem_ = host + " is not found: " + ::gai_strerror(error);
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      tcp::endpoint endpoint;
      if (one->ai_addrlen > endpoint.capacity()) continue;
      std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
      endpoint.resize(one->ai_addrlen);
      endpoints_.push_back(endpoint);
    }
    if (found != nullptr) ::freeaddrinfo(found);
    done_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool done_ = false;
  std::string problem_;
  Endpoints endpoints_;
};

}  // namespace

class HttpExchange::State {
 public:
  explicit State(HttpRequest request) : host_(request.host), port_(request.port), stream_(context_) {
    request_.method_string(request.method);
    request_.target(request.path);
    request_.version(kHttp11);
    request_.set(http::field::host, request.host);
    request_.set(http::field::connection, "close");
    for (const auto& [name, value] : request.headers) request_.set(name, value);
    parser_.header_limit(kMostHeaderBytes);
    parser_.body_limit(request.most_bytes);
  }

  HttpAnswer run(std::chrono::milliseconds patience) {
    const Clock::time_point deadline = Clock::now() + patience;
    if (const std::optional<Endpoints> endpoints = find_host(deadline)) {
      stream_.expires_at(deadline);
      stream_.async_connect(*endpoints, [this](beast::error_code failed, const auto&) { write(failed); });
      context_.run_until(deadline);
    }
    if (!ended_) error_ = beast::error::timeout;
    if (error_) throw_failure("{}", error_ == beast::error::timeout ? "it does not answer in time" : error_.message());
    return {.status = parser_.get().result_int(), .text = std::move(parser_.get().body())};
  }
  void stop() {
    lookup_->stop();
    context_.stop();
  }

 private:
  std::optional<Endpoints> find_host(Clock::time_point deadline) {
    beast::error_code not_an_address;
    const asio::ip::address address = asio::ip::make_address(host_, not_an_address);
    if (!not_an_address) return Endpoints{{address, static_cast<uint16_t>(std::atoi(port_.c_str()))}};
    lookup_->start(host_, port_);
    return lookup_->wait_until(deadline);
  }
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

  const std::string host_, port_;
  http::request<http::empty_body> request_;
  asio::io_context context_{1};
  const std::shared_ptr<NameLookup> lookup_ = std::make_shared<NameLookup>();
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  beast::error_code error_;
  bool ended_ = false;
};

HttpExchange::HttpExchange(HttpRequest request) : state_(std::make_unique<State>(std::move(request))) {}
HttpExchange::~HttpExchange() = default;
HttpAnswer HttpExchange::run(std::chrono::milliseconds patience) { return state_->run(patience); }
void HttpExchange::stop() { state_->stop(); }

}  // namespace mpzero
