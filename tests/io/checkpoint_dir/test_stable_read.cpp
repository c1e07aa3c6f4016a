#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/deepspeed_fixture.hpp"

// Checkpoints that other processes replace, remove and rewrite while they are read. Each event happens at a chosen
// moment of the read, in the reader's own thread.
namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

constexpr const char* kTag = "tiny-6steps";

enum class Format { kHdf5, kDeepSpeed };

void publish_values(const fs::path& dir, Format format, uint32_t generation) {
  if (format == Format::kDeepSpeed) {
    require_saved(dir, kTag, {.stage = 2, .ranks = 3, .step = 6, .generation = generation});
    return;
  }
  for (const std::string& error : save(dir, kTag, progress_at(6), transformer(), 3, Split::kEven, generation)) {
    REQUIRE(error.empty());
  }
}

// The generation of all values in the checkpoint. 0 if they are mixed.
uint32_t generation_in(const StoredCheckpoint& checkpoint) {
  for (const uint32_t generation : {1U, 2U}) {
    if (same_states(checkpoint, 2, generation)) return generation;
  }
  return 0;
}

// Reads one value, which opens some of the files.
void read_first(const StoredCheckpoint& checkpoint) {
  std::vector<float> out(1);
  checkpoint.read_unit(transformer()[0], StateKind::kMaster, 0, out);
}

struct Outcome {
  uint32_t generation = 0;
  std::vector<std::string> restarts;
};

// Reads with `event` between the opening and the first value or, if `late`, between the first value and the others.
Outcome read_with(const fs::path& dir, bool late, const std::function<void()>& event) {
  Outcome outcome;
  SingleProcess alone;
  bool happened = false;
  read_checkpoint([&] { return dir / kTag; },
                  [&](const StoredCheckpoint& checkpoint) {
                    if (late) read_first(checkpoint);
                    if (!std::exchange(happened, true)) event();
                    outcome.generation = generation_in(checkpoint);
                    checkpoint.verify_what_was_read(alone);
                  },
                  [&](const std::string& why) { outcome.restarts.push_back(why); });
  return outcome;
}

}  // namespace

TEST_CASE("a checkpoint published during a read is read in full or not at all") {
  for (const Format format : {Format::kHdf5, Format::kDeepSpeed}) {
    for (const bool late : {false, true}) {
      const TemporaryFolder folder;
      publish_values(folder.path(), format, 1);
      const Outcome outcome = read_with(folder.path(), late, [&] { publish_values(folder.path(), format, 2); });
      // The files that were not open yet were removed with the previous folder.
      CHECK(outcome.generation == 2);
      REQUIRE(outcome.restarts.size() == 1);
      CHECK_THAT(outcome.restarts[0],
                 Contains("was replaced by another process while it was being read; reading it again"));
    }
  }
}

TEST_CASE("an open checkpoint is read to its end while another one takes its name") {
  for (const Format format : {Format::kHdf5, Format::kDeepSpeed}) {
    const TemporaryFolder folder;
    publish_values(folder.path(), format, 1);
    // The previous checkpoint still exists under another name.
    const Outcome outcome = read_with(folder.path(), false, [&] {
      fs::rename(folder / kTag, folder / "elsewhere");
      publish_values(folder.path(), format, 2);
    });
    CHECK(outcome.generation == 1);
    CHECK(outcome.restarts.empty());
  }
}

TEST_CASE("the latest checkpoint is found while another process saves and prunes") {
  const TemporaryFolder folder;
  const auto publish = [&](int step) {
    fs::create_directory(folder / std::to_string(step));
    write_file(folder / "next", std::to_string(step));
    fs::rename(folder / "next", folder / "latest");
    fs::remove(folder / std::to_string(step - 1));
  };
  publish(1);
  std::atomic<bool> done = false;
  std::thread saves([&] {
    for (int step = 2; !done; ++step) publish(step);
  });
  for (int i = 0; i < 3000; ++i) {
    const std::string message = message_of([&] { REQUIRE(latest_checkpoint(folder.path())); });
    if (!message.empty()) FAIL_CHECK(message);
  }
  done = true;
  saves.join();
}

