#include "base/error.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

constexpr const char* kTag = "tiny-3steps";

}  // namespace

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
  CHECK_THAT(message_of([&] { reader->verify(); }), Contains(second.string()) && Contains("--resume_from_checkpoint"));
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
