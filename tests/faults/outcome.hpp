#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace mpzero::faults {

// What became of a fault, the worse the later.
enum class Outcome : unsigned char {
  kNotTried,
  kRight,    // the values that were written; of a save: the old checkpoint or the new one, whole
  kTold,     // other values from a format without checksums, as the program says it may
  kRefused,  // one sentence that names the file or the folder
  kUnclear,  // refused, but not so
  kWrong,    // other values, or a sentence that is not true
  kLost,     // no checkpoint is left that was there before
  kHang,
  kCrash,  // a signal, memory beyond the limit, or an exception that is none of mpzero's
};
inline constexpr size_t kOutcomes = 9;
inline constexpr std::array<std::string_view, kOutcomes> kOutcomeNames = {
    "not tried", "right", "told", "refused", "UNCLEAR", "WRONG", "LOST", "HANG", "CRASH"};

inline bool is_bad(Outcome outcome) { return outcome >= Outcome::kUnclear; }

struct Verdict {
  Outcome outcome = Outcome::kNotTried;
  std::string note;  // what was said, or what is wrong
};

inline Verdict worse_of(Verdict a, Verdict b) { return b.outcome > a.outcome ? b : a; }

}  // namespace mpzero::faults
