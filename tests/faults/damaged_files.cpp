#include "tests/faults/damaged_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>
#include <string_view>

#include "tests/faults/readings.hpp"

namespace mpzero::faults {
namespace fs = std::filesystem;
namespace {

constexpr size_t kEdge = 1024;  // bytes at each end of a file where damage is tried more often
constexpr size_t kPage = 512;

std::string& bytes_of(Files& files, std::string_view name) {
  for (auto& [path, bytes] : files) {
    if (path == name) return bytes;
  }
  throw std::invalid_argument(fmt::format("there is no file {}", name));
}

size_t number(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument(fmt::format("'{}' is not a number", text));
  }
  return value;
}

// Splits "a@b" at the last '@'.
std::pair<std::string, std::string> split(const std::string& text, char at) {
  const size_t place = text.rfind(at);
  if (place == std::string::npos) throw std::invalid_argument(fmt::format("'{}' has no '{}'", text, at));
  return {text.substr(0, place), text.substr(place + 1)};
}

size_t pick(Random& random, size_t below) { return static_cast<size_t>(random() % below); }

// A third of the positions are near the beginning, a third near the end, where most of a file's structure is.
size_t place_in(size_t size, Random& random) {
  switch (pick(random, 3)) {
    case 0:
      return pick(random, std::min(size, kEdge));
    case 1:
      return size - 1 - pick(random, std::min(size, kEdge));
    default:
      return pick(random, size);
  }
}

std::string damage_of(const std::string& kind, const std::string& name, const std::string& bytes, Random& random) {
  const size_t size = bytes.size();
  if (kind == "flip") return fmt::format("{}@{}.{}", name, place_in(size, random), pick(random, 8));
  if (kind == "byte") {
    const size_t at = place_in(size, random);
    const size_t change = 1 + pick(random, 255);
    return fmt::format("{}@{}={}", name, at, (static_cast<unsigned char>(bytes[at]) + change) % 256);
  }
  if (kind == "hole") {
    const size_t begin = pick(random, size) / kPage * kPage;
    return fmt::format("{}@{}+{}", name, begin, std::min(size - begin, kPage << pick(random, 4)));
  }
  if (kind == "grow") return fmt::format("{}+{}", name, size_t{1} << pick(random, 14));
  return fmt::format("{}@{}", name, pick(random, size));  // cut
}

// Lengths that are always tried.
std::vector<std::string> cuts_of(const std::string& name, size_t size) {
  std::vector<std::string> cuts;
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{22}, size / 2, size / 2 / kPage * kPage,
        size / kPage * kPage, size - std::min<size_t>(size, 22), size - std::min<size_t>(size, 2), size - 1}) {
    if (length < size) cuts.push_back(fmt::format("{}@{}", name, length));
  }
  return cuts;
}

// Every non-empty proper subset of the names.
std::vector<std::string> choices(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (size_t mask = 1; mask + 1 < size_t{1} << names.size(); ++mask) {
    std::string chosen;
    for (size_t i = 0; i < names.size(); ++i) {
      if ((mask >> i & 1) == 0) continue;
      if (!chosen.empty()) chosen += ',';
      chosen += names[i];
    }
    found.push_back(chosen);
  }
  return found;
}

std::vector<std::string> names_of(const Files& files) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files) names.push_back(name);
  return names;
}

// Makes the text independent of the files' location.
std::string without_place(const std::string& text, const std::string& place) {
  std::string kept;
  size_t begin = 0;
  for (size_t at = text.find(place); at != std::string::npos; at = text.find(place, begin)) {
    kept.append(text, begin, at - begin);
    begin = at + place.size();
  }
  return kept.append(text, begin);
}

// The first line of `text` that is not in `expected`.
std::string difference(const std::string& text, const std::string& expected) {
  const size_t same = static_cast<size_t>(
      std::mismatch(text.begin(), text.end(), expected.begin(), expected.end()).first - text.begin());
  const size_t begin = same == 0 ? 0 : text.rfind('\n', same - 1) + 1;
  return text.substr(begin, std::min(text.find('\n', same), text.size()) - begin);
}

void keep_some(std::vector<std::string>& all, size_t count, Random& random) {
  if (all.size() <= count) return;
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
}

}  // namespace

DamagedFiles::DamagedFiles(std::string name, Files files, std::vector<OtherSave> others, Readers readers,
                           const fs::path& scratch)
    : name_(std::move(name)), files_(std::move(files)), others_(std::move(others)), readers_(std::move(readers)) {
  right_.push_back(read_all(files_, scratch));
  for (const OtherSave& other : others_) right_.push_back(read_all(other.files, scratch));
  fs::remove_all(scratch / "files");
}

DamagedFiles::Texts DamagedFiles::read_all(const Files& files, const fs::path& scratch) const {
  const fs::path folder = scratch / "files";
  write_files(folder, files);
  if (readers_.verify) readers_.verify(folder);
  Texts texts;
  for (const Reading& reading : readers_.readings) texts.push_back(without_place(reading(folder, scratch), folder));
  return texts;
}

std::vector<std::string> DamagedFiles::kinds() const {
  std::vector<std::string> kinds = {"flip", "byte", "hole", "cut", "grow", "gone"};
  if (files_.size() > 1) kinds.emplace_back("twin");
  if (!others_.empty()) kinds.emplace_back("swap");
  return kinds;
}

