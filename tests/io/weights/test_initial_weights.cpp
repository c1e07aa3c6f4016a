// The weights of --init_from: what is refused, and the hash that identifies them.

#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/initial_weights.hpp"
#include "io/weights/safetensors.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

// Values that bf16 and F16 represent exactly.
class CountingSource final : public ParameterSource {
 public:
  explicit CountingSource(std::string changed = "", int64_t at = -1) : changed_(std::move(changed)), at_(at) {}
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t element = begin + static_cast<int64_t>(i);
      out[i] = static_cast<float>((element + static_cast<int64_t>(parameter.name.size())) % 128);
      if (parameter.name == changed_ && element == at_) out[i] = -out[i] - 1;
    }
  }

 private:
  std::string changed_;
  int64_t at_;
};

// Parameters of more than one block, which ranks split anywhere.
const std::vector<UnitSpec> kUnits = {
    {"embedding", {{"embed", {700, 1000}}}}, {"layers.0", {{"q", {30, 7}}, {"norm", {13}}}}, {"head", {{"last", {1}}}}};

std::vector<ParameterSpec> parameters_of(const std::vector<UnitSpec>& units) {
  std::vector<ParameterSpec> all;
  for (const UnitSpec& unit : units) all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  return all;
}

// Reads as ZeRO's ranks do, each its shard of every unit. Returns the hash, the same on all of them, or the error.
std::string hash_over_ranks(const fs::path& folder, const std::vector<UnitSpec>& units, int ranks, Split split,
                            bool all_read_all = false) {
  ThreadGroup group(ranks);
  std::vector<std::string> hashes(static_cast<size_t>(ranks));
  const auto errors = group.run([&](ProcessGroup& me) {
    const FolderWeights source(folder);
    const InitialWeights weights(source, WeightType::kFloat32);
    for (const UnitSpec& unit : units) {
      const UnitShard shard =
          all_read_all ? UnitShard{&unit, 0, unit.numel()} : shard_of(unit, me.rank(), ranks, split);
      int64_t offset = 0;
      for (const ParameterSpec& parameter : unit.parameters) {
        const int64_t first = std::max(shard.begin, offset);
        const int64_t last = std::min(shard.begin + shard.count, offset + parameter.numel());
        std::vector<float> out(static_cast<size_t>(std::max<int64_t>(0, last - first)));
        if (!out.empty()) weights.read(parameter, first - offset, out);
        offset += parameter.numel();
      }
    }
    hashes[static_cast<size_t>(me.rank())] = weights.hash(units, !all_read_all || me.rank() == 0, me);
  });
  for (const std::string& error : errors) {
    if (!error.empty()) return error;
  }
  for (const std::string& hash : hashes) CHECK(hash == hashes.front());
  return hashes.front();
}

std::string written_hash(const ParameterSource& source, int64_t max_shard_bytes = 5'000'000'000,
                         WeightType type = WeightType::kFloat32,
                         std::vector<ParameterSpec> order = parameters_of(kUnits)) {
  const TemporaryFolder folder;
  write_safetensors(folder.path(), order, source, max_shard_bytes, nullptr, type);
  return hash_over_ranks(folder.path(), kUnits, 2, Split::kEven);
}

// Writes one F32, BF16 or F16 tensor "w" of [2, 3] whose element [1, 2] has these bits.
void write_with(const fs::path& folder, const std::string& dtype, uint32_t bits) {
  const size_t unit = dtype == "F32" ? 4 : 2;
  const std::string header =
      nlohmann::json{{"w", {{"dtype", dtype}, {"shape", {2, 3}}, {"data_offsets", {0, 6 * unit}}}}}.dump();
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header + std::string(6 * unit, '\1');
  std::memcpy(bytes.data() + bytes.size() - unit, &bits, unit);
  write_file(folder / "model.safetensors", bytes);
}

std::string error_of(const std::string& dtype, uint32_t bits, WeightType type) {
  const TemporaryFolder folder;
  write_with(folder.path(), dtype, bits);
  const FolderWeights source(folder.path());
  const InitialWeights weights(source, type);
  std::vector<float> out(4);
  // Shards begin anywhere.
  const std::string error = message_of([&] { weights.read({"w", {2, 3}}, 2, out); });
  if (!error.empty()) {
    CHECK_THROWS_AS(weights.read({"w", {2, 3}}, 2, out), UserError);
    CHECK_THAT(error, Contains("tensor w of " + (folder / "model.safetensors").string()) && Contains("[1, 2]"));
    CHECK(message_of([&] { weights.read({"w", {2, 3}}, 0, out); }) == "");
  }
  return error;
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

}  // namespace

