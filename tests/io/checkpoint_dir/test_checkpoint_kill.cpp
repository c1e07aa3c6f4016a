// SIGKILL to one rank, or to both, at every call that changes the disk in a save of two ranks that are processes.

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/error.hpp"
#include "io/checkpoint_dir/background_save.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/deadly_disk.hpp"

namespace mpzero::io {
using namespace testing;
namespace {

constexpr const char* kOld = "tiny-1steps";
constexpr int kPeerGone = 77;

// One of two ranks, each a process with one end of a socket pair.
class SocketPair final : public ProcessGroup {
 public:
  SocketPair(int rank, int socket) : rank_(rank), socket_(socket) {}
  int rank() const override { return rank_; }
  int world_size() const override { return 2; }
  void barrier() override { all_gather(""); }
  std::vector<std::string> all_gather(const std::string& text) override {
    const uint64_t size = text.size();
    send(&size, sizeof size);
    send(text.data(), text.size());
    uint64_t other_size = 0;
    receive(&other_size, sizeof other_size);
    std::string other(other_size, '\0');
    receive(other.data(), other.size());
    return rank_ == 0 ? std::vector{text, other} : std::vector{other, text};
  }

 private:
  // As with mpirun, the death of one rank kills the other immediately, whatever it is doing.
  void send(const void* bytes, size_t size) {
    const auto* from = static_cast<const char*>(bytes);
    for (size_t done = 0; done < size;) {
      const ssize_t n = ::send(socket_, from + done, size - done, MSG_NOSIGNAL);
      if (n <= 0) ::_exit(kPeerGone);
      done += static_cast<size_t>(n);
    }
  }
  void receive(void* bytes, size_t size) {
    auto* to = static_cast<char*>(bytes);
    for (size_t done = 0; done < size;) {
      const ssize_t n = ::recv(socket_, to + done, size - done, 0);
      if (n <= 0) ::_exit(kPeerGone);
      done += static_cast<size_t>(n);
    }
  }

  int rank_;
  int socket_;
};

// The full life of a rank process.
int be_rank(int rank, int socket, const fs::path& dir, const std::string& tag, FileSystem& files) {
  const auto model = small_model();
  SocketPair group(rank, socket);
  SaveJob job;
  job.checkpoint_dir = dir;
  job.tag = tag;
  job.progress = progress_at(2);
  for (const UnitSpec& unit : model) job.shards.push_back(shard_of(unit, rank, 2, Split::kEven));
  job.model_type = "tiny";
  job.keep_last = 1;
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < job.shards.size(); ++i) {
    for (const StateKind kind : kAllKinds) {
      for (int64_t k = 0; k < job.shards[i].count; ++k) {
        if (k == 0) values.emplace_back(static_cast<size_t>(job.shards[i].count));
        const uint32_t bits = bits_at(i, kind, job.shards[i].begin + k, 2);
        std::memcpy(&values.back()[static_cast<size_t>(k)], &bits, sizeof bits);
      }
      if (job.shards[i].count == 0) values.emplace_back();
    }
  }
  const auto fetch = [&](size_t i, StateKind kind) -> std::span<const float> {
    return values[i * 3 + static_cast<size_t>(kind)];
  };
  BackgroundSave save(job, {.fetch = fetch, .all_stay = true}, group, files);
  return save.wait() == BackgroundSave::State::kSaved ? 0 : 1;
}

// Runs two ranks. The disk of `doomed` is deadly. Returns whether a process was killed.
bool run_ranks(const fs::path& dir, const std::string& tag, int doomed, int call, DeadlyDisk::Moment moment, bool all) {
  std::array<int, 2> sockets{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()) == 0);
  std::array<pid_t, 2> ranks{};
  for (int rank = 0; rank < 2; ++rank) {
    ranks[static_cast<size_t>(rank)] = ::fork();
    REQUIRE(ranks[static_cast<size_t>(rank)] >= 0);
    if (ranks[static_cast<size_t>(rank)] != 0) {
      // The ranks' own process group. Parent and children both set it, since either may be first.
      ::setpgid(ranks[static_cast<size_t>(rank)], ranks[0]);
      continue;
    }
    ::setpgid(0, rank == 0 ? 0 : ranks[0]);
    ::close(sockets[static_cast<size_t>(1 - rank)]);
    DeadlyDisk deadly(rank == doomed ? call : 0, moment, all);
    try {
      ::_exit(be_rank(rank, sockets[static_cast<size_t>(rank)], dir, tag, deadly));
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  ::close(sockets[0]);
  ::close(sockets[1]);
  bool killed = false;
  for (const pid_t rank : ranks) {
    int status = 0;
    REQUIRE(::waitpid(rank, &status, 0) == rank);
    if (WIFSIGNALED(status)) {
      killed = true;
    } else {
      const int code = WEXITSTATUS(status);
      REQUIRE((code == 0 || code == kPeerGone));
    }
  }
  return killed;
}

}  // namespace

TEST_CASE("one rank or both killed at any call leave the old state or the new one") {
  const bool replaces = GENERATE(false, true);
  const int doomed = GENERATE(0, 1);
  const bool all = GENERATE(false, true);
  const auto moment = GENERATE(DeadlyDisk::Moment::kBefore, DeadlyDisk::Moment::kAfter);
  const auto model = small_model();
  const std::string tag = replaces ? kOld : "tiny-2steps";
  int kills = 0;
  for (int call = 1;; ++call) {
    const TemporaryFolder folder;
    save(folder.path(), kOld, progress_at(1), model, 2, Split::kEven, 1);
    const bool killed = run_ranks(folder.path(), tag, doomed, call, moment, all);
    CAPTURE(replaces, doomed, all, static_cast<int>(moment), call);
    const ResumeCandidates candidates = resume_candidates(folder.path(), "tiny");
    REQUIRE(candidates.problem_of_latest == "");
    const fs::path& found = candidates.folders.front();
    const bool is_new = open_hdf5(found).progress().step == 2;
    REQUIRE(holds_generation(found, model, is_new ? 2 : 1));
    if (!killed) {
      REQUIRE(is_new);
      break;
    }
    ++kills;
    REQUIRE(save(folder.path(), "tiny-3steps", progress_at(3), model, 2, Split::kEven, 3) ==
            std::vector<std::string>(2));
    REQUIRE(holds_generation(*latest_checkpoint(folder.path()), model, 3));
  }
  CHECK(kills >= (doomed == 0 ? 20 : 4));
}

}  // namespace mpzero::io
