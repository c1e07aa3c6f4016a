#include "app/http/http_exchange.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>

#include "base/error.hpp"

namespace mpzero {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr uint32_t kMostHeaderBytes = 8192;
constexpr unsigned kHttp11 = 11;

}  // namespace

class HttpExchange::State {
 public:
  explicit State(HttpRequest request)
      : host_(request.host), port_(request.port), resolver_(context_), stream_(context_) {
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
    stream_.expires_after(patience);
    beast::error_code not_an_address;
    const asio::ip::address address = asio::ip::make_address(host_, not_an_address);
    if (not_an_address) {
      resolver_.async_resolve(host_, port_, [this](beast::error_code error, const auto& results) {
        if (error) return end(error);
        stream_.async_connect(results, [this](beast::error_code failed, const auto&) { write(failed); });
      });
    } else {
      const auto port = static_cast<uint16_t>(std::atoi(port_.c_str()));
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

  const std::string host_, port_;
  http::request<http::empty_body> request_;
  asio::io_context context_{1};
  tcp::resolver resolver_;
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
