#include <filesystem>
#include <functional>

#include "app/tokens/encoder_checks.hpp"
#include "base/error.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

namespace mpzero {
namespace {

using namespace io::testing;

model::ModelConfig t5() {
  return model::ModelConfig::from_file(std::filesystem::path(MPZERO_SOURCE_DIR) / "tests/model/fixtures/t5.json");
}

model::ModelConfig decoder() {
  return model::ModelConfig::from_file(std::filesystem::path(MPZERO_SOURCE_DIR) / "configs/models/qwen3_tiny.json");
}

Settings settings_of(int64_t source_length) {
  Settings settings;
  settings.seq_length = 5;
  settings.source_length = source_length;
  return settings;
}

std::string error(const Settings& config, const model::ModelConfig& model) {
  return message_of<UserError>([&] { check_encoder(config, model); });
}

}  // namespace

TEST_CASE("T5 requires a source length, and decoder-only models reject it") {
  CHECK(error(settings_of(3), t5()).empty());
  CHECK(error(settings_of(0), decoder()).empty());
  for (const int64_t length : {0, 5}) CHECK(lacks(error(settings_of(length), t5()), {"--source_length"}).empty());
  CHECK(lacks(error(settings_of(3), decoder()), {"--source_length 3", "qwen3"}).empty());
}

TEST_CASE("T5 refuses unsupported settings") {
  const auto refused = [](const std::function<void(Settings&)>& change) {
    Settings config = settings_of(3);
    change(config);
    return error(config, t5());
  };
  CHECK(lacks(refused([](Settings& config) { config.document_mask = true; }), {"--document_mask"}).empty());
  CHECK(lacks(refused([](Settings& config) { config.fp8 = "rowwise"; }), {"--fp8"}).empty());
}

TEST_CASE(
    "a token file for T5 has pairs with the configured source length and padding, and a decoder-only model rejects "
    "pairs") {
  const TemporaryFolder folder;
  write_packed_file(folder / "pairs.h5", counting_tokens(11), 100, {0, 5, 10, 11}, std::vector<uint8_t>(11, 1), 5,
                    /*source_length=*/3);
  write_token_file(folder / "text.h5", counting_tokens(11), 100);
  const auto error_of = [&](const char* file, const Settings& config, const model::ModelConfig& model) {
    return message_of<UserError>([&] { check_pairs(io::TokenDataset(folder / file, 5), config, model); });
  };
  CHECK(error_of("pairs.h5", settings_of(3), t5()).empty());
  CHECK(error_of("text.h5", settings_of(0), decoder()).empty());
  CHECK(lacks(error_of("pairs.h5", settings_of(2), t5()), {"pairs.h5", "--source_length 3"}).empty());
  CHECK(lacks(error_of("text.h5", settings_of(3), t5()), {"text.h5", "--format pairs"}).empty());
  CHECK(lacks(error_of("pairs.h5", settings_of(0), decoder()), {"pairs.h5"}).empty());
  model::ModelConfig padded = t5();
  padded.t5->pad_token_id = 2;
  CHECK(lacks(error_of("pairs.h5", settings_of(3), padded), {"pairs.h5", "pad_token_id"}).empty());
}

}  // namespace mpzero
