#include "parallel/comm/mpi_communicator.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "parallel/host/part_sum.hpp"
#include "parallel/mpi/mpi_check.hpp"
#include "parallel/mpi/transfers.hpp"

namespace mpzero::parallel {
namespace {

// Up to this size in bytes, each rank receives and adds the full tensors, which takes one exchange instead of two.
constexpr int64_t kSmall = 8 << 10;
static_assert(MessagePieces::kMost <= Transfers::kMostBytes && kSmall <= Transfers::kMostBytes);

// A tensor, divided into one block per rank in rank order. The last blocks may be shorter or empty.
struct Blocks {
  int64_t total = 0;  // bytes
  int64_t longest = 0;

  int64_t begin(int rank) const { return std::min(total, rank * longest); }
  int64_t size(int rank) const { return std::min(longest, total - begin(rank)); }
};

char* bytes_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

class Pending final : public PendingCollective {
 public:
  explicit Pending(std::shared_ptr<CommunicationThread::Job> job) : job_(std::move(job)) {}
  void wait() override { job_->wait(); }
  std::shared_ptr<const DeviceWork> device_work() const override { return job_; }

 private:
  std::shared_ptr<CommunicationThread::Job> job_;
};

}  // namespace

// A collective consists of a sequence of parts: exchanges and local work.
class MpiCommunicator::Collective final : public HostTask {
 public:
  // `tensors`: tensors of the collective, which are kept alive.
  Collective(MpiCommunicator& owner, std::vector<at::Tensor> tensors)
      : owner_(owner), rank_(owner.rank_), ranks_(owner.world_size_), peers_(owner.world_size_ - 1) {
    memory_ = std::make_shared<Memory>(Memory{.tensors = std::move(tensors), .received = owner.received_});
  }

  void copy(const void* from, void* to, int64_t bytes) {
    if (from == to || bytes == 0) return;
    parts_.push_back([=, this] {
      std::memcpy(to, from, static_cast<size_t>(bytes));
      next();
      return Progress::kSome;
    });
  }

  // received <- this rank's block of `sent` from every other rank, in rank order.
  void exchange(const char* sent, char* received, int64_t block) {
    const MessagePieces pieces = MessagePieces::of(block, peers_);
    Transfers::Plan plan{.count = pieces.count * peers_, .most_under_way = pieces.depth(peers_) * peers_};
    plan.transfer = [=, this](int64_t index) {
      const auto [piece, to, from] = peers_of(index);
      const int64_t size = pieces.size(block, piece);
      return Transfer{.to = to,
                      .sent = sent + to * block + pieces.begin(piece),
                      .sent_bytes = size,
                      .from = from,
                      .received = received + from * block + pieces.begin(piece),
                      .received_bytes = size};
    };
    add(std::move(plan));
  }

  // out <- (or +=) this rank's block of the sum of `addends` over all ranks.
  void sum(const char* addends, const Blocks& blocks, c10::ScalarType type, char* out, c10::ScalarType out_type,
           bool add_to_out) {
    const MessagePieces pieces = MessagePieces::of(blocks.longest, peers_);
    const int64_t depth = pieces.depth(peers_);
    const int64_t own_size = blocks.size(rank_);
    const auto item = static_cast<int64_t>(c10::elementSize(type));
    const auto out_item = static_cast<int64_t>(c10::elementSize(out_type));
    const auto add_up = [=, this](int64_t piece) {
      const int64_t size = pieces.size(own_size, piece);
      std::vector<const void*> addresses;
      for (int rank = 0; rank < ranks_; ++rank) {
        addresses.push_back(rank == rank_ ? addends + blocks.begin(rank_) + pieces.begin(piece)
                                          : place(piece % depth, rank, pieces.length));
      }
      sum_parts(addresses, type, size / item, add_to_out, out + pieces.begin(piece) / item * out_item, out_type);
    };
    if (peers_ == 0) {
      parts_.push_back([=, this] {
        for (int64_t piece = 0; piece < pieces.count; ++piece) add_up(piece);
        next();
        return Progress::kSome;
      });
      return;
    }
    make_room(depth * peers_ * pieces.length);
    Transfers::Plan plan{.count = pieces.count * peers_, .most_under_way = depth * peers_};
    plan.transfer = [=, this](int64_t index) {
      const auto [piece, to, from] = peers_of(index);
      return Transfer{.to = to,
                      .sent = addends + blocks.begin(to) + pieces.begin(piece),
                      .sent_bytes = pieces.size(blocks.size(to), piece),
                      .from = from,
                      .received = place(piece % depth, from, pieces.length),
                      .received_bytes = pieces.size(own_size, piece)};
    };
    // A piece reuses the memory of the piece `depth` positions earlier, after that piece has been added.
    plan.may_begin = [=, this](int64_t index, int64_t done) { return index / peers_ < done / peers_ + depth; };
    plan.done = [=, this](int64_t index) {
      if ((index + 1) % peers_ == 0) add_up(index / peers_);
    };
    add(std::move(plan));
  }

