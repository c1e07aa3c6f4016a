#include "app/liveness/decision/held_collective.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace mpzero {
namespace {

using parallel::ChannelRecord;
using parallel::CollectiveRecord;
using parallel::RankGroup;

// A channel of a rank; null: the rank has not reported it.
const ChannelRecord* channel_of(const std::vector<RankRecord>& records, int rank, size_t channel) {
  const std::vector<ChannelRecord>& all = records[static_cast<size_t>(rank)].status.channels;
  return channel < all.size() ? &all[channel] : nullptr;
}

const CollectiveRecord* find(const ChannelRecord& channel, int64_t sequence) {
  for (const CollectiveRecord& one : channel.last) {
    if (one.sequence == sequence) return &one;
  }
  return nullptr;
}

// Calls `use` with the number of each channel and the ranks of each of its groups.
template <class Use>
void for_each_group(const std::vector<RankRecord>& records, const std::set<int>& among, const Use& use) {
  size_t channels = 0;
  for (const int rank : among) {
    channels = std::max(channels, records[static_cast<size_t>(rank)].status.channels.size());
  }
  for (size_t c = 0; c < channels; ++c) {
    std::set<int> left = among;
    while (!left.empty()) {
      const ChannelRecord* first = channel_of(records, *left.begin(), c);
      if (first == nullptr) {
        left.erase(left.begin());
        continue;
      }
      std::vector<int> members;
      for (auto rank = left.begin(); rank != left.end();) {
        const ChannelRecord* theirs = channel_of(records, *rank, c);
        const bool is_member = theirs != nullptr && theirs->ranks == first->ranks;
        if (is_member) members.push_back(*rank);
        rank = is_member ? left.erase(rank) : std::next(rank);
      }
      use(c, members);
    }
  }
}

// Whether the rank is in a collective of another group than this one, by the same measure.
bool is_held_elsewhere(const RankRecord& record, const RankGroup& ranks, ChannelProgress measure) {
  return std::any_of(record.status.channels.begin(), record.status.channels.end(),
                     [&](const ChannelRecord& one) { return !(one.ranks == ranks) && one.*measure > one.completed; });
}

// The collective `sequence` of channel `c` as the rank of `members` reports it that has been in it for the longest.
HeldCollective held(const std::vector<RankRecord>& records, const std::vector<int>& members, size_t c,
                    int64_t sequence) {
  HeldCollective one{.late = {},
                     .channel = channel_of(records, members.front(), c)->name,
                     .ranks = channel_of(records, members.front(), c)->ranks,
                     .sequence = sequence,
                     .collective = std::nullopt};
  for (const int rank : members) {
    const CollectiveRecord* theirs = find(*channel_of(records, rank, c), sequence);
    if (theirs == nullptr || theirs->seconds <= one.waited) continue;
    one.collective = *theirs;
    one.waited = theirs->seconds;
  }
  return one;
}

std::string describe(const RankGroup& ranks) {
  constexpr int kNamed = 4;
  if (ranks.is_all()) return "";
  const int last = ranks.first + (ranks.count - 1) * ranks.stride;
  if (ranks.stride == 1 && ranks.count > 2) return fmt::format(", ranks {}-{}", ranks.first, last);
  if (ranks.count > kNamed) {
    return fmt::format(", ranks {}, {} to {}", ranks.first, ranks.first + ranks.stride, last);
  }
  std::vector<int> all;
  for (int rank = ranks.first; rank <= last; rank += ranks.stride) all.push_back(rank);
  return fmt::format(", rank{} {}", all.size() == 1 ? "" : "s", fmt::join(all, ", "));
}

}  // namespace

std::optional<HeldCollective> find_lag(const std::vector<RankRecord>& records, const std::set<int>& among,
                                       ChannelProgress measure) {
  std::optional<HeldCollective> worst;
  for_each_group(records, among, [&](size_t c, const std::vector<int>& members) {
    const auto position = [&](int rank) { return channel_of(records, rank, c)->*measure; };
    const auto [least, most] = std::minmax_element(members.begin(), members.end(),
                                                   [&](int one, int other) { return position(one) < position(other); });
    if (position(*least) == position(*most)) return;
    const int64_t behind = position(*least);
    std::vector<int> late;
    std::vector<int> others;
    for (const int rank : members) (position(rank) == behind ? late : others).push_back(rank);
    HeldCollective lag = held(records, others, c, behind + 1);
    std::copy_if(late.begin(), late.end(), std::back_inserter(lag.late), [&](int rank) {
      return measure == &ChannelRecord::completed ||
             !is_held_elsewhere(records[static_cast<size_t>(rank)], lag.ranks, measure);
    });
    if (!lag.late.empty() && (!worst || lag.waited > worst->waited)) worst = std::move(lag);
  });
  return worst;
}

std::optional<HeldCollective> find_unfinished(const std::vector<RankRecord>& records, const std::set<int>& among) {
  std::optional<HeldCollective> worst;
  for_each_group(records, among, [&](size_t c, const std::vector<int>& members) {
    const ChannelRecord& first = *channel_of(records, members.front(), c);
    const int64_t sequence = first.completed + 1;
    const bool all_are_in_it = std::all_of(members.begin(), members.end(), [&](int rank) {
      const ChannelRecord& theirs = *channel_of(records, rank, c);
      return theirs.completed + 1 == sequence && theirs.queued >= sequence;
    });
    if (first.ranks.is_all() || !all_are_in_it) return;
    HeldCollective one = held(records, members, c, sequence);
    one.late = members;
    if (!worst || one.waited > worst->waited) worst = std::move(one);
  });
  return worst;
}

std::optional<HeldCollective> find_awaited(const std::vector<RankRecord>& records, const std::vector<int>& gone) {
  std::optional<HeldCollective> oldest;
  for (const RankRecord& record : records) {
    if (record.has_left() || std::find(gone.begin(), gone.end(), record.identity.rank) != gone.end()) continue;
    for (const ChannelRecord& channel : record.status.channels) {
      const CollectiveRecord* open = find(channel, channel.completed + 1);
      const bool is_theirs =
          std::any_of(gone.begin(), gone.end(), [&](int rank) { return channel.ranks.contains(rank); });
      if (open == nullptr || !is_theirs || (oldest && open->seconds <= oldest->waited)) continue;
      oldest = HeldCollective{.late = {},
                              .channel = channel.name,
                              .ranks = channel.ranks,
                              .sequence = open->sequence,
                              .collective = *open,
                              .waited = open->seconds};
    }
  }
  return oldest;
}

std::string describe(const HeldCollective& held) {
  const std::string ranks = describe(held.ranks);
  if (held.collective) {
    return fmt::format("{} {} of {} ({}{})", held.collective->operation, held.sequence, held.channel,
                       show_bytes(held.collective->bytes), ranks);
  }
  // Its size is not known.
  return fmt::format("collective {} of {}{}", held.sequence, held.channel,
                     ranks.empty() ? ranks : fmt::format(" ({})", ranks.substr(2)));
}

}  // namespace mpzero
