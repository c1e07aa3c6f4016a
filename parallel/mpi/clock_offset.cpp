#include "parallel/mpi/clock_offset.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "parallel/mpi/mpi_check.hpp"

namespace mpzero::parallel {
namespace {

constexpr int kRoundTrips = 10;
constexpr int kClockTag = 71;

double ask_clock(int peer, const std::function<double()>& clock) {
  double shortest = std::numeric_limits<double>::infinity(), offset = 0;
  for (int trip = 0; trip < kRoundTrips; ++trip) {
    double theirs = 0;
    const auto start = std::chrono::steady_clock::now();
    const double before = clock();
    MPZERO_MPI_CHECK(MPI_Sendrecv(&before, 1, MPI_DOUBLE, peer, kClockTag, &theirs, 1, MPI_DOUBLE, peer, kClockTag,
                                  MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (seconds >= shortest) continue;
    shortest = seconds;
    offset = theirs - (before + seconds / 2);
  }
  return offset;
}

void answer_clock(const std::function<double()>& clock) {
  for (int trip = 0; trip < kRoundTrips; ++trip) {
    double theirs = 0;
    MPZERO_MPI_CHECK(MPI_Recv(&theirs, 1, MPI_DOUBLE, 0, kClockTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    const double ours = clock();
    MPZERO_MPI_CHECK(MPI_Send(&ours, 1, MPI_DOUBLE, 0, kClockTag, MPI_COMM_WORLD));
  }
}

}  // namespace

double system_clock_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<double> measure_clock_offsets(const MpiRuntime& mpi, const std::vector<int>& ranks,
                                          const std::function<double()>& clock) {
  std::vector<double> offsets;
  if (mpi.rank() == 0) {
    for (const int rank : ranks) offsets.push_back(rank == 0 ? 0.0 : ask_clock(rank, clock));
  } else if (std::find(ranks.begin(), ranks.end(), mpi.rank()) != ranks.end()) {
    answer_clock(clock);
  }
  return offsets;
}

}  // namespace mpzero::parallel
