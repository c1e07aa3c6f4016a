// pytorch_model.bin: what write_torch_weights and torch.save write, and what is refused.

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/torch_save/pickle_writer.hpp"
#include "io/torch_save/zip_writer.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/safetensors.hpp"
#include "io/weights/torch_weights.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

class Counting final : public ParameterSource {
 public:
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>((begin + static_cast<int64_t>(i + parameter.name.size())) % 128);
    }
  }
};

const std::vector<ParameterSpec> kTensors = {{"a.weight", {30, 7}}, {"bb.weight", {13}}, {"ccc.weight", {5, 4}}};

std::vector<float> values_of(const ParameterSource& source, const ParameterSpec& parameter) {
  std::vector<float> values(static_cast<size_t>(parameter.numel()));
  source.read(parameter, 0, values);
  return values;
}

// Flips a byte of the first storage, which the directory's checksum covers.
void damage(const fs::path& file) {
  std::string bytes = read_file(file);
  const std::vector<float> values = values_of(Counting(), kTensors[0]);
  const std::string_view wanted(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  const size_t at = bytes.find(wanted);
  REQUIRE(at != std::string::npos);
  bytes[at + 2] = static_cast<char>(bytes[at + 2] ^ 1);
  write_file(file, bytes);
}

}  // namespace

TEST_CASE("pytorch_model.bin and its shards contain the same values as safetensors") {
  const auto type = GENERATE(WeightType::kFloat32, WeightType::kBFloat16);
  const int64_t limit = GENERATE(int64_t{1} << 40, 100);
  const TemporaryFolder folder;
  const std::vector<StoredCheckpoint::Alias> aliases = {{"lm_head.weight", "a.weight"}};
  write_torch_weights(folder.path(), kTensors, aliases, Counting(), limit, type, nullptr);
  CHECK(has_other_weights(folder.path()));
  const FolderWeights weights(folder.path());
  CHECK(weights.warnings().empty());
  CHECK(weights.parameters().size() == 4);
  for (const ParameterSpec& parameter : kTensors) {
    CHECK(values_of(weights, parameter) == values_of(Counting(), parameter));
    CHECK(weights.file_of(parameter).extension() == ".bin");
  }
  CHECK(values_of(weights, {"lm_head.weight", {30, 7}}) == values_of(Counting(), kTensors[0]));
  std::vector<float> part(3);
  weights.read(kTensors[0], 205, part);
  CHECK(part == std::vector<float>{(205 + 8) % 128, (206 + 8) % 128, (207 + 8) % 128});
  SingleProcess alone;
  weights.verify_what_was_read(alone);
  CHECK_THROWS_WITH(weights.check({"a.weight", {7, 30}}), Contains("a.weight") && Contains("[7, 30]"));

  write_safetensors(folder.path(), kTensors, Counting(), limit, nullptr, type);
  CHECK(FolderWeights(folder.path()).file_of(kTensors[0]).extension() == ".safetensors");
}

TEST_CASE("the ranks together detect a changed byte of pytorch_model.bin") {
  const TemporaryFolder folder;
  write_torch_weights(folder.path(), kTensors, {}, Counting(), 100, WeightType::kFloat32, nullptr);
  damage(folder / "pytorch_model-00001-of-00003.bin");
  ThreadGroup group(2);
  const auto errors = group.run([&](ProcessGroup& me) {
    const FolderWeights weights(folder.path());
    std::vector<float> half(105);
    weights.read(kTensors[0], me.rank() * 105, half);
    weights.verify_what_was_read(me);
  });
  for (const std::string& error : errors) {
    CHECK_THAT(error, Contains("pytorch_model-00001-of-00003.bin") && Contains("copy or download"));
    CHECK_THAT(error, !Contains("checkpoint"));
  }
}

TEST_CASE("a file that is not a dict of tensors is refused with its name") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes) {
    write_file(folder / "pytorch_model.bin", bytes);
    CHECK_THROWS_AS(FolderWeights(folder.path()), UserError);
    return message_of([&] { FolderWeights weights(folder.path()); });
  };
  const auto holds_file = Contains((folder / "pytorch_model.bin").string());
  CHECK_THAT(refused("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02"), holds_file && Contains("1.6"));
  CHECK_THAT(refused("PK\x03\x04"), holds_file && Contains("copy or download"));
  CHECK_THAT(refused(""), holds_file);

  const std::string nested = pickle::dump(pickle::dict({{"state_dict", pickle::dict({})}}));
  const TorchZipLayout layout("pytorch_model", nested, std::vector<int64_t>{});
  {
    File file = File::create(folder / "pytorch_model.bin", disk());
    file.resize(layout.file_bytes());
    layout.write_rest(file, {});
  }
  CHECK_THAT(message_of([&] { FolderWeights weights(folder.path()); }),
             holds_file && Contains("state_dict is a dict, expected a tensor") && !Contains("checkpoint"));
  fs::remove(folder / "pytorch_model.bin");
  write_file(folder / "model.h5", "x");
  CHECK_THAT(message_of([&] { FolderWeights weights(folder.path()); }), Contains("model.h5"));
}

}  // namespace mpzero::io
