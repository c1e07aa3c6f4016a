#include "app/liveness/last_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "app/liveness/failure_report.hpp"
#include "app/liveness/failure_verdict.hpp"
#include "app/nccl_ras.hpp"
#include "base/error.hpp"
#include "io/atomic_file.hpp"

namespace mpzero {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDiskLimit(3000);

void print(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

// The tag in `checkpoint_dir`/latest, as it stands there; empty where there is none, or its disk does not answer.
std::string newest_checkpoint(const std::filesystem::path& checkpoint_dir) {
  struct Answer {
    std::mutex mutex;
    std::string tag;
  };
  const auto answer = std::make_shared<Answer>();
  no_longer_than(kDiskLimit, [answer, checkpoint_dir] {
    std::ifstream file(checkpoint_dir / "latest");
    std::string tag;
    std::getline(file, tag);
    const std::lock_guard lock(answer->mutex);
    answer->tag = std::move(tag);
  });
  const std::lock_guard lock(answer->mutex);
  return answer->tag;
}

bool all_answer(const std::vector<RankRecord>& records) {
  return std::all_of(records.begin(), records.end(),
                     [](const RankRecord& one) { return one.state == RankRecord::State::kAnswers; });
}

}  // namespace

void no_longer_than(milliseconds limit, std::function<void()> work) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  std::thread([done, work = std::move(work)] {
    work();
    *done = true;
  }).detach();
  for (const auto start = std::chrono::steady_clock::now();
       !*done && std::chrono::steady_clock::now() - start < limit;) {
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void tell_failure(const std::vector<RankRecord>& records, const std::filesystem::path& checkpoint_dir,
                  at::Device device) {
  const Verdict verdict = find_culprits(records);
  const std::string tag = newest_checkpoint(checkpoint_dir);
  // Its answer takes seconds, which a launcher that has lost a rank does not leave.
  const std::string ras = all_answer(records) && device.is_cuda() ? nccl_ras_status() : "";
  print(report_text(verdict, records, tag.empty() ? tag : (checkpoint_dir / tag).string(), ras));
  no_longer_than(kDiskLimit, [file = checkpoint_dir / "failure.json", text = report_json(verdict, records)] {
    try {
      io::replace_text_file(file, text);
    } catch (const std::exception& error) {
      print(fmt::format("mpzero: warning: failure.json could not be written: {}\n", error.what()));
    }
  });
}

void tell_stop(int exit_code, const std::filesystem::path& checkpoint_dir) {
  const std::string tag = newest_checkpoint(checkpoint_dir);
  const std::string state = tag.empty() ? "no checkpoint was saved yet" : fmt::format("{} stays", tag);
  if (exit_code == kInterruptedExitCode) {
    print(fmt::format("mpzero: interrupted twice: stopped at once, without a save; {}.\n", state));
  } else {
    print(fmt::format("mpzero: stopped before the first step, so that there is nothing to save: {}.\n", state));
  }
}

}  // namespace mpzero
