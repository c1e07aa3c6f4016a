#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/liveness/decision/rank_record.hpp"
#include "app/liveness/link/rank_message.hpp"

namespace mpzero {

// Which ranks are on which machine. Machines are numbered in the order of their first ranks.
class NodeMap {
 public:
  explicit NodeMap(const std::vector<RankIdentity>& ranks);
  int size() const { return static_cast<int>(ranks_.size()); }
  int node_of(int rank) const { return node_of_.at(static_cast<size_t>(rank)); }
  const std::vector<int>& ranks_of(int node) const { return ranks_.at(static_cast<size_t>(node)); }
  // Its host, as a job can exclude it.
  const std::string& name(int node) const { return names_.at(static_cast<size_t>(node)); }

 private:
  std::vector<int> node_of_;
  std::vector<std::vector<int>> ranks_;
  std::vector<std::string> names_;
};

// What nodes found out about ranks: the worst that a node, the first number, saw of a rank.
using Sightings = std::map<std::pair<int, int>, message::Reach>;

// What the silence of ranks means. A network that is cut leaves each side without an answer from the other, and so does
// a machine without power. One side alone cannot tell these apart; what the other machines see can.
//
//   a silent rank's machine             meaning
//   another rank of it answers          the rank's process is stopped: it is to blame
//   accepts connections of this node,   the same. If all ranks of it are like that, and one has been silent for long
//   but no rank of it proves who it is  enough, the machine is frozen: all of them are to blame
//   (kMute), to no one
//   is reached by no one, or by fewer   it is down or cut off: it is to blame, if more than half of the machines answer
//   machines than cannot reach it       this rank, and one of them, too, cannot reach it
//   is reached by at least as many      the network between some machines is cut: none is to blame
//
// A machine that can be reached again does not count as one that answers: the network may just have been repaired.
// If more than half of the machines neither answer nor can be reached, this rank's side is the one that is cut off, and
// is to blame. Halves of the same size blame none.
struct Silence {
  enum class State : uint8_t {
    kFounded,  // `ranks` are to blame, as others saw too
    kCutOff,   // this side is: `ranks`
    kOpen      // none is known to be to blame
  };
  State state = State::kOpen;
  std::vector<int> ranks;
  std::vector<int> silent;           // all silent ranks
  std::vector<std::string> here;     // nodes that answer this rank, its own first
  std::vector<std::string> there;    // nodes of silent ranks, from which no rank answers
  std::vector<std::string> reached;  // nodes that reach one of `there`
  std::vector<std::string> cut;      // other nodes that reach none of them
};

// `records`: by rank. `own` is the rank that judges. A node answers if one of its ranks was heard in the last `fresh`
// seconds. std::nullopt: no rank is silent.
std::optional<Silence> judge_silence(const std::vector<RankRecord>& records, const NodeMap& nodes, int own,
                                     const Sightings& sightings, double fresh);

// The ranks to connect to, to find out whether their machines can be reached: the first and the last silent one of each
// node from which none answers, or the first one if none is silent, but not of more than 16 nodes.
std::vector<int> ranks_to_probe(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, double fresh);
// The ranks that are to connect to them: one of each node that answers, but not of more than 8 nodes.
std::vector<int> witnesses(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, double fresh);

}  // namespace mpzero
