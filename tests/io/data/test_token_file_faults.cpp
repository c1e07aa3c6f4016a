// Token files with changed bytes, read as the trainer reads them: the result is the right tokens, or one sentence that
// names the file. tests/io/make_token_files.py has just written the files (a ctest fixture). A part of all faults is
// tried, or all of them with MPZERO_ALL_FAULTS=1.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/data/token_dataset.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

using mpzero::UserError;
using mpzero::io::TokenDataset;
using namespace mpzero::io::testing;

namespace {

// Result of a read in its own process: the exit status.
enum Outcome { kRight, kRefused, kWrong, kOtherWords, kOtherError, kCrashed };
const std::vector<std::string> kOutcomes = {"right",         "refused",
                                            "wrong tokens",  "refused without the file's name or in more than a line",
                                            "another error", "crashed, hung or took memory"};

std::filesystem::path made(const std::string& name) {
  const char* const folder = std::getenv("MPZERO_PREPARED_FOLDER");
  REQUIRE(folder != nullptr);
  return std::filesystem::path(folder) / name;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Everything that the trainer takes from a file.
std::vector<int64_t> contents(const std::filesystem::path& path) {
  constexpr int64_t kSeqLength = 20;
  const TokenDataset dataset(path, kSeqLength);
  std::vector<int64_t> found = {dataset.num_tokens(), dataset.num_documents(), dataset.vocab_size(),
                                dataset.eos_token_id(),
                                static_cast<int64_t>(std::hash<std::string>()(dataset.tokenizer()))};
  std::vector<int64_t> tokens(kSeqLength + 1);
  for (int64_t window = 0; window < dataset.num_windows(); ++window) {
    dataset.read_windows(std::span(&window, 1), 1 << 20, tokens);
    found.insert(found.end(), tokens.begin(), tokens.end());
  }
  return found;
}

Outcome read(const std::filesystem::path& path, const std::vector<int64_t>& expected) {
  try {
    return contents(path) == expected ? kRight : kWrong;
  } catch (const UserError& error) {
    const std::string words = error.what();
    const bool fine = words.find(path.string()) != std::string::npos && words.find('\n') == std::string::npos;
    return fine ? kRefused : kOtherWords;
  } catch (...) {
    return kOtherError;
  }
}

Outcome read_in_child(const std::filesystem::path& path, const std::vector<int64_t>& expected) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // CPU time, so that the limit does not depend on the machine's load.
    const rlimit seconds{10, 10}, no_core{0, 0};
    ::setrlimit(RLIMIT_CPU, &seconds);
    ::setrlimit(RLIMIT_CORE, &no_core);
#ifndef __SANITIZE_ADDRESS__
    const rlimit bytes{1 << 30, 1 << 30};
    ::setrlimit(RLIMIT_AS, &bytes);
#endif
    // Otherwise Catch2 would report the signal at length.
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, SIG_DFL);
    ::_exit(read(path, expected));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) < kCrashed ? static_cast<Outcome>(WEXITSTATUS(status)) : kCrashed;
}

// A copy of one token file that is repeatedly changed, read and restored.
class Campaign {
 public:
  explicit Campaign(const std::string& name)
      : path_(folder_ / name), bytes_(bytes_of(made(name))), expected_(contents(made(name))) {
    std::ofstream(path_, std::ios::binary) << bytes_;
    descriptor_ = ::open(path_.c_str(), O_RDWR);
    REQUIRE(descriptor_ >= 0);
  }
  ~Campaign() { ::close(descriptor_); }

  size_t size() const { return bytes_.size(); }
  char byte(size_t at) const { return bytes_[at]; }
  size_t find(const std::string& text, size_t from = 0) const { return bytes_.find(text, from); }

  // Reads the file with these bytes replaced.
  void change(const std::map<size_t, char>& bytes) {
    std::string words;
    for (const auto& [at, value] : bytes) {
      put(at, value);
      words += fmt::format(" byte {} = {:#04x}", at, static_cast<unsigned char>(value));
    }
    take(words);
    for (const auto& [at, value] : bytes) put(at, bytes_[at]);
  }
  void flip(size_t bit) { change({{bit / 8, static_cast<char>(bytes_[bit / 8] ^ (1 << bit % 8))}}); }

  // Names the faults with an outcome other than `allowed`. Empty if there is none.
  std::string unexpected(const std::vector<Outcome>& allowed) const {
    std::string report;
    for (const auto& [outcome, faults] : faults_) {
      if (std::find(allowed.begin(), allowed.end(), outcome) != allowed.end()) continue;
      report += fmt::format("{}: {} faults, the first{}\n", kOutcomes[outcome], faults.size(), faults.front());
    }
    return report;
  }
  size_t count(Outcome outcome) const { return faults_.contains(outcome) ? faults_.at(outcome).size() : 0; }