  // tensor <- the sum of `tensor` over all ranks. Each rank adds the full tensors.
  void sum_small(char* tensor, int64_t bytes, c10::ScalarType type) {
    make_room(peers_ * bytes);
    Transfers::Plan plan{.count = peers_, .most_under_way = peers_};
    plan.transfer = [=, this](int64_t index) {
      const auto [piece, to, from] = peers_of(index);
      return Transfer{.to = to,
                      .sent = tensor,
                      .sent_bytes = bytes,
                      .from = from,
                      .received = place(/*slot=*/0, from, bytes),
                      .received_bytes = bytes};
    };
    plan.done = [=, this](int64_t index) {
      if (index + 1 < peers_) return;
      std::vector<const void*> addresses;
      for (int rank = 0; rank < ranks_; ++rank) {
        addresses.push_back(rank == rank_ ? tensor : place(/*slot=*/0, rank, bytes));
      }
      sum_parts(addresses, type, bytes / static_cast<int64_t>(c10::elementSize(type)), /*add=*/false, tensor, type);
    };
    add(std::move(plan));
  }

  // Gathers the blocks of all ranks into `full`, which contains this rank's block.
  void gather(char* full, const Blocks& blocks) {
    const MessagePieces pieces = MessagePieces::of(blocks.longest, peers_);
    Transfers::Plan plan{.count = pieces.count * peers_, .most_under_way = pieces.depth(peers_) * peers_};
    const auto transfer = [=](int64_t piece, int to, int sent, int from, int received) {
      return Transfer{.to = to,
                      .sent = full + blocks.begin(sent) + pieces.begin(piece),
                      .sent_bytes = pieces.size(blocks.size(sent), piece),
                      .from = from,
                      .received = full + blocks.begin(received) + pieces.begin(piece),
                      .received_bytes = pieces.size(blocks.size(received), piece)};
    };
    if (!owner_.around_ring_) {
      plan.transfer = [=, this](int64_t index) {
        const auto [piece, to, from] = peers_of(index);
        return transfer(piece, to, rank_, from, from);
      };
    } else {
      // In each round, a rank forwards the block that it received in the previous round.
      plan.transfer = [=, this](int64_t index) {
        const auto round = static_cast<int>(index / pieces.count);
        return transfer(index % pieces.count, (rank_ + 1) % ranks_, before(round), before(1), before(round + 1));
      };
      plan.may_begin = [=](int64_t index, int64_t done) { return index - pieces.count < done; };
    }
    add(std::move(plan));
  }

  Progress advance() override {
    if (part_ == parts_.size()) return Progress::kDone;
    const Progress progress = parts_[part_]();
    return part_ == parts_.size() ? Progress::kDone : progress;
  }

 private:
  struct Memory {
    std::vector<at::Tensor> tensors;
    std::shared_ptr<std::vector<char>> received;
  };
  struct Peers {
    int64_t piece = 0;
    int to = 0, from = 0;
  };

  int before(int distance) const { return (rank_ - distance + ranks_) % ranks_; }
  // Each piece is sent to all peers before the next piece. At each index, every rank receives from exactly one peer.
  Peers peers_of(int64_t index) const {
    const auto distance = static_cast<int>(index % peers_) + 1;
    return {.piece = index / peers_, .to = (rank_ + distance) % ranks_, .from = before(distance)};
  }
  // Returns the message of `rank` in a slot.
  char* place(int64_t slot, int rank, int64_t length) const {
    const int64_t peer = rank < rank_ ? rank : rank - 1;
    return memory_->received->data() + (slot * peers_ + peer) * length;
  }
  // Safe to resize, because the communicator runs only one collective at a time.
  void make_room(int64_t bytes) {
    parts_.push_back([=, this] {
      if (std::ssize(*memory_->received) < bytes) memory_->received->resize(static_cast<size_t>(bytes));
      next();
      return Progress::kSome;
    });
  }
  void add(Transfers::Plan plan) {
    if (plan.count == 0) return;
    plan.memory = memory_;
    parts_.push_back([this, transfers = std::make_shared<Transfers>(owner_.group_->handle, std::move(plan))] {
      const Progress progress = transfers->advance();
      if (progress != Progress::kDone) return progress;
      next();
      return Progress::kSome;
    });
  }
  void next() { ++part_; }

