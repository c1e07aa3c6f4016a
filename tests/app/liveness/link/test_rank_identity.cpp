#include <ifaddrs.h>
#include <net/if.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <nlohmann/json.hpp>

#include "app/liveness/link/control_channel.hpp"
#include "app/liveness/link/dialer.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

// A machine's interfaces, as getifaddrs() lists them.
class Interfaces {
 public:
  void add(const char* name, const char* address, unsigned flags = IFF_UP) {
    addresses_.push_back(*socket_address(address, 0));
    names_.emplace_back(name);
    entries_.push_back({});
    ifaddrs& entry = entries_.back();
    entry.ifa_name = names_.back().data();
    entry.ifa_flags = flags;
    entry.ifa_addr = addresses_.back().get();
    if (entries_.size() > 1) entries_[entries_.size() - 2].ifa_next = &entry;
  }
  const ifaddrs* list() const { return &entries_.front(); }

 private:
  std::deque<SocketAddress> addresses_;
  std::deque<std::string> names_;
  std::deque<ifaddrs> entries_;
};

}  // namespace

TEST_CASE("A machine without a routable IPv4 address is reached over IPv6, never by a link-local address") {
  Interfaces machine;
  machine.add("lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK);
  machine.add("docker0", "172.17.0.1");
  machine.add("lo", "::1", IFF_UP | IFF_LOOPBACK);
  machine.add("eth0", "fe80::1");
  machine.add("eth0", "2001:db8::7");
  machine.add("ib0", "fd00::7");
  machine.add("eth1", "2001:db8::8", 0);
  machine.add("docker0", "2001:db8::9");
  CHECK(addresses_for_others(machine.list()) == std::vector<std::string>{"2001:db8::7", "fd00::7"});
  // As a machine in a network of IPv6 may have it.
  machine.add("eth0", "169.254.17.3");
  CHECK(addresses_for_others(machine.list()) == std::vector<std::string>{"2001:db8::7", "fd00::7"});
  machine.add("eth2", "10.0.0.1", 0);
  machine.add("eth0", "10.0.0.2");
  CHECK(addresses_for_others(machine.list()) == std::vector<std::string>{"10.0.0.2", "2001:db8::7", "fd00::7"});
}

TEST_CASE("Only the process that was meant is killed") {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = nlohmann::json(this_process(1, 1)).dump();
    (void)!write(ready[1], text.data(), text.size());
    close(ready[1]);
    pause();
    _exit(0);
  }
  close(ready[1]);
  std::string text(4096, '\0');
  const ssize_t length = read(ready[0], text.data(), text.size());
  close(ready[0]);
  REQUIRE(length > 0);
  text.resize(static_cast<size_t>(length));
  const RankIdentity meant = nlohmann::json::parse(text).get<RankIdentity>();
  REQUIRE(meant.pid == child);

  RankIdentity other = meant;
  other.started = 1;  // an earlier process of this id
  kill_process(other);
  other.started = 0;
  kill_process(other);
  other = meant;
  other.machine += "-2";
  kill_process(other);
  // Never this process.
  kill_process(this_process(0, 1));
  int status = 0;
  CHECK(waitpid(child, &status, WNOHANG) == 0);

  kill_process(meant);
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("Each address is listed once, and the loopback address only on the same machine") {
  RankIdentity identity;
  identity.addresses = {"10.0.0.1", "10.0.1.1", "10.0.0.1"};
  CHECK(reported_addresses(identity, /*from_same_machine=*/false) == std::vector<std::string>{"10.0.0.1", "10.0.1.1"});
  CHECK(reported_addresses(identity, /*from_same_machine=*/true) ==
        std::vector<std::string>{"127.0.0.1", "::1", "10.0.0.1", "10.0.1.1"});
}

}  // namespace mpzero
