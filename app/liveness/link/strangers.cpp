#include "app/liveness/link/strangers.hpp"

#include <fmt/format.h>

#include <utility>

namespace mpzero {

std::string describe(Handshake::Refusal refusal) {
  using Refusal = Handshake::Refusal;
  switch (refusal) {
    case Refusal::kNotOurs:
      return "it does not speak the protocol of the ranks";
    case Refusal::kWrongSecret:
      return "it does not know this run's secret";
    case Refusal::kTooLate:
      return fmt::format("it did not prove within {} s which rank of this run it is", kHandshakeLimit.count());
    case Refusal::kTooLong:
      return fmt::format("its first line is longer than {} bytes", kHandshakeLine);
    case Refusal::kNoRoom:
      return "too many others were waiting to prove which rank of this run they are";
    case Refusal::kChanged:
      return "its messages were altered in transit";
    default:
      return "the connection was closed";
  }
}

void Strangers::turned_away(const std::string& from, const std::string& why) {
  if (count_++ > 0) return;
  from_ = from;
  why_ = why;
}

std::string Strangers::take_warning(LivenessTime now) {
  if (count_ == 0 || (reported_ && now - *reported_ < kSilence)) return {};
  reported_ = now;
  const int64_t others = std::exchange(count_, 0) - 1;
  return fmt::format(
      "has closed a connection from {}{}, because {}; the run continues, but check what connects to its ports", from_,
      others > 0 ? fmt::format(" and {} more", others) : "", why_);
}

}  // namespace mpzero