std::vector<std::string> DamagedFiles::faults(const std::string& kind, size_t count, Random& random) {
  std::vector<std::string> found;
  if (kind == "gone") {
    found = names_of(files_);
  } else if (kind == "twin") {
    for (const std::string& a : names_of(files_)) {
      for (const std::string& b : names_of(files_)) {
        if (a != b) found.push_back(a + "=" + b);
      }
    }
  } else if (kind == "swap") {
    for (const OtherSave& other : others_) {
      for (const std::string& chosen : choices(names_of(files_))) found.push_back(other.name + ":" + chosen);
    }
  } else {
    if (kind == "cut") {
      for (const auto& [name, bytes] : files_) {
        for (std::string& cut : cuts_of(name, bytes.size())) found.push_back(std::move(cut));
      }
      keep_some(found, count, random);
    }
    std::set<std::string> known(found.begin(), found.end());
    // Small files have fewer positions than requested.
    for (size_t i = 0; found.size() < count && i < 4 * count; ++i) {
      const auto& [name, bytes] = files_[i % files_.size()];
      std::string fault = damage_of(kind, name, bytes, random);
      if (known.insert(fault).second) found.push_back(std::move(fault));
    }
    return found;
  }
  keep_some(found, count, random);
  return found;
}

Files DamagedFiles::swapped(const std::string& fault) const {
  const auto [save, names] = split(fault, ':');
  const auto other = std::find_if(others_.begin(), others_.end(), [&](const OtherSave& o) { return o.name == save; });
  if (other == others_.end()) throw std::invalid_argument("there is no other save " + save);
  Files donor = other->files, files = files_;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    bytes_of(files, name) = bytes_of(donor, name);
    begin = end + 1;
  }
  return files;
}

Files DamagedFiles::damaged(const std::string& kind, const std::string& fault) const {
  if (kind == "swap") return swapped(fault);
  Files files = files_;
  if (kind == "gone") {
    std::erase_if(files, [&](const auto& file) { return file.first == fault; });
  } else if (kind == "twin") {
    const auto [name, other] = split(fault, '=');
    bytes_of(files, name) = std::string(bytes_of(files, other));
  } else if (kind == "grow") {
    const auto [name, count] = split(fault, '+');
    bytes_of(files, name) += std::string(number(count), 'x');
  } else {
    const auto [name, how] = split(fault, '@');
    std::string& bytes = bytes_of(files, name);
    const size_t at = number(how.substr(0, how.find_first_of(".=+")));
    if (kind == "cut") {
      bytes.resize(at);
    } else if (kind == "flip") {
      bytes.at(at) = static_cast<char>(bytes.at(at) ^ (1 << number(split(how, '.').second)));
    } else if (kind == "byte") {
      bytes.at(at) = static_cast<char>(number(split(how, '=').second));
    } else if (kind == "hole") {
      const size_t count = number(split(how, '+').second);
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::min(count, bytes.size() - at), '\0');
    } else {
      throw std::invalid_argument("there is no kind " + kind);
    }
  }
  return files;
}

bool DamagedFiles::must_be_refused(const std::string& kind, const std::string& fault) const {
  const std::string name = fault.substr(0, fault.find_first_of("@+"));
  const bool is_text = name.ends_with(".json") || fs::path(name).extension().empty();
  if (kind == "cut") return !is_text;
  if (!readers_.verify) return false;
  return kind == "flip" ? !name.ends_with(".pt") : kind == "grow" && !is_text;
}

Verdict DamagedFiles::read(const fs::path& folder, const fs::path& scratch, bool of_others) const {
  Verdict worst{Outcome::kRight, ""};
  bool verified = false;
  if (readers_.verify) {
    try {
      readers_.verify(folder);
      verified = true;
    } catch (...) {
      worst = judge_exception(folder);
      worst.note = fmt::format("verify: {}", worst.note);
    }
  }
  for (size_t i = 0; i < readers_.readings.size(); ++i) {
    Verdict verdict{Outcome::kRight, ""};
    try {
      const std::string text = without_place(readers_.readings[i](folder, scratch), folder);
      bool right = text == right_[0][i];
      for (size_t other = 1; of_others && other < right_.size(); ++other) right = right || text == right_[other][i];
      const bool reported = !right && readers_.tells && readers_.tells(folder);
      if (!right)
        verdict = {reported ? Outcome::kReported : Outcome::kWrong,
                   fmt::format("read: {}", difference(text, right_[0][i]))};
    } catch (...) {
      verdict = judge_exception(folder);
      if (verified && verdict.outcome == Outcome::kRefused) {
        verdict = {Outcome::kWrong, fmt::format("verify reports no error, a reader: {}", verdict.note)};
      }
    }
    worst = worse_of(worst, verdict);
  }
  return worst;
}

Verdict DamagedFiles::try_fault(const std::string& kind, const std::string& fault, const fs::path& scratch) {
  const Files files = damaged(kind, fault);
  if (files == files_) return {Outcome::kRight, "nothing changes"};
  const fs::path folder = scratch / "files";
  write_files(folder, files);
  Verdict verdict = read(folder, scratch, kind == "swap");
  if (verdict.outcome == Outcome::kRight && must_be_refused(kind, fault)) {
    verdict = {Outcome::kWrong, "no reader reports the damage"};
  }
  return verdict;
}

}  // namespace mpzero::faults