  MpiCommunicator& owner_;
  const int rank_, ranks_, peers_;
  std::shared_ptr<Memory> memory_;
  std::vector<std::function<Progress()>> parts_;
  size_t part_ = 0;
};

MpiCommunicator::MpiCommunicator(const MpiRuntime& mpi, std::optional<bool> around_ring)
    : rank_(mpi.rank()),
      world_size_(mpi.world_size()),
      around_ring_(around_ring.value_or(mpi.local_size() < mpi.world_size() && mpi.most_per_host() > 1)),
      group_(std::make_unique<MpiGroup>(MPI_COMM_NULL)),
      received_(std::make_shared<std::vector<char>>()),
      lane_(std::make_unique<CommunicationThread::Lane>(mpi.communication_thread())) {
  mpi.meet();
  MPZERO_MPI_CHECK(MPI_Comm_dup(mpi.group().handle, &group_->handle));
}

MpiCommunicator::~MpiCommunicator() {
  // A job may still fail until the lane is empty.
  lane_->finish();
  const bool cut_short = unwinding_.now() || lane_->was_cut_short();
  lane_.reset();
  // Messages may be in flight, so MPI needs the group until the process ends.
  // NOLINTNEXTLINE(bugprone-unused-return-value)
  if (cut_short) (void)group_.release();
}

std::unique_ptr<PendingCollective> MpiCommunicator::start(std::unique_ptr<Collective> collective) {
  return std::make_unique<Pending>(lane_->submit(std::move(collective)));
}

std::unique_ptr<PendingCollective> MpiCommunicator::all_gather(const at::Tensor& shard, const at::Tensor& full) {
  const auto bytes = static_cast<int64_t>(shard.nbytes());
  auto collective = std::make_unique<Collective>(*this, std::vector{shard, full});
  collective->copy(bytes_of(shard), bytes_of(full) + rank_ * bytes, bytes);
  collective->gather(bytes_of(full), {.total = world_size_ * bytes, .longest = bytes});
  return start(std::move(collective));
}

std::unique_ptr<PendingCollective> MpiCommunicator::reduce_scatter_sum(const at::Tensor& full, const at::Tensor& shard,
                                                                       SumMode mode) {
  const Blocks blocks{.total = static_cast<int64_t>(full.nbytes()),
                      .longest = static_cast<int64_t>(full.nbytes()) / world_size_};
  auto collective = std::make_unique<Collective>(*this, std::vector{full, shard});
  collective->sum(bytes_of(full), blocks, full.scalar_type(), bytes_of(shard), shard.scalar_type(),
                  mode == SumMode::kAdd);
  return start(std::move(collective));
}

std::unique_ptr<PendingCollective> MpiCommunicator::all_to_all(const at::Tensor& sent, const at::Tensor& received) {
  const int64_t block = static_cast<int64_t>(sent.nbytes()) / world_size_;
  auto collective = std::make_unique<Collective>(*this, std::vector{sent, received});
  collective->copy(bytes_of(sent) + rank_ * block, bytes_of(received) + rank_ * block, block);
  collective->exchange(bytes_of(sent), bytes_of(received), block);
  return start(std::move(collective));
}

std::unique_ptr<PendingCollective> MpiCommunicator::all_reduce_sum(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  auto collective = std::make_unique<Collective>(*this, std::vector{tensor});
  if (world_size_ > 1 && bytes <= kSmall) {
    collective->sum_small(bytes_of(tensor), bytes, tensor.scalar_type());
  } else if (world_size_ > 1) {
    const auto item = static_cast<int64_t>(tensor.element_size());
    const Blocks blocks{.total = bytes, .longest = (tensor.numel() + world_size_ - 1) / world_size_ * item};
    char* const own = bytes_of(tensor) + blocks.begin(rank_);
    collective->sum(bytes_of(tensor), blocks, tensor.scalar_type(), own, tensor.scalar_type(), /*add_to_out=*/false);
    collective->gather(bytes_of(tensor), blocks);
  }
  return start(std::move(collective));
}

std::optional<std::string> MpiCommunicator::asynchronous_error() {
  const std::string error = lane_->error();
  if (error.empty()) return std::nullopt;
  return error;
}

}  // namespace mpzero::parallel
