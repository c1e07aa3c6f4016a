#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/comm_thread/communication_thread.hpp"

namespace mpzero::parallel {

// A block of bytes, divided into pieces that are sent as one message each.
struct MessagePieces {
  // Bounds on the piece size in bytes. Large pieces amortize per-message overhead; small pieces let the reduction of
  // one piece overlap with the transfer of others.
  static constexpr int64_t kMost = 256 << 10, kLeast = 32 << 10;
  // Target for the bytes that a rank has in flight. The total may exceed this target, because pieces are not made
  // smaller than kLeast.
  static constexpr int64_t kUnderWay = 4 << 20;
  // Alignment of each piece in bytes, so that no element spans two pieces.
  static constexpr int64_t kAlignment = 64;

  int64_t length = 0;
  int64_t count = 0;  // pieces of the longest block

  // `peers`: number of other ranks. Each peer receives one block.
  static MessagePieces of(int64_t longest_block, int peers) {
    const int64_t length = std::clamp(kUnderWay / std::max(peers, 1), kLeast, kMost) / kAlignment * kAlignment;
    return {.length = length, .count = (longest_block + length - 1) / length};
  }
  int64_t begin(int64_t piece) const { return piece * length; }
  // Returns the size of a piece in a block of `block` bytes.
  int64_t size(int64_t block, int64_t piece) const { return std::clamp<int64_t>(block - begin(piece), 0, length); }
  // Returns the number of pieces in flight to and from each peer.
  int64_t depth(int peers) const { return std::max<int64_t>(2, kUnderWay / (length * std::max(peers, 1))); }
};

// A message sent to one rank and a message received from one rank. Messages of 0 bytes are not sent.
struct Transfer {
  int to = 0;
  const void* sent = nullptr;
  int64_t sent_bytes = 0;
  int from = 0;
  void* received = nullptr;
  int64_t received_bytes = 0;
};

// Performs the transfers 0, 1, ... of a collective, with several transfers in flight. The functions of Transfers do not
// block. Two ranks that exchange messages must use the same order and the same message lengths, each at most
// kMostBytes. No other messages may use this tag and communicator at the same time.
class Transfers {
 public:
  static constexpr int64_t kMostBytes = 1 << 20;

  struct Plan {
    int64_t count = 0;
    int64_t most_under_way = 1;
    std::function<Transfer(int64_t index)> transfer{};
    // Returns true if transfer `index` may begin when `done` transfers are done. If null, transfers may always begin.
    std::function<bool(int64_t index, int64_t done)> may_begin{};
    // Called after each transfer, in order. May be null.
    std::function<void(int64_t index)> done{};
    // Owner of the messages' memory.
    std::shared_ptr<const void> memory{};
  };

  Transfers(MPI_Comm communicator, Plan plan);
  // The destructor does not free the memory of messages in flight, because MPI may still access it.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Begins and completes as many transfers as possible. Throws Failure if MPI fails.
  HostTask::Progress advance();

 private:
  struct Requests {
    MPI_Request send = MPI_REQUEST_NULL;
    MPI_Request receive = MPI_REQUEST_NULL;
  };
  bool may_begin() const;
  void begin();

  MPI_Comm communicator_;
  Plan plan_;
  int64_t begun_ = 0;
  int64_t done_ = 0;
  std::vector<Requests> requests_;  // transfer i uses element i % most_under_way
};

}  // namespace mpzero::parallel
