#include "app/liveness/decision/silence.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace mpzero {
namespace {

using message::Reach;
using State = RankRecord::State;

constexpr size_t kMostProbed = 16;
constexpr size_t kMostWitnesses = 8;

bool answers(const RankRecord& record, int own, double fresh) {
  if (record.identity.rank == own) return true;
  return (record.state == State::kAnswers || record.state == State::kFailed) && record.reports && record.quiet < fresh;
}

// What is known about the ranks of one node.
struct NodeView {
  bool takes_part = false;     // a rank of it is neither gone nor has left
  bool has_ended = false;      // a rank of it has, and not normally, as far as is known
  std::optional<int> answers;  // the first rank that does
  bool reports = false;        // a rank of it has reported to the judging rank
  std::vector<int> silent;
  int first = 0;  // rank that takes part
  // What others saw of it.
  bool is_mute = false;  // to the node of the judging rank
  std::set<int> reach;   // nodes that reach a rank of it
  std::set<int> cut;     // nodes other than that of the judging rank that do not
  bool is_probed = false;
  // What it saw of silent nodes.
  bool reaches_silent = false;
  bool misses_silent = false;
};

std::vector<NodeView> view(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, double fresh) {
  std::vector<NodeView> views(static_cast<size_t>(nodes.size()));
  for (const RankRecord& record : records) {
    const int rank = record.identity.rank;
    NodeView& node = views[static_cast<size_t>(nodes.node_of(rank))];
    node.has_ended = node.has_ended || record.state == State::kLost || record.state == State::kEnded;
    if (record.state == State::kLeft || record.state == State::kLost || record.state == State::kEnded) continue;
    if (!node.takes_part) node.first = rank;
    node.takes_part = true;
    node.reports = node.reports || record.reports;
    if (record.state == State::kSilent) node.silent.push_back(rank);
    if (!node.answers && answers(record, own, fresh)) node.answers = rank;
  }
  return views;
}

// Keeps `most` of them, spread evenly.
std::vector<int> some_of(const std::vector<int>& all, size_t most) {
  if (all.size() <= most) return all;
  std::vector<int> some;
  for (size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

// Adds up what the nodes saw of each other.
class Judgement {
 public:
  Judgement(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, const Sightings& sightings,
            double fresh)
      : records_(records), nodes_(nodes), own_(own), sightings_(sightings), views_(view(records, nodes, own, fresh)) {
    for (const auto& [pair, what] : sightings_) note(pair.first, pair.second, what);
    for (int node = 0; node < nodes_.size(); ++node) {
      find_frozen(node);
      find_unheard(node);
    }
    for (const auto& [pair, what] : sightings_) note_witness(pair.first, pair.second, what);
    for (int node = 0; node < nodes_.size(); ++node) count(node);
  }

  std::optional<Silence> result() const {
    Silence silence = facts();
    if (silence.silent.empty()) return std::nullopt;
    if (own_side_abandoned()) return as(silence, Silence::State::kCutOff, {own_});
    if (const std::vector<int> stopped = stopped_ranks(); !stopped.empty()) {
      return as(silence, Silence::State::kFounded, stopped);
    }
    if (const std::vector<int> blamed = unreached_ranks(); !blamed.empty()) {
      return as(silence, Silence::State::kFounded, blamed);
    }
    if (2 * num_cut_ > num_nodes_) return as(silence, Silence::State::kCutOff, own_side());
    return silence;
  }

 private:
  const NodeView& at(int node) const { return views_[static_cast<size_t>(node)]; }
  bool is_silent(int node) const { return !at(node).answers && !at(node).silent.empty(); }
  void note(int witness, int rank, Reach what) {
    NodeView& one = views_[static_cast<size_t>(nodes_.node_of(rank))];
    one.is_probed = true;
    // Where this node does not reach the machine, others may meet a rank that stalls for a few seconds.
    one.is_mute = one.is_mute || (what == Reach::kMute && witness == nodes_.node_of(own_));
    if (what == Reach::kAnswers) one.reach.insert(witness);
    if (what != Reach::kUnreachable || witness == nodes_.node_of(own_)) return;
    one.cut.insert(witness);
    has_witness_ = true;
  }

  // All ranks of a frozen machine accept connections and say nothing, also those that have not been silent for long
  // enough yet.
  void find_frozen(int node) {
    NodeView& one = views_[static_cast<size_t>(node)];
    if (one.answers || one.silent.empty()) return;
    std::vector<int> mute;
    for (const int rank : nodes_.ranks_of(node)) {
      const RankRecord& record = records_[static_cast<size_t>(rank)];
      if (record.state != State::kAnswers) continue;
      if (!record.mute) return;
      mute.push_back(rank);
    }
    one.silent.insert(one.silent.end(), mute.begin(), mute.end());
  }

  // A rank that has taken over does not know the silence of a node that went together with the former monitor's. Such a
  // node has never reported here, and others cannot reach it.
  void find_unheard(int node) {
    NodeView& one = views_[static_cast<size_t>(node)];
    if (one.answers || one.reports || !one.silent.empty()) return;
    if (one.is_mute || !one.reach.empty() || one.cut.empty()) return;
    for (const int rank : nodes_.ranks_of(node)) {
      if (records_[static_cast<size_t>(rank)].state == State::kAnswers) one.silent.push_back(rank);
    }
  }

  void note_witness(int witness, int rank, Reach what) {
    if (!is_silent(nodes_.node_of(rank))) return;
    NodeView& other = views_[static_cast<size_t>(witness)];
    other.reaches_silent = other.reaches_silent || what == Reach::kAnswers;
    other.misses_silent = other.misses_silent || what == Reach::kUnreachable;
  }

  void count(int node) {
    // The ranks of a node on another side may have ended with that side's verdict: it still is a node of the run.
    if (at(node).takes_part || at(node).has_ended) ++num_nodes_;
    if (!at(node).takes_part) return;
    // A node that is reached, but whose ranks do not report here, still reports elsewhere.
    const bool is_reached = !at(node).reach.empty();
    if (!at(node).answers && at(node).silent.empty() && is_reached) ++num_elsewhere_;
    if (at(node).answers) ++num_answering_;
    if (is_silent(node) && !is_reached) ++num_cut_;
  }

  bool own_side_abandoned() const {
    const std::vector<int>& near = nodes_.ranks_of(nodes_.node_of(own_));
    return std::any_of(near.begin(), near.end(),
                       [this](int rank) { return records_[static_cast<size_t>(rank)].abandoned; });
  }

  std::vector<int> stopped_ranks() const {
    std::vector<int> ranks;
    for (int node = 0; node < nodes_.size(); ++node) {
      const NodeView& one = at(node);
      // Where another rank of the machine answers somebody, its silence here has another cause.
      const bool is_frozen = one.is_mute && one.reach.empty();
      if (!one.answers && !is_frozen) continue;
      for (const int rank : one.silent) {
        if (!records_[static_cast<size_t>(rank)].abandoned) ranks.push_back(rank);
      }
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  std::vector<int> unreached_ranks() const {
    std::vector<int> ranks;
    if (2 * num_answering_ <= num_nodes_) return ranks;
    for (int node = 0; node < nodes_.size(); ++node) {
      if (!is_silent(node)) continue;
      // This node does not hear it either.
      const int against = 1 + static_cast<int>(at(node).cut.size());
      const int in_favor = num_elsewhere_ + static_cast<int>(at(node).reach.size());
      // Of many silent nodes some are probed, for all of them.
      const bool is_seen = at(node).is_probed ? !at(node).cut.empty() : has_witness_;
      if (is_seen && against > in_favor) ranks.insert(ranks.end(), at(node).silent.begin(), at(node).silent.end());
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  std::vector<int> own_side() const {
    std::vector<int> ranks;
    for (const RankRecord& record : records_) {
      if (record.state == State::kLeft || record.state == State::kEnded) continue;
      if (at(nodes_.node_of(record.identity.rank)).answers) ranks.push_back(record.identity.rank);
    }
    return ranks;
  }

  Silence facts() const {
    Silence silence;
    const int own_node = nodes_.node_of(own_);
    silence.here.push_back(nodes_.name(own_node));
    for (int node = 0; node < nodes_.size(); ++node) {
      const NodeView& one = at(node);
      silence.silent.insert(silence.silent.end(), one.silent.begin(), one.silent.end());
      if (one.answers && node != own_node) silence.here.push_back(nodes_.name(node));
      if (is_silent(node)) silence.there.push_back(nodes_.name(node));
      if (node == own_node) continue;
      if (one.reaches_silent) silence.reached.push_back(nodes_.name(node));
      if (one.misses_silent && !one.reaches_silent) silence.cut.push_back(nodes_.name(node));
    }
    std::sort(silence.silent.begin(), silence.silent.end());
    return silence;
  }

  static Silence as(Silence silence, Silence::State state, std::vector<int> ranks) {
    silence.state = state;
    silence.ranks = std::move(ranks);
    return silence;
  }

  const std::vector<RankRecord>& records_;
  const NodeMap& nodes_;
  int own_;
  const Sightings& sightings_;
  std::vector<NodeView> views_;
  int num_nodes_ = 0;
  int num_answering_ = 0;  // nodes
  int num_cut_ = 0;        // silent nodes that no one reaches
  int num_elsewhere_ = 0;
  bool has_witness_ = false;  // another node cannot reach a silent one
};

}  // namespace

NodeMap::NodeMap(const std::vector<RankIdentity>& ranks) {
  std::map<std::string, int> numbers;
  for (const RankIdentity& identity : ranks) {
    const auto [found, is_new] = numbers.emplace(identity.machine, size());
    if (is_new) {
      ranks_.emplace_back();
      names_.push_back(identity.host);
    }
    ranks_[static_cast<size_t>(found->second)].push_back(identity.rank);
    node_of_.push_back(found->second);
  }
}

std::optional<Silence> judge_silence(const std::vector<RankRecord>& records, const NodeMap& nodes, int own,
                                     const Sightings& sightings, double fresh) {
  return Judgement(records, nodes, own, sightings, fresh).result();
}

std::vector<int> ranks_to_probe(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, double fresh) {
  std::vector<NodeView> views = view(records, nodes, own, fresh);
  std::erase_if(views, [](const NodeView& node) { return !node.takes_part || node.answers; });
  // Silent ones first.
  std::stable_partition(views.begin(), views.end(), [](const NodeView& node) { return !node.silent.empty(); });
  if (views.size() > kMostProbed) views.resize(kMostProbed);
  std::vector<int> ranks;
  for (const NodeView& node : views) {
    ranks.push_back(node.silent.empty() ? node.first : node.silent.front());
    if (node.silent.size() > 1) ranks.push_back(node.silent.back());
  }
  return ranks;
}

std::vector<int> witnesses(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, double fresh) {
  std::vector<int> ranks;
  for (const NodeView& node : view(records, nodes, own, fresh)) {
    if (node.answers && nodes.node_of(*node.answers) != nodes.node_of(own)) ranks.push_back(*node.answers);
  }
  return some_of(ranks, kMostWitnesses);
}

}  // namespace mpzero
