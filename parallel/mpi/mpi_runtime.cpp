#include "parallel/mpi/mpi_runtime.hpp"

#include <array>
#include <cstdlib>
#include <numeric>

#include "base/unwinding.hpp"
#include "parallel/mpi/mpi_check.hpp"
#include "parallel/mpi/patient_wait.hpp"

namespace mpzero::parallel {
namespace {

// Records a call during its lifetime. A call that throws is not recorded as completed.
class Recorded {
 public:
  Recorded(FlightRecorder::Channel* channel, const char* operation, size_t bytes)
      : channel_(channel), sequence_(channel == nullptr ? 0 : channel->begin(operation, static_cast<int64_t>(bytes))) {}
  ~Recorded() {
    if (channel_ != nullptr && !unwinding_.now()) channel_->complete(sequence_);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  FlightRecorder::Channel* channel_;
  int64_t sequence_;
  Unwinding unwinding_;
};

// Begins an MPI operation with `begin(&request)` and waits with sleeps between polls.
template <typename Begin>
void wait_for(Begin begin) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPZERO_MPI_CHECK(begin(&request));
  MPZERO_MPI_CHECK(wait_patiently(request));
}

}  // namespace

// State shared by all groups of a process.
struct MpiRuntime::Process {
  // Equal on all ranks, because nonblocking and blocking collectives do not match each other.
  bool wants_threads = false;
  bool has_threads = false;
  std::unique_ptr<CommunicationThread> communication;
};

MpiRuntime::MpiRuntime(int* argc, char*** argv, MpiThreads threads) : process_(std::make_shared<Process>()) {
  int provided = 0;
  const int required = threads == MpiThreads::kSeveral ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  MPZERO_MPI_CHECK(MPI_Init_thread(argc, argv, required, &provided));
  MPZERO_MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  std::array<int, 2> least = {static_cast<int>(threads == MpiThreads::kSeveral), provided};
  MPZERO_MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, least.data(), 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  process_->wants_threads = least[0] != 0;
  process_->has_threads = process_->wants_threads && least[1] >= MPI_THREAD_MULTIPLE;
  group_ = std::make_unique<MpiGroup>(MPI_COMM_WORLD);
  find_ranks();
}

MpiRuntime::MpiRuntime(std::unique_ptr<MpiGroup> group, std::shared_ptr<Process> process)
    : process_(std::move(process)), group_(std::move(group)) {
  find_ranks();
}

void MpiRuntime::find_ranks() {
  MPZERO_MPI_CHECK(MPI_Comm_rank(group_->handle, &rank_));
  MPZERO_MPI_CHECK(MPI_Comm_size(group_->handle, &world_size_));
  MPI_Comm local = MPI_COMM_NULL;
  MPZERO_MPI_CHECK(MPI_Comm_split_type(group_->handle, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local));
  MPZERO_MPI_CHECK(MPI_Comm_rank(local, &local_rank_));
  MPZERO_MPI_CHECK(MPI_Comm_size(local, &local_size_));
  MPZERO_MPI_CHECK(MPI_Comm_free(&local));
  MPZERO_MPI_CHECK(MPI_Allreduce(&local_size_, &most_per_host_, 1, MPI_INT, MPI_MAX, group_->handle));
}

MpiRuntime::~MpiRuntime() {
  if (group_->handle != MPI_COMM_WORLD) return;
  process_->communication.reset();
  MPI_Finalize();
}

bool MpiRuntime::lacks_threads() const { return process_->wants_threads && !process_->has_threads; }

CommunicationThread& MpiRuntime::communication_thread() const {
  std::unique_ptr<CommunicationThread>& thread = process_->communication;
  using Runs = CommunicationThread::Runs;
  if (!thread) thread = std::make_unique<CommunicationThread>(process_->has_threads ? Runs::kBeside : Runs::kInCaller);
  return *thread;
}

std::unique_ptr<MpiRuntime> MpiRuntime::this_machine() const {
  meet();
  auto group = std::make_unique<MpiGroup>(MPI_COMM_NULL);
  MPZERO_MPI_CHECK(MPI_Comm_split_type(group_->handle, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &group->handle));
  // std::make_unique cannot call the private constructor.
  return std::unique_ptr<MpiRuntime>(new MpiRuntime(std::move(group), process_));
}

std::unique_ptr<MpiRuntime> MpiRuntime::split(int color) const {
  meet();
  auto group = std::make_unique<MpiGroup>(MPI_COMM_NULL);
  MPZERO_MPI_CHECK(MPI_Comm_split(group_->handle, color, rank_, &group->handle));
  return std::unique_ptr<MpiRuntime>(new MpiRuntime(std::move(group), process_));
}

void MpiRuntime::meet() const {
  if (!process_->has_threads) return;
  wait_for([&](MPI_Request* request) { return MPI_Ibarrier(group_->handle, request); });
}

void MpiRuntime::barrier() {
  const Recorded recorded(channel_, "barrier", 0);
  if (process_->has_threads) return meet();
  MPZERO_MPI_CHECK(MPI_Barrier(group_->handle));
}

std::vector<std::string> MpiRuntime::all_gather(const std::string& text) {
  const Recorded recorded(channel_, "all_gather", text.size());
  const auto length = static_cast<int>(text.size());
  std::vector<int> lengths(static_cast<size_t>(world_size_));
  if (process_->has_threads) {
    wait_for([&](MPI_Request* request) {
      return MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, group_->handle, request);
    });
  } else {
    MPZERO_MPI_CHECK(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, group_->handle));
  }
  std::vector<int> offsets(lengths.size(), 0);
  std::partial_sum(lengths.begin(), lengths.end() - 1, offsets.begin() + 1);
  std::string joined(static_cast<size_t>(offsets.back()) + static_cast<size_t>(lengths.back()), '\0');
  if (process_->has_threads) {
    wait_for([&](MPI_Request* request) {
      return MPI_Iallgatherv(text.data(), length, MPI_CHAR, joined.data(), lengths.data(), offsets.data(), MPI_CHAR,
                             group_->handle, request);
    });
  } else {
    MPZERO_MPI_CHECK(MPI_Allgatherv(text.data(), length, MPI_CHAR, joined.data(), lengths.data(), offsets.data(),
                                    MPI_CHAR, group_->handle));
  }
  std::vector<std::string> texts;
  texts.reserve(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    texts.push_back(joined.substr(static_cast<size_t>(offsets[i]), static_cast<size_t>(lengths[i])));
  }
  return texts;
}

void MpiRuntime::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace mpzero::parallel
