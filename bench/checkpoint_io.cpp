// Writes and reads a checkpoint as one rank does, and compares the throughput with sequential direct I/O (O_DIRECT) of
// the same bytes on the same disk.
//
//   bench_checkpoint_io FOLDER [GIBIBYTES=4] [REPEATS=3]
//
// FOLDER must be on the disk to measure. Each result is the median over the repeats, which alternate between checkpoint
// and direct I/O. Times include fsync. The file's page cache is dropped before each read.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/reader.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/open_folder.hpp"
#include "io/files/output_file.hpp"

namespace mpzero::io {
namespace {

namespace fs = std::filesystem;

constexpr double kGigabyte = 1e9;
constexpr int64_t kGibibyte = 1 << 30;
constexpr int64_t kPlainBlock = 16 << 20;
constexpr const char* kTag = "bench-1steps";
// Number of elements of a Qwen3-0.6B decoder layer.
constexpr int64_t kUnitElements = 15'730'176;

struct FreeAligned {
  void operator()(float* memory) const {
    ::operator delete[](memory, std::align_val_t{static_cast<size_t>(OutputFile::kAlignment)});
  }
};
using Values = std::unique_ptr<float[], FreeAligned>;

// Returns random bits, which the disk cannot compress.
Values random_values(int64_t count) {
  void* memory = ::operator new[](static_cast<size_t>(count) * sizeof(float),
                                  std::align_val_t{static_cast<size_t>(OutputFile::kAlignment)});
  std::mt19937_64 random(1);
  auto* words = static_cast<uint64_t*>(memory);
  for (int64_t i = 0; i < count / 2; ++i) words[i] = random();
  return Values(static_cast<float*>(memory));
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : value_(::open(path.c_str(), flags, 0666)) {
    if (value_ < 0) throw_system_error("open", path, errno);
  }
  ~Descriptor() { ::close(value_); }
  Descriptor(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

void plain_write(const fs::path& path, const std::byte* memory, int64_t size) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT);
  for (int64_t at = 0; at < size; at += kPlainBlock) {
    const auto bytes = static_cast<size_t>(std::min(kPlainBlock, size - at));
    if (::pwrite(file.get(), memory + at, bytes, at) != static_cast<ssize_t>(bytes)) {
      throw_system_error("write", path, errno);
    }
  }
  if (::fsync(file.get()) != 0) throw_system_error("sync", path, errno);
}

void plain_read(const fs::path& path, std::byte* memory, int64_t size) {
  const Descriptor file(path, O_RDONLY | O_DIRECT);
  for (int64_t at = 0; at < size; at += kPlainBlock) {
    const auto bytes = static_cast<size_t>(std::min(kPlainBlock, size - at));
    if (::pread(file.get(), memory + at, bytes, at) != static_cast<ssize_t>(bytes)) {
      throw_system_error("read", path, errno);
    }
  }
}

void drop_cache(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const Descriptor file(entry.path(), O_RDONLY);
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

void report(const char* what, double ours, double plain, int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  fmt::print("{:<24} {:6.2f} GB/s   direct I/O {:6.2f} GB/s   {:5.1f}%\n", what, size / ours / kGigabyte,
             size / plain / kGigabyte, plain / ours * 100);
}

void run(const fs::path& parent, int64_t gibibytes, int repeats) {
  const int64_t num_units = std::max<int64_t>(1, gibibytes * kGibibyte / (3 * kUnitElements * 4));
  const int64_t count = num_units * kUnitElements;
  const int64_t bytes = 3 * count * 4;
  const fs::path folder = parent / fmt::format("mpzero-bench-{}", ::getpid());
  make_folders(folder);
  std::vector<UnitSpec> units;
  for (int64_t u = 0; u < num_units; ++u) {
    const std::string name = fmt::format("layers.{}", u);
    units.push_back({name, {{name + ".weight", {kUnitElements}}}});
  }
  SaveJob job;
  job.checkpoint_dir = folder;
  job.tag = kTag;
  job.model_type = "bench";
  job.progress.dtype = "bf16";
  for (const UnitSpec& unit : units) job.shards.push_back({&unit, 0, kUnitElements});
  // As in a snapshot, each dataset starts at a page boundary.
  constexpr int64_t kStride = (kUnitElements + 1023) / 1024 * 1024;
  const Values values = random_values(3 * num_units * kStride);
  const auto slice = [&](size_t unit, StateKind kind) {
    return std::span(values.get() + (static_cast<int64_t>(unit) * 3 + static_cast<int64_t>(kind)) * kStride,
                     static_cast<size_t>(kUnitElements));
  };
  const fs::path plain = folder / "plain";
  auto* memory = reinterpret_cast<std::byte*>(values.get());

  SingleProcess alone;
  std::vector<double> write_ours, write_streamed, write_plain, read_ours, read_plain;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    fs::remove_all(folder / kTag);
    write_ours.push_back(seconds_of([&] { save_checkpoint(job, {.fetch = slice, .all_stay = true}, alone); }));
    fs::remove(plain);
    write_plain.push_back(seconds_of([&] { plain_write(plain, memory, bytes); }));
    fs::remove_all(folder / kTag);
    write_streamed.push_back(seconds_of([&] { save_checkpoint(job, {.fetch = slice}, alone); }));

    drop_cache(folder / kTag);
    std::vector<float> out(static_cast<size_t>(kUnitElements));
    read_ours.push_back(seconds_of([&] {
      const auto reader = open_hdf5_checkpoint(std::make_shared<OpenFolder>(folder / kTag));
      for (const UnitSpec& unit : units) {
        for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
          reader->read_unit(unit, kind, 0, out);
        }
      }
    }));
    read_plain.push_back(seconds_of([&] { plain_read(plain, memory, bytes); }));
  }
  fs::remove_all(folder);
  fmt::print("{:.2f} GB, {} repeats\n", static_cast<double>(bytes) / kGigabyte, repeats);
  report("save, from a snapshot", median(write_ours), median(write_plain), bytes);
  report("save, unit by unit", median(write_streamed), median(write_plain), bytes);
  report("read and verify", median(read_ours), median(read_plain), bytes);
}

}  // namespace
}  // namespace mpzero::io

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fputs("usage: bench_checkpoint_io FOLDER [GIBIBYTES=4] [REPEATS=3]\n", stderr);
    return mpzero::kUserErrorExitCode;
  }
  try {
    mpzero::io::run(argv[1], argc > 2 ? std::atoll(argv[2]) : 4, argc > 3 ? std::atoi(argv[3]) : 3);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_checkpoint_io: %s\n", error.what());
    return mpzero::kFailureExitCode;
  }
}
