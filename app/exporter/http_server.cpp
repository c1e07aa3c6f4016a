#include "app/exporter/http_server.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace mpzero {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

// Delay after a failed accept, for example if no file descriptors are available.
constexpr std::chrono::milliseconds kPause{200};
constexpr uint32_t kMostRequestHeaderBytes = 8192;
constexpr uint64_t kMostRequestBodyBytes = 0;

http::response<http::string_body> answer_to(const http::request<http::empty_body>& request,
                                            const std::function<std::string()>& page) {
  http::response<http::string_body> response;
  response.version(request.version());
  response.keep_alive(false);
  response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
  // Ignore the query string.
  const auto path = request.target().substr(0, request.target().find('?'));
  const bool known = path == "/metrics" || path == "/";
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    response.result(http::status::method_not_allowed);
    response.set(http::field::allow, "GET, HEAD");
  } else if (!known) {
    response.result(http::status::not_found);
    response.body() = "The metrics are at /metrics.\n";
  } else {
    response.body() = page();
  }
  response.content_length(response.body().size());
  if (request.method() == http::verb::head) response.body().clear();
  return response;
}

// A connection for one request and response. Pending operations keep the object alive.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const std::function<std::string()>& page, std::chrono::milliseconds patience)
      : stream_(std::move(socket)), page_(page), patience_(patience) {
    parser_.header_limit(kMostRequestHeaderBytes);
    parser_.body_limit(kMostRequestBodyBytes);
  }

  void begin() {
    stream_.expires_after(patience_);
    http::async_read(stream_, buffer_, parser_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (!error) self->answer();
    });
  }
  // Closes the connection even if an operation is pending.
  void close() { stream_.close(); }

 private:
  void answer() {
    response_ = answer_to(parser_.get(), page_);
    stream_.expires_after(patience_);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code, size_t) {
      beast::error_code ignored;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    });
  }

  beast::tcp_stream stream_;
  const std::function<std::string()>& page_;
  const std::chrono::milliseconds patience_;
  beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
};

}  // namespace

class HttpServer::State {
 public:
  State(const std::string& address, uint16_t port, std::function<std::string()> page,
        std::chrono::milliseconds patience)
      : page_(std::move(page)),
        patience_(patience),
        acceptor_(context_, tcp::endpoint(asio::ip::make_address(address), port)),
        pause_(context_) {
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~State() {
    context_.stop();
    thread_.join();
  }

  uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  void accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error) {
        pause_.expires_after(kPause);
        pause_.async_wait([this](beast::error_code) { accept(); });
        return;
      }
      std::erase_if(open_, [](const auto& one) { return one.expired(); });
      // Close the oldest connection, so that idle connections do not block new connections.
      if (open_.size() >= kMostConnections) {
        if (const auto oldest = open_.front().lock()) oldest->close();
        open_.erase(open_.begin());
      }
      const auto connection = std::make_shared<Connection>(std::move(socket), page_, patience_);
      open_.push_back(connection);
      connection->begin();
      accept();
    });
  }

  const std::function<std::string()> page_;
  const std::chrono::milliseconds patience_;
  std::vector<std::weak_ptr<Connection>> open_;  // oldest first
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::thread thread_;
};

HttpServer::HttpServer(const std::string& address, uint16_t port, std::function<std::string()> page,
                       std::chrono::milliseconds patience) try
    : state_(std::make_unique<State>(address, port, std::move(page), patience)) {
} catch (const boost::system::system_error& error) {
  throw std::system_error(error.code().value(), std::system_category());
}

HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return state_->port(); }

}  // namespace mpzero
