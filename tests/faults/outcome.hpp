#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace mpzero::faults {

// The outcome of a fault, from best to worst.
enum class Outcome : unsigned char {
  kNotTried,
  kRight,     // the values that were written; for a save: the complete old or new checkpoint
  kReported,  // wrong values in a format without checksums; the program reports that values may be wrong
  kRefused,   // refused with one sentence that names the file or the folder
  kUnclear,   // refused without such a sentence
  kWrong,     // wrong values, or a false error message
  kLost,      // an existing checkpoint is lost
  kHang,
  kCrash,  // a signal, memory beyond the limit, or an exception that is not one of mpzero's
};
inline constexpr size_t kOutcomes = 9;
inline constexpr std::array<std::string_view, kOutcomes> kOutcomeNames = {
    "not tried", "right", "reported", "refused", "UNCLEAR", "WRONG", "LOST", "HANG", "CRASH"};

inline bool is_bad(Outcome outcome) { return outcome >= Outcome::kUnclear; }

struct Verdict {
  Outcome outcome = Outcome::kNotTried;
  std::string note;  // error message, or description of the problem
};

inline Verdict worse_of(Verdict a, Verdict b) { return b.outcome > a.outcome ? b : a; }

}  // namespace mpzero::faults