TEST_CASE("NaN and infinity are refused with tensor, file and index, in every dtype") {
  const WeightType type = GENERATE(WeightType::kFloat32, WeightType::kBFloat16);
  for (const uint32_t nan : {0x7FC00000U, 0x7F800001U, 0xFFFFFFFFU})
    CHECK_THAT(error_of("F32", nan, type), Contains("is NaN at"));
  CHECK_THAT(error_of("F32", 0x7F800000U, type), Contains("is inf"));
  CHECK_THAT(error_of("F32", 0xFF800000U, type), Contains("is -inf"));
  CHECK_THAT(error_of("BF16", 0x7FC0U, type), Contains("is NaN at"));
  CHECK_THAT(error_of("BF16", 0xFF80U, type), Contains("is -inf"));
  CHECK_THAT(error_of("F16", 0x7C01U, type), Contains("is NaN at"));
  CHECK_THAT(error_of("F16", 0xFC00U, type), Contains("is -inf"));
  CHECK(error_of("BF16", 0xFF7FU, type) == "");  // the largest
  CHECK(error_of("F16", 0x7BFFU, type) == "");
  CHECK(error_of("F32", 0x80000001U, type) == "");
}

TEST_CASE("a value that rounds to infinity in bf16 is refused if a run trains in bf16") {
  const float largest = std::numeric_limits<float>::max();
  const uint32_t first_beyond = 0x7F7F8000U;  // halfway between the largest bf16 and 2^128
  REQUIRE(to_bfloat16(std::bit_cast<float>(first_beyond)) == 0x7F80U);
  REQUIRE(to_bfloat16(std::bit_cast<float>(first_beyond - 1)) == 0x7F7FU);
  for (const uint32_t bits : {first_beyond, bits_of(largest), bits_of(-largest)}) {
    CHECK_THAT(error_of("F32", bits, WeightType::kBFloat16), Contains("infinite in bf16") && Contains("--bf16=false"));
    CHECK(error_of("F32", bits, WeightType::kFloat32) == "");
  }
  CHECK(error_of("F32", first_beyond - 1, WeightType::kBFloat16) == "");
}

TEST_CASE("the hash depends on names, shapes and values, not on ranks, files or dtypes") {
  const CountingSource source;
  const TemporaryFolder folder;
  write_safetensors(folder.path(), parameters_of(kUnits), source, 5'000'000'000);
  const std::string hash = hash_over_ranks(folder.path(), kUnits, 1, Split::kEven);
  CHECK(hash.size() == 16);
  for (const int ranks : {2, 3, 7}) {
    CHECK(hash_over_ranks(folder.path(), kUnits, ranks, Split::kEven) == hash);
    CHECK(hash_over_ranks(folder.path(), kUnits, ranks, Split::kRankZeroHoldsAll) == hash);
    CHECK(hash_over_ranks(folder.path(), kUnits, ranks, Split::kEven, /*all_read_all=*/true) == hash);
  }
  CHECK(written_hash(source, 100) == hash);
  CHECK(written_hash(source, 5'000'000'000, WeightType::kBFloat16) == hash);
  auto reversed = parameters_of(kUnits);
  std::reverse(reversed.begin(), reversed.end());
  CHECK(written_hash(source, 5'000'000'000, WeightType::kFloat32, reversed) == hash);

  for (const int64_t at : {0, 262'143, 262'144, 699'999}) CHECK(written_hash(CountingSource("embed", at)) != hash);
  CHECK(written_hash(CountingSource("last", 0)) != hash);
  // Two parameters whose values are swapped.
  CHECK(written_hash(CountingSource("q", 3)) != written_hash(CountingSource("q", 4)));
  std::vector<UnitSpec> flat = kUnits;
  flat[0].parameters[0].shape = {1000, 700};
  const TemporaryFolder other;
  write_safetensors(other.path(), parameters_of(flat), source, 5'000'000'000);
  CHECK(hash_over_ranks(other.path(), flat, 2, Split::kEven) != hash);
}

TEST_CASE("weights are hashed without a model, in parts that cover each block once") {
  const TemporaryFolder folder;
  write_safetensors(folder.path(), parameters_of(kUnits), CountingSource(), 5'000'000'000);
  const std::string hash = hash_over_ranks(folder.path(), kUnits, 1, Split::kEven);
  const int ranks = GENERATE(1, 2, 5);
  ThreadGroup group(ranks);
  const auto errors = group.run([&](ProcessGroup& me) {
    const FolderWeights source(folder.path());
    if (hash_of(source, kUnits, me) != hash) throw_failure("another hash");
  });
  CHECK(errors == std::vector<std::string>(static_cast<size_t>(ranks)));
}

TEST_CASE("weights that were not read in full have no hash") {
  const TemporaryFolder folder;
  write_safetensors(folder.path(), parameters_of(kUnits), CountingSource(), 5'000'000'000);
  const FolderWeights source(folder.path());
  const InitialWeights weights(source, WeightType::kFloat32);
  std::vector<float> out(13);
  weights.read({"norm", {13}}, 0, out);
  SingleProcess alone;
  CHECK_THROWS_AS(weights.hash(kUnits, true, alone), Failure);
}

}  // namespace mpzero::io
