#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <string>

namespace mpzero {

class Client {
 public:
  // `receives`: receive buffer size in bytes, which limits the data that arrives before rest() is called; 0: the
  // system's default.
  explicit Client(uint16_t port, int receives = 0) : socket_(context_) {
    const boost::asio::ip::tcp::endpoint server(boost::asio::ip::make_address("127.0.0.1"), port);
    socket_.open(server.protocol());
    if (receives > 0) socket_.set_option(boost::asio::socket_base::receive_buffer_size(receives));
    socket_.connect(server);
  }

  void send(const std::string& text) {
    boost::system::error_code ignored;  // the server may have closed the connection
    boost::asio::write(socket_, boost::asio::buffer(text), ignored);
  }
  // Returns all data received until the server closes the connection.
  std::string rest() {
    std::string text;
    boost::system::error_code end;
    boost::asio::read(socket_, boost::asio::dynamic_buffer(text), end);
    return text;
  }

 private:
  boost::asio::io_context context_;
  boost::asio::ip::tcp::socket socket_;
};

// Returns the response to a request such as "GET /metrics".
inline std::string ask(uint16_t port, const std::string& request) {
  Client client(port);
  client.send(request + " HTTP/1.1\r\nHost: x\r\n\r\n");
  return client.rest();
}

}  // namespace mpzero
