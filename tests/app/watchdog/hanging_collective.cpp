// Preloaded into mpzero by tests/e2e: a collective between nodes that never ends on one rank. Each rank counts the
// messages that it asks for from another node, by communicator in the order of their first use, and writes the latest
// to HANGING_FOLDER/at-RANK-COMMUNICATOR as "COMMUNICATOR NUMBER". Once the file HANGING_FOLDER/go is there, rank
// HANGING_RANK writes the same to HANGING_FOLDER/hangs and does not return. Nodes have several consecutive ranks.

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>

namespace {

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Whether the first two ranks of the communicator are not neighbours.
bool is_between_nodes(MPI_Comm communicator) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  int size = 0;
  MPI_Comm_group(communicator, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_size(group, &size);
  const std::array<int, 2> first = {0, 1};
  std::array<int, 2> ranks = {0, 0};
  if (size > 1) MPI_Group_translate_ranks(group, 2, first.data(), world, ranks.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return ranks[1] - ranks[0] > 1;
}

void enter(MPI_Comm communicator) {
  // One thread sends and receives.
  static std::map<MPI_Comm, std::pair<size_t, int>> entered;
  if (!is_between_nodes(communicator)) return;
  auto& [number, messages] = entered.try_emplace(communicator, entered.size(), 0).first->second;
  ++messages;
  const std::string folder = std::getenv("HANGING_FOLDER");
  const std::string rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::ofstream(folder + "/at-" + rank + "-" + std::to_string(number)) << number << ' ' << messages << '\n';
  if (rank != std::getenv("HANGING_RANK") || access((folder + "/go").c_str(), F_OK) != 0) return;
  std::ofstream(folder + "/hangs") << number << ' ' << messages << '\n';
  while (true) pause();
}

}  // namespace

extern "C" {

int MPI_Irecv(void* received, int count, MPI_Datatype type, int from, int tag, MPI_Comm communicator,
              MPI_Request* request) {
  enter(communicator);
  return next<decltype(MPI_Irecv)>("MPI_Irecv")(received, count, type, from, tag, communicator, request);
}

}  // extern "C"
