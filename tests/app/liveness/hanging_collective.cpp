// Preloaded into mpzero by tests/e2e: a collective between nodes that never ends on one rank. Each rank writes the
// number of the collective between nodes that it enters to HANGING_FOLDER/at-RANK. Once the file HANGING_FOLDER/go is
// there, rank HANGING_RANK writes it to HANGING_FOLDER/hangs and does not return. Nodes have several consecutive ranks.

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

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
  static int entered = 0;
  if (!is_between_nodes(communicator)) return;
  ++entered;
  const std::string folder = std::getenv("HANGING_FOLDER");
  const std::string rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::ofstream(folder + "/at-" + rank) << entered << '\n';
  if (rank != std::getenv("HANGING_RANK") || access((folder + "/go").c_str(), F_OK) != 0) return;
  std::ofstream(folder + "/hangs") << entered << '\n';
  while (true) pause();
}

}  // namespace

extern "C" {

int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int receive_count,
                  MPI_Datatype receive_type, MPI_Comm communicator) {
  enter(communicator);
  return next<decltype(MPI_Allgather)>("MPI_Allgather")(send, send_count, send_type, receive, receive_count,
                                                        receive_type, communicator);
}
int MPI_Reduce_scatter_block(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op operation,
                             MPI_Comm communicator) {
  enter(communicator);
  return next<decltype(MPI_Reduce_scatter_block)>("MPI_Reduce_scatter_block")(send, receive, count, type, operation,
                                                                              communicator);
}

}  // extern "C"
