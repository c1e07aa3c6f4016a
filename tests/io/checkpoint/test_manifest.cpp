#include <cstring>
#include <random>
#include <set>

#include "base/error.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

constexpr const char* kTag = "tiny-3steps";

// The error of opening and then reading everything. Empty if there is none.
std::string read_all(const fs::path& folder) {
  return message_of([&] {
    const auto reader = open_hdf5(folder);
    reader->verify();
  });
}

}  // namespace

TEST_CASE("a truncated file is reported with a remedy, wherever it is cut") {
  const TemporaryFolder folder;
  save(folder.path(), kTag, progress_at(3), small_model(), 2);
  REQUIRE(read_all(folder / kTag) == "");
  for (const std::string& name : names_in(folder / kTag)) {
    const fs::path path = folder / kTag / name;
    const std::string intact = read_file(path);
    for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, intact.size() / 2, intact.size() - 2}) {
      write_file(path, intact.substr(0, size));
      CAPTURE(name, size);
      CHECK_THROWS_AS(open_hdf5(folder / kTag), UserError);
      CHECK_THAT(read_all(folder / kTag), Contains(path.string()) && Contains("--resume_from_checkpoint"));
    }
    fs::remove(path);
    CHECK_THAT(read_all(folder / kTag), Contains(name) && Contains("--resume_from_checkpoint"));
    write_file(path, intact + "x");
    if (name != "manifest.json") CHECK_THAT(read_all(folder / kTag), Contains(path.string()));
    write_file(path, intact);
  }
  CHECK(read_all(folder / kTag) == "");
}

TEST_CASE("a flipped bit anywhere in any file is detected") {
  const TemporaryFolder folder;
  save(folder.path(), kTag, progress_at(3), small_model(), 2);
  for (const std::string& name : names_in(folder / kTag)) {
    const fs::path path = folder / kTag / name;
    const std::string intact = read_file(path);
    const size_t stride = std::max<size_t>(1, intact.size() / 257);
    for (size_t at = 0; at < intact.size(); at += stride) {
      if (intact[at] == '\n') continue;  // another blank here is still the same JSON
      std::string flipped = intact;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      write_file(path, flipped);
      const std::string message = read_all(folder / kTag);
      CAPTURE(name, at, message);
      REQUIRE_THAT(message, Contains(path.string()) && Contains("--resume_from_checkpoint"));
    }
    write_file(path, intact);
  }
}

TEST_CASE("a slice is read although another shard is damaged, and damage in its own shard is detected") {
  const auto model = small_model();
  const TemporaryFolder folder;
  save(folder.path(), kTag, progress_at(3), model, 2);
  const fs::path second = folder / kTag / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.h5";
  std::string bytes = read_file(second);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(second, bytes);
  const auto reader = open_hdf5(folder / kTag);
  std::vector<float> first_half(45);
  reader->read_unit(model[1], StateKind::kMaster, 0, first_half);
  CHECK(same_bits(first_half, 1, StateKind::kMaster, 0));
  CHECK_THAT(message_of([&] { reader->verify(); }), Contains(second.string()));
}

TEST_CASE("after any flipped bit or truncation a run resumes from the previous checkpoint, or from the same values") {
  const auto model = small_model();
  const TemporaryFolder folder;
  save(folder.path(), "tiny-1steps", progress_at(1), model, 2, Split::kEven, 1);
  save(folder.path(), kTag, progress_at(3), model, 2, Split::kEven, 2);
  std::vector<fs::path> files = {folder / "latest"};
  for (const std::string& name : names_in(folder / kTag)) files.push_back(folder / kTag / name);
  // The first complete candidate, as a run finds it.
  const auto generation_found = [&]() -> uint32_t {
    for (const fs::path& candidate : resume_candidates(folder.path(), "tiny").folders) {
      if (!read_all(candidate).empty()) continue;
      for (const uint32_t generation : {1U, 2U}) {
        if (holds_generation(candidate, model, generation)) return generation;
      }
      return 99;
    }
    return 0;
  };
  REQUIRE(generation_found() == 2);
  std::mt19937 random(1);
  int elder = 0;
  for (int i = 0; i < 1500; ++i) {
    const fs::path& path = files[random() % files.size()];
    const std::string intact = read_file(path);
    std::string damaged = intact;
    const size_t at = random() % intact.size();
    const bool cut = i % 5 == 0;
    if (cut) {
      damaged.resize(at);
    } else {
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    }
    write_file(path, damaged);
    const uint32_t found = generation_found();
    CAPTURE(path, at, cut, found);
    REQUIRE((found == 1 || found == 2));
    if (found == 1) ++elder;
    // An extra or missing blank changes neither the manifest nor `latest`. No other change may be accepted.
    if (path.extension() == ".h5") REQUIRE(found == 1);
    write_file(path, intact);
  }
  CHECK(elder > 1000);
  CHECK(generation_found() == 2);
}

TEST_CASE("invalid lengths in a manifest are rejected before memory is allocated") {
  const TemporaryFolder folder;
  fs::create_directory(folder / kTag);
  write_file(folder / kTag / "manifest.json", "[1, 2]");
  CHECK_THROWS_AS(open_hdf5(folder / kTag), UserError);
  const auto with_manifest = [&](const std::string& text) {
    write_file(folder / kTag / "manifest.json", text);
    try {
      const auto reader = open_hdf5(folder / kTag);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(with_manifest(fmt::format(R"({{"content": {}{}, "content_xxh3_64": "0"}})", std::string(200'000, '['),
                                       std::string(200'000, ']'))),
             Contains("manifest.json is damaged") && Contains("nested deeper than 64 levels"));
  CHECK_THAT(with_manifest(R"({"content": {}, "content": {}, "content_xxh3_64": "0"})"),
             Contains("manifest.json is damaged") && Contains("key content appears twice"));
  fs::resize_file(folder / kTag / "manifest.json", uintmax_t{1} << 40);  // sparse
  CHECK_THROWS_AS(open_hdf5(folder / kTag), UserError);
  CHECK_THROWS_AS(open_hdf5(folder / "absent"), UserError);
}

}  // namespace mpzero::io