TEST_CASE("a checkpoint that is pruned during a read is reported as removed, not as damaged") {
  for (const Format format : {Format::kHdf5, Format::kDeepSpeed}) {
    for (const bool late : {false, true}) {
      const TemporaryFolder folder;
      publish_values(folder.path(), format, 1);
      const std::string message =
          message_of([&] { read_with(folder.path(), late, [&] { remove_checkpoints({folder / kTag}); }); });
      CHECK_THAT(message, Contains((folder / kTag).string() + " was removed by another process"));
    }
  }
}

TEST_CASE("after a removal, the checkpoint is looked up once more, and not read at the same path") {
  for (const bool another : {false, true}) {
    const TemporaryFolder folder;
    publish_values(folder.path(), Format::kHdf5, 1);
    fs::copy(folder / kTag, folder / "other-6steps");
    int opened = 0;
    std::vector<std::string> restarts;
    const std::string message = message_of([&] {
      read_checkpoint([&] { return folder / (another && opened > 0 ? "other-6steps" : kTag); },
                      [&](const StoredCheckpoint& checkpoint) {
                        if (++opened == 1) remove_checkpoints({folder / kTag});
                        checkpoint.verify();
                      },
                      [&](const std::string& why) { restarts.push_back(why); });
    });
    REQUIRE(restarts.size() == 1);
    CHECK_THAT(restarts[0], Contains("was removed by another process while it was being read; reading it again"));
    CHECK(opened == (another ? 2 : 1));
    CHECK(message.empty() == another);
  }
}

TEST_CASE("a read is abandoned after kMaxReads attempts if the checkpoint is replaced in each") {
  for (const Format format : {Format::kHdf5, Format::kDeepSpeed}) {
    const TemporaryFolder folder;
    publish_values(folder.path(), format, 1);
    size_t restarts = 0;
    const std::string message = message_of([&] {
      read_checkpoint([&] { return folder / kTag; },
                      [&](const StoredCheckpoint& checkpoint) {
                        publish_values(folder.path(), format, 2);
                        checkpoint.verify();
                      },
                      [&](const std::string&) { ++restarts; });
    });
    CHECK_THAT(message, Contains("was replaced by another process"));
    CHECK(restarts + 1 == static_cast<size_t>(kMaxReads));
  }
}

TEST_CASE("damage is reported as damage if the folder was not replaced") {
  for (const Format format : {Format::kHdf5, Format::kDeepSpeed}) {
    const TemporaryFolder folder;
    publish_values(folder.path(), format, 1);
    for (const std::string& name : names_in(folder / kTag)) {
      if (!name.starts_with("bf16_zero_pp_rank_1") && !name.starts_with("zero_pp_rank_1")) continue;
      std::string bytes = read_file(folder / kTag / name);
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
      write_file(folder / kTag / name, bytes);
    }
    CHECK_THAT(message_of([&] { read_with(folder.path(), false, [] {}); }), Contains("is damaged"));
  }
}

// DeepSpeed writes into the existing folder of that name, file by file.
TEST_CASE("a folder that DeepSpeed rewrites during a read is read again") {
  for (const bool in_place : {true, false}) {
    for (const bool late : {false, true}) {
      const TemporaryFolder folder;
      const Saved how{.stage = 2, .ranks = 3, .step = 6, .generation = 1};
      Saved next = how;
      next.generation = 2;
      require_stock(folder.path(), kTag, how);
      require_stock(folder.path(), "next-6steps", next);
      const Outcome outcome = read_with(folder.path(), late, [&] {
        for (const std::string& name : names_in(folder / "next-6steps")) {
          if (in_place) {
            write_file(folder / kTag / name, read_file(folder / "next-6steps" / name));
          } else {
            fs::rename(folder / "next-6steps" / name, folder / kTag / name);
          }
        }
      });
      CHECK(outcome.generation == 2);
      REQUIRE(outcome.restarts.size() == 1);
      CHECK_THAT(outcome.restarts[0], Contains("was rewritten by another process while it was being read"));
    }
  }
}