 private:
  void put(size_t at, char value) { REQUIRE(::pwrite(descriptor_, &value, 1, static_cast<off_t>(at)) == 1); }
  void take(const std::string& words) { faults_[read_in_child(path_, expected_)].push_back(words); }

  TemporaryFolder folder_;
  std::filesystem::path path_;
  std::string bytes_;
  std::vector<int64_t> expected_;
  int descriptor_ = -1;
  std::map<Outcome, std::vector<std::string>> faults_;
};

// Every `stride`-th fault is tried, or all if MPZERO_ALL_FAULTS is set.
size_t stride(size_t part) { return std::getenv("MPZERO_ALL_FAULTS") == nullptr ? part : 1; }

void flip_bits(Campaign& campaign, size_t part) {
  for (size_t bit = 0; bit < 8 * campaign.size(); bit += stride(part)) campaign.flip(bit);
}

// Up to five bytes at a time, near each other or anywhere, most of them extreme values.
void change_bytes(Campaign& campaign, int count) {
  std::mt19937 random(7);
  const auto below = [&](size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random); };
  for (int i = 0; i < count; ++i) {
    const size_t near = below(campaign.size()), reach = below(2) == 0 ? 64 : campaign.size();
    std::map<size_t, char> bytes;
    for (size_t j = 0, n = 2 + below(4); j < n; ++j) {
      const size_t at = (near + below(reach)) % campaign.size();
      const char values[] = {'\0', '\xff', static_cast<char>(below(256)),
                             static_cast<char>(campaign.byte(at) ^ (1 << below(8)))};
      bytes[at] = values[below(4)];
    }
    campaign.change(bytes);
  }
}

}  // namespace

TEST_CASE("files of all kinds contain the same tokens") {
  const std::vector<int64_t> expected = contents(made("ours.h5"));
  CHECK(expected.size() == 5 + 20 * 21);
  for (const std::string name : {"older.h5", "new_layout.h5", "gzip.h5"}) {
    INFO(name);
    CHECK(contents(made(name)) == expected);
    CHECK(!TokenDataset(made(name), 20).has_checksums());
    CHECK(TokenDataset(made(name), 20).content_hash().empty());
  }
  CHECK(TokenDataset(made("ours.h5"), 20).has_checksums());
  CHECK(TokenDataset(made("ours.h5"), 20).content_hash() == "9fefe5953c8a0f21");  // xxhash.xxh3_64 of the 802 bytes
}

TEST_CASE("a variable-length string in dense storage is refused with the reason") {
  const std::string message = message_of<UserError>([] { TokenDataset(made("dense.h5"), 20); });
  CHECK(lacks(message, {"dense.h5", "'tokenizer'", "dense storage", "app/prepare_data.py --rewrite FILE"}) == "");
}

TEST_CASE("a damaged string heap that crashes or hangs the library is refused") {
  Campaign campaign("older.h5");
  const size_t heap = campaign.find("GCOL");
  for (size_t bit = 8 * heap; bit < 8 * (heap + 120); bit += stride(3)) campaign.flip(bit);
  CHECK(campaign.unexpected({kRight, kRefused, kWrong}) == "");
  CHECK(campaign.count(kRefused) > 20);
}

TEST_CASE("a damaged layout that makes the library divide by zero is refused") {
  Campaign campaign("older.h5");
  size_t found = 0;
  // Version 3, chunked, one dimension plus the element's size, the address of the index, the extents.
  for (size_t at = 0; (at = campaign.find({"\x03\x02\x02", 3}, at)) != std::string::npos; ++at, ++found) {
    for (size_t bit = 8 * at; bit < 8 * (at + 19); bit += stride(2)) campaign.flip(bit);
    for (size_t byte = at; byte < at + 19; ++byte) campaign.change({{byte, '\0'}});
  }
  CHECK(found >= 2);
  CHECK(campaign.unexpected({kRight, kRefused, kWrong}) == "");
  CHECK(campaign.count(kRefused) > 20);
}

TEST_CASE("changed bytes of a file without checksums do not crash or hang the reader") {
  for (const std::string name : {"older.h5", "new_layout.h5", "gzip.h5"}) {
    INFO(name);
    Campaign campaign(name);
    flip_bits(campaign, 331);
    change_bytes(campaign, stride(2) == 1 ? 20000 : 200);
    // A changed token cannot be detected.
    CHECK(campaign.unexpected({kRight, kRefused, kWrong}) == "");
  }
}
