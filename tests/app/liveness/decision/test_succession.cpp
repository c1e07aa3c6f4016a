#include <algorithm>
#include <string>

#include "app/liveness/decision/succession.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using message::Reach;

// Ranks 0 to 9 on five nodes.
NodeMap two_per_node() {
  std::vector<RankIdentity> ranks;
  for (int rank = 0; rank < 10; ++rank) {
    const std::string node = "node" + std::to_string(rank / 2);
    ranks.push_back({.rank = rank, .host = node, .machine = node, .pid = 1, .started = 1, .port = 1, .addresses = {}});
  }
  return NodeMap(ranks);
}

// The search of a rank after rank 0 has gone.
struct Search {
  explicit Search(int own) : succession(nodes, own) {
    std::vector<bool> gone(10);
    gone[0] = true;
    succession.begin(gone);
  }
  NodeMap nodes = two_per_node();
  Succession succession;
};

}  // namespace

TEST_CASE("The first candidates of three nodes are tried at once") {
  CHECK(Search(9).succession.wanted() == std::vector<int>{1, 2, 4});
  CHECK(Search(3).succession.wanted() == std::vector<int>{1, 2});
}

TEST_CASE("A rank without a candidate before it is chosen itself") {
  Search search(1);
  CHECK(search.succession.wanted().empty());
  CHECK(search.succession.choice() == 1);
}

TEST_CASE("A candidate that answers is chosen once all before it are out") {
  Search search(9);
  search.succession.tried(2, Reach::kAnswers);
  CHECK_FALSE(search.succession.choice());
  search.succession.tried(1, Reach::kRefused);
  CHECK(search.succession.choice() == 2);
  CHECK(search.succession.refused() == std::vector<int>{1});
  CHECK(search.succession.unreachable().empty());
}

TEST_CASE("After one that refuses or is mute comes the next rank of its node") {
  const Reach reach = GENERATE(Reach::kRefused, Reach::kMute);
  Search search(9);
  search.succession.tried(2, reach);
  CHECK(search.succession.wanted() == std::vector<int>{1, 3, 4});
  CHECK((search.succession.mute() == std::vector<int>{2}) == (reach == Reach::kMute));
  CHECK((search.succession.refused() == std::vector<int>{2}) == (reach == Reach::kRefused));
}

TEST_CASE("After one that is unreachable no other rank of its node is tried") {
  Search search(9);
  search.succession.tried(2, Reach::kUnreachable);
  CHECK(search.succession.wanted() == std::vector<int>{1, 4, 6});
  CHECK(search.succession.unreachable() == std::vector<int>{2, 3});
}

TEST_CASE("A rank is not out because another rank of its node is") {
  Search search(3);
  search.succession.tried(1, Reach::kRefused);
  search.succession.tried(2, Reach::kUnreachable);
  CHECK(search.succession.unreachable() == std::vector<int>{2});
  CHECK(search.succession.choice() == 3);
}

TEST_CASE("A new search forgets what the one before found") {
  Search search(3);
  search.succession.tried(1, Reach::kMute);
  search.succession.begin(std::vector<bool>(10));
  CHECK(search.succession.mute().empty());
  CHECK(search.succession.wanted() == std::vector<int>{0, 2});
}

}  // namespace mpzero