TEST_CASE("ranks that have opened different saves in one folder detect the difference") {
  for (const Format format : {Format::kHdf5, Format::kDeepSpeed}) {
    const TemporaryFolder folder;
    publish_values(folder.path(), format, 1);
    const auto keep = std::make_shared<OpenFolder>(folder / kTag);
    fs::rename(folder / kTag, folder / "elsewhere");
    publish_values(folder.path(), format, 2);
    ThreadGroup group(2);
    const std::vector<std::string> errors = group.run([&](ProcessGroup& ranks) {
      std::shared_ptr<const OpenFolder> opened = keep;
      if (ranks.rank() == 1) opened = std::make_shared<OpenFolder>(folder / kTag);
      const auto checkpoint = open_checkpoint(opened);
      read_first(*checkpoint);
      const std::string message = message_of([&] { checkpoint->verify_what_was_read(ranks); });
      CHECK(replaced_on_any_rank(opened.get(), ranks));
      if (!message.empty()) throw Failure(message);
    });
    for (const std::string& error : errors) CHECK_THAT(error, Contains("different saves"));
  }
}

namespace {

struct Opened {
  std::vector<std::string> errors;  // of each rank
  int attempts = 0;                 // of rank 1
  std::vector<int64_t> pauses;      // of rank 1, in ms
};

// Opens with 2 ranks and up to 4 attempts. `before`: runs on rank 1 before each attempt, with its number.
Opened open_with_two_ranks(const std::function<void(int)>& before, const fs::path& checkpoint) {
  Opened opened;
  ThreadGroup group(2);
  opened.errors = group.run([&](ProcessGroup& ranks) {
    const bool is_late = ranks.rank() == 1;
    const auto wait = [&, is_late](std::chrono::milliseconds pause) {
      if (is_late) opened.pauses.push_back(pause.count());
    };
    open_on_all_ranks(ranks,
                      [&] {
                        if (is_late) before(++opened.attempts);
                        open_checkpoint(checkpoint);
                      },
                      {.attempts = 4, .wait = wait});
  });
  return opened;
}

}  // namespace

TEST_CASE("a rank whose host shows a checkpoint later than other hosts retries") {
  const TemporaryFolder folder;
  publish_values(folder.path(), Format::kHdf5, 1);
  const fs::path absent = folder / "absent";
  const auto late_until = [&](int attempt) {
    return [&absent, attempt](int now) {
      if (now < attempt) open_checkpoint(absent);
    };
  };
  const std::vector<int64_t> all_pauses = {50, 100, 200};
  for (const int attempt : {1, 2, 4}) {
    const Opened opened = open_with_two_ranks(late_until(attempt), folder / kTag);
    CHECK(opened.errors == std::vector<std::string>{"", ""});
    CHECK(opened.attempts == attempt);
    CHECK(opened.pauses == std::vector<int64_t>(all_pauses.begin(), all_pauses.begin() + attempt - 1));
  }
  // In the end it is refused on all ranks, by a sentence that names the rank.
  const Opened never = open_with_two_ranks(late_until(5), folder / kTag);
  CHECK(never.attempts == 4);
  for (const std::string& error : never.errors) {
    CHECK_THAT(error, Contains("rank 1") && Contains(absent.string() + " is not a folder"));
  }
}

TEST_CASE("a checkpoint that no rank can open is refused immediately, and so is a system error") {
  const TemporaryFolder folder;
  const fs::path absent = folder / "absent";
  const Opened none = open_with_two_ranks([](int) {}, absent);
  CHECK(none.attempts == 1);
  CHECK_THAT(none.errors[0], Contains("is not a folder"));
  publish_values(folder.path(), Format::kHdf5, 1);
  const auto fail = [](int) { throw_system_error("open", "file", EACCES); };
  const Opened failed = open_with_two_ranks(fail, folder / kTag);
  CHECK(failed.attempts == 1);
  CHECK_THAT(failed.errors[0], Contains("Permission denied"));
}

}  // namespace mpzero::io
