#include "parallel/mpi/transfers.hpp"

#include <utility>

#include "parallel/mpi/mpi_check.hpp"

namespace mpzero::parallel {
namespace {

constexpr int kTransferTag = 1;

// MPI counts are of type int.
int as_count(int64_t bytes) {
  if (bytes > Transfers::kMostBytes)
    throw_failure("a message of {} bytes exceeds the maximum of {}", bytes, Transfers::kMostBytes);
  return static_cast<int>(bytes);
}

}  // namespace

Transfers::Transfers(MPI_Comm communicator, Plan plan)
    : communicator_(communicator), plan_(std::move(plan)), requests_(static_cast<size_t>(plan_.most_under_way)) {}

Transfers::~Transfers() {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): never freed
  if (done_ < begun_) new std::shared_ptr<const void>(std::move(plan_.memory));
}

bool Transfers::may_begin() const {
  return begun_ < plan_.count && begun_ - done_ < plan_.most_under_way &&
         (!plan_.may_begin || plan_.may_begin(begun_, done_));
}

void Transfers::begin() {
  const Transfer transfer = plan_.transfer(begun_);
  Requests& requests = requests_[static_cast<size_t>(begun_ % plan_.most_under_way)];
  ++begun_;
  if (transfer.received_bytes > 0) {
    MPZERO_MPI_CHECK(MPI_Irecv(transfer.received, as_count(transfer.received_bytes), MPI_BYTE, transfer.from,
                               kTransferTag, communicator_, &requests.receive));
  }
  if (transfer.sent_bytes > 0) {
    MPZERO_MPI_CHECK(MPI_Isend(transfer.sent, as_count(transfer.sent_bytes), MPI_BYTE, transfer.to, kTransferTag,
                               communicator_, &requests.send));
  }
}

HostTask::Progress Transfers::advance() {
  bool moved = false;
  while (true) {
    for (; may_begin(); moved = true) begin();
    if (done_ == begun_) break;
    Requests& requests = requests_[static_cast<size_t>(done_ % plan_.most_under_way)];
    int complete = 0;
    // An earlier call has begun both requests, which the checker does not see.
    // NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
    MPZERO_MPI_CHECK(MPI_Test(&requests.receive, &complete, MPI_STATUS_IGNORE));
    if (complete != 0) MPZERO_MPI_CHECK(MPI_Test(&requests.send, &complete, MPI_STATUS_IGNORE));
    // NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)
    if (complete == 0) break;
    if (plan_.done) plan_.done(done_);
    ++done_;
    moved = true;
  }
  if (done_ == plan_.count) return HostTask::Progress::kDone;
  return moved ? HostTask::Progress::kSome : HostTask::Progress::kNone;
}

}  // namespace mpzero::parallel
