#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/safetensors.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
using nlohmann::json;
namespace {

// Values that depend on name and position, including NaN payloads.
class PatternSource final : public ParameterSource {
 public:
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] =
          std::bit_cast<float>(bits_at(parameter.name.size(), StateKind::kMaster, begin + static_cast<int64_t>(i), 0));
    }
  }
};

std::string file_of(const json& header, size_t data_bytes) {
  const std::string text = header.is_string() ? header.get<std::string>() : header.dump();
  const uint64_t length = text.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text + std::string(data_bytes, '\1');
}

json tensor(const char* dtype, std::vector<int64_t> shape, int64_t begin, int64_t end) {
  return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, end}}};
}

std::string open_error(const fs::path& folder, const std::string& bytes) {
  write_file(folder / "model.safetensors", bytes);
  CHECK_THROWS_AS(FolderWeights(folder), UserError);
  return message_of([&] { FolderWeights source(folder); });
}

}  // namespace

TEST_CASE("weights are read bit for bit, from one file or from shards") {
  const std::vector<ParameterSpec> parameters = {
      {"a", {3, 5}}, {"bb", {1'500'000}}, {"ccc", {7}}, {"dddd", {}}, {"eeeee", {2, 3, 4}}};
  const int64_t limit = GENERATE(int64_t{1} << 40, 1'000'000, 100);
  const TemporaryFolder folder;
  const PatternSource pattern;
  int64_t last = 0;
  const auto names = write_safetensors(folder.path(), parameters, pattern, limit, [&](int64_t done, int64_t total) {
    CHECK(done > last);
    CHECK(done <= total);
    last = done;
  });
  CHECK(last == 4 * (15 + 1'500'000 + 7 + 1 + 24));
  if (limit > 6'000'100) {
    CHECK(names == std::vector<std::string>{"model.safetensors"});
  } else if (limit == 1'000'000) {
    CHECK(names == std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                            "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  } else {
    // 60 B | 6 MB | 28 + 4 B | 96 B
    CHECK(names.size() == 5);
  }
  const FolderWeights source(folder.path());
  CHECK(std::ranges::equal(source.parameters(), parameters));
  for (const ParameterSpec& parameter : parameters) {
    CHECK(source.contains(parameter.name));
    const int64_t begin = parameter.numel() / 3;
    std::vector<float> wanted(static_cast<size_t>(parameter.numel() - begin)), found(wanted.size());
    pattern.read(parameter, begin, wanted);
    source.read(parameter, begin, found);
    CHECK(std::memcmp(wanted.data(), found.data(), wanted.size() * sizeof(float)) == 0);
  }
  CHECK_FALSE(source.contains("f"));
}

TEST_CASE("16-bit dtypes are converted to fp32 exactly") {
  CHECK(from_float16(0x3C00) == 1.0F);
  CHECK(from_float16(0xC100) == -2.5F);
  CHECK(from_float16(0x7BFF) == 65504.0F);
  CHECK(from_float16(0x0001) == 0x1p-24F);
  CHECK(from_float16(0x83FF) == -0x1.FF8p-15F);
  CHECK(std::signbit(from_float16(0x8000)));
  CHECK(from_float16(0xFC00) == -std::numeric_limits<float>::infinity());
  CHECK(std::bit_cast<uint32_t>(from_float16(0x7E01)) == 0x7FC02000U);
  CHECK(from_bfloat16(0x3FC0) == 1.5F);
  CHECK(std::bit_cast<uint32_t>(from_bfloat16(0xFFA5)) == 0xFFA50000U);

  const TemporaryFolder folder;
  std::string bytes = file_of({{"h", tensor("F16", {2}, 0, 4)}, {"b", tensor("BF16", {2}, 4, 8)}}, 0);
  const uint16_t values[] = {0x3C00, 0xC100, 0x3FC0, 0x8000};
  bytes.append(reinterpret_cast<const char*>(values), sizeof values);
  write_file(folder / "model.safetensors", bytes);
  const FolderWeights source(folder.path());
  float out[2];
  source.read({"h", {2}}, 0, out);
  CHECK((out[0] == 1.0F && out[1] == -2.5F));
  source.read({"b", {2}}, 1, std::span(out).first(1));
  CHECK((out[0] == 0.0F && std::signbit(out[0])));
}

TEST_CASE("an invalid header is refused with file and tensor") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.safetensors";
  const std::string intact = file_of({{"w", tensor("F32", {4}, 0, 16)}, {"v", tensor("F32", {1}, 16, 20)}}, 20);
  write_file(path, intact);
  CHECK(message_of([&] { FolderWeights source(folder.path()); }) == "");
  for (size_t size = 0; size < intact.size(); ++size) {
    CAPTURE(size);
    REQUIRE_THAT(open_error(folder.path(), intact.substr(0, size)), Contains(path.string()));
  }
  std::string huge = intact;
  huge[7] = '\x7F';  // a header of 2^62 bytes
  CHECK_THAT(open_error(folder.path(), huge), Contains(path.string()) && Contains("truncated"));
  CHECK_THAT(open_error(folder.path(), file_of("[1]", 0)), Contains("not a JSON object"));
  CHECK_THAT(open_error(folder.path(), file_of("{\"w\"", 0)),
             Contains("the header of " + path.string()) && Contains("not valid JSON"));
  CHECK_THAT(open_error(folder.path(), file_of(std::string(200'000, '['), 0)),
             Contains("the header of " + path.string()) && Contains("nested deeper than 64 levels"));
  const std::string entry = tensor("F32", {1}, 0, 4).dump();
  CHECK_THAT(open_error(folder.path(), file_of("{\"w\":" + entry + ",\"w\":" + entry + "}", 4)),
             Contains("the header of " + path.string() + ": key w appears twice"));

  const std::vector<std::pair<json, const char*>> wrong = {
      {{{"w", tensor("F32", {4}, 0, 16)}, {"v", tensor("F32", {2}, 12, 20)}}, "overlaps"},
      {{{"w", tensor("F32", {5}, 4, 24)}}, "truncated"},
      {{{"w", tensor("F32", {5}, 0, 16)}}, "but 16 bytes"},
      {{{"w", tensor("BF16", {4}, 0, 16)}}, "but 16 bytes"},
      {{{"w", tensor("F32", {-4}, 0, 16)}}, "but 16 bytes"},
      {{{"w", tensor("F32", {int64_t{1} << 32, int64_t{1} << 32}, 0, 0)}}, "but 0 bytes"},
      {{{"w", tensor("F32", {4}, 16, 0)}}, "invalid offsets"},
      {{{"w", tensor("F32", {4}, -16, 0)}}, "data_offsets"},
      {{{"w", {{"dtype", "F32"}, {"shape", {4}}}}}, "lacks"},
      {{{"w", {{"dtype", 32}, {"shape", {4}}, {"data_offsets", {0, 16}}}}}, "lacks"},
      {{{"w", 3}}, "lacks"},
      // The safetensors library refuses these, too.
      {{{"w", tensor("F32", {1}, 0, 4)}, {"v", tensor("F32", {3}, 8, 20)}}, "bytes 4 to 8"},
      {{{"w", tensor("F32", {4}, 4, 20)}}, "bytes 0 to 4"},
      {{{"w", tensor("F32", {4}, 0, 16)}}, "bytes 16 to 20"},
      {json::object(), "bytes 0 to 20"},
      {{{"w", tensor("F13", {5}, 0, 20)}}, "type F13"},
      {{{"w", tensor("I64", {2}, 0, 20)}}, "but 20 bytes"},
      {{{"w", tensor("F8_E4M3", {19}, 0, 20)}}, "but 20 bytes"},
      {{{"w", tensor("F4", {41}, 0, 20)}}, "but 20 bytes"},
      {{{"__metadata__", {{"format", 1}}}, {"w", tensor("F32", {5}, 0, 20)}}, "__metadata__"},
      {{{"__metadata__", "pt"}, {"w", tensor("F32", {5}, 0, 20)}}, "__metadata__"},
  };
  for (const auto& [header, reason] : wrong) {
    CHECK_THAT(open_error(folder.path(), file_of(header, 20)), Contains(path.string()) && Contains(reason));
  }
}

TEST_CASE("every dtype has the same size as in the safetensors library") {
  const std::vector<std::pair<const char*, int64_t>> bytes_of_eight = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
  const TemporaryFolder folder;
  for (const auto& [dtype, bytes] : bytes_of_eight) {
    CAPTURE(dtype);
    write_file(folder / "model.safetensors",
               file_of({{"w", tensor(dtype, {2, 4}, 0, bytes)}, {"z", tensor(dtype, {0}, bytes, bytes)}},
                       static_cast<size_t>(bytes)));
    CHECK(message_of([&] { FolderWeights source(folder.path()); }) == "");
  }
}

TEST_CASE("a tensor with a different shape or dtype than the model's is reported with file and shapes") {
  const TemporaryFolder folder;
  write_file(folder / "model.safetensors",
             file_of({{"w", tensor("F32", {2, 3}, 0, 24)}, {"i", tensor("I64", {3}, 24, 48)}}, 48));
  const FolderWeights source(folder.path());
  std::vector<float> out(6);
  CHECK_THAT(message_of([&] { source.read({"w", {3, 2}}, 0, out); }),
             Contains("tensor w") && Contains("[2, 3]") && Contains("[3, 2]") && Contains("model.safetensors"));
  CHECK_THAT(message_of([&] { source.read({"x", {6}}, 0, out); }),
             Contains("tensor x") && Contains(folder.path().string()));
  CHECK_THAT(message_of([&] { source.read({"i", {3}}, 0, std::span(out).first(3)); }), Contains("I64"));
  CHECK_THROWS_AS(source.read({"w", {2, 3}}, 1, out), Failure);
  // Before anything is read.
  CHECK_THAT(message_of([&] { source.check({"w", {3, 2}}); }), Contains("[2, 3]"));
  CHECK_THAT(message_of([&] { source.check({"x", {6}}); }), Contains("tensor x"));
  CHECK_THAT(message_of([&] { source.check({"i", {3}}); }), Contains("I64") && Contains("convert it to F32"));
  CHECK(message_of([&] { source.check({"w", {2, 3}}); }) == "");
}

TEST_CASE("an index must agree with its shards") {
  const TemporaryFolder folder;
  CHECK_THAT(message_of([&] { FolderWeights source(folder.path()); }), Contains("pytorch_model.bin"));
  write_file(folder / "a.safetensors", file_of({{"w", tensor("F32", {1}, 0, 4)}}, 4));
  const auto with_index = [&](const std::string& text) {
    write_file(folder / "model.safetensors.index.json", text);
    return message_of([&] { FolderWeights source(folder.path()); });
  };
  CHECK(with_index(R"({"weight_map": {"w": "a.safetensors"}})") == "");
  CHECK_THAT(with_index(R"({"weight_map": {"w": "a.safetensors", "v": "a.safetensors"}})"),
             Contains("tensor v") && Contains("a.safetensors"));
  CHECK_THAT(with_index(R"({"weight_map": {"w": "b.safetensors"}})"), Contains("b.safetensors"));
  // And the shards with the index.
  write_file(folder / "c.safetensors", file_of({{"v", tensor("F32", {1}, 0, 4)}, {"w", tensor("F32", {1}, 4, 8)}}, 8));
  CHECK_THAT(with_index(R"({"weight_map": {"w": "c.safetensors"}})"),
             Contains("tensor v") && Contains("c.safetensors") && Contains("model.safetensors.index.json"));
  CHECK_THAT(with_index(R"({"weight_map": {"w": "a.safetensors", "v": "c.safetensors"}})"),
             Contains("tensor w") && Contains("c.safetensors") && Contains("model.safetensors.index.json"));
  CHECK_THAT(with_index(R"({"weight_map": {"w": "../a.safetensors"}})"), Contains("not a file in its folder"));
  CHECK_THAT(with_index(R"({"weight_map": 3})"), Contains("weight_map"));
  CHECK_THAT(with_index("{"), Contains("model.safetensors.index.json, line 1, column 2: not valid JSON"));
  CHECK_THAT(with_index(R"({"weight_map": {"w": "a.safetensors", "w": "b.safetensors"}})"),
             Contains("model.safetensors.index.json: key weight_map.w appears twice"));
  CHECK_THAT(with_index(std::string(200'000, '[')), Contains("nested deeper than 64 levels"));
}

TEST_CASE("harmless contradictions in a folder of weights cause warnings") {
  const TemporaryFolder folder;
  const std::string shard = file_of({{"w", tensor("F32", {1}, 0, 4)}}, 4);
  write_file(folder / "a.safetensors", shard);
  const auto warnings_of = [](const fs::path& path) {
    const FolderWeights source(path);
    return std::vector<std::string>(source.warnings().begin(), source.warnings().end());
  };
  const auto with_index = [&](const std::string& text) {
    write_file(folder / "model.safetensors.index.json", text);
    return warnings_of(folder.path());
  };
  CHECK(with_index(R"({"metadata": {"total_size": 4}, "weight_map": {"w": "a.safetensors"}})").empty());
  CHECK(with_index(R"({"metadata": {"total_size": 4.0}, "weight_map": {"w": "a.safetensors"}})").empty());
  CHECK(with_index(R"({"metadata": {}, "weight_map": {"w": "a.safetensors"}})").empty());
  for (const std::string size : {"8", "-4", "\"4\"", "[]"}) {
    const auto warnings =
        with_index(R"({"metadata": {"total_size": )" + size + R"(}, "weight_map": {"w": "a.safetensors"}})");
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0],
               Contains("model.safetensors.index.json") && Contains("total_size " + size) && Contains(" 4 "));
  }
  write_file(folder / "model.safetensors", shard);
  const auto warnings = warnings_of(folder.path());
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("model.safetensors.index.json") && Contains("is ignored"));
}

}  // namespace mpzero::io
