#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace mpzero {

// HTTP server for tests. Serves one connection at a time: passes the lines of the request to `answer` and sends the
// returned text. If the text is empty, the connection stays open without a response.
class StandInServer {
 public:
  using Answer = std::function<std::string(const std::string& request)>;

  explicit StandInServer(Answer answer)
      : answer_(std::move(answer)),
        acceptor_(context_, {boost::asio::ip::make_address("127.0.0.1"), 0}),
        thread_([this] { serve(); }) {}
  ~StandInServer() {
    ends_ = true;
    // A connection wakes the thread.
    boost::asio::io_context context;
    boost::asio::ip::tcp::socket socket(context);
    boost::system::error_code ignored;
    socket.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }

  std::string port() const { return std::to_string(acceptor_.local_endpoint().port()); }
  // Returns the number of connections so far.
  int asked() const { return asked_; }

  static std::string page(int status, const std::string& body) {
    return "HTTP/1.1 " + std::to_string(status) + " x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  }

 private:
  void serve() {
    std::vector<boost::asio::ip::tcp::socket> silent;
    while (true) {
      boost::asio::ip::tcp::socket socket = acceptor_.accept();
      if (ends_) return;
      ++asked_;
      std::string request;
      boost::system::error_code ignored;
      boost::asio::read_until(socket, boost::asio::dynamic_buffer(request), "\r\n\r\n", ignored);
      const std::string answer = answer_(request);
      if (answer.empty()) {
        silent.push_back(std::move(socket));
      } else {
        boost::asio::write(socket, boost::asio::buffer(answer), ignored);
      }
    }
  }

  const Answer answer_;
  std::atomic<bool> ends_ = false;
  std::atomic<int> asked_ = 0;
  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

}  // namespace mpzero
