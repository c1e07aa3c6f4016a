#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/plan/calibration.hpp"
#include "app/plan/calibration_file.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero::plan {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using nlohmann::json;

const fs::path kFile = MPZERO_SOURCE_DIR "/tests/app/plan/roofline_calibration.json";
constexpr const char* kRemedy = "; fix the file, or recreate it with `mpzero plan --calibrate`";

class Folder {
 public:
  Folder() { fs::create_directories(path_); }
  ~Folder() { fs::remove_all(path_); }
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_ = fs::temp_directory_path() / ("mpzero_calibration_" + std::to_string(getpid()));
};

json small() {
  return {{"format_version", 1},
          {"device", "a device"},
          {"source", "made by hand"},
          {"error", 0.1},
          {"matmuls",
           {{{"rows", 2},
             {"columns", 3},
             {"inner", 4},
             {"layout", "TN"},
             {"type", "bf16"},
             {"out", "fp32"},
             {"adds", "matrix"},
             {"us", 5}}}},
          {"attention", json::array()},
          {"kernels", {{{"kernel", "adamw"}, {"type", "fp32"}, {"bytes", 100}, {"us", 10}}}},
          {"copies", {{"on_device_gb_per_second", 4000}, {"to_device_gb_per_second", 50}}},
          {"launch_us", 7}};
}

}  // namespace

TEST_CASE("a calibration is unchanged after writing and reading") {
  const Folder folder;
  const CalibrationData data = read_calibration(kFile);
  write_calibration(folder.path() / "again.json", data);
  const CalibrationData again = read_calibration(folder.path() / "again.json");
  CHECK(to_json(again) == to_json(data));
  CHECK(again.matmuls.size() == data.matmuls.size());
  CHECK(again.matmuls.back().seconds == Approx(data.matmuls.back().seconds));
  CHECK(again.names == data.names);
  CHECK(again.versions == data.versions);
  CHECK(again.full_step.size() == 6);
  CHECK(again.copies.both_ways == Approx(101e9));
}

TEST_CASE("reads the fields of a calibration") {
  const Folder folder;
  const CalibrationData data = read_calibration(folder.write("small.json", small().dump()));
  CHECK(data.names == std::vector<std::string>{"a device"});
  CHECK(data.gpu);
  REQUIRE(data.matmuls.size() == 1);
  const auto& matmul = data.matmuls.front();
  CHECK(matmul.shape ==
        model::MatmulShape{.rows = 2, .columns = 3, .inner = 4, .a_transposed = true, .out_type = at::kFloat});
  CHECK(matmul.adds);
  CHECK(matmul.seconds == Approx(5e-6));
  CHECK(data.kernels.at("adamw").front().seconds == Approx(1e-5));
  CHECK(data.copies.on_device == Approx(4e12));
  CHECK(data.copies.both_ways == 0);
  CHECK(data.launch_seconds == Approx(7e-6));
}

TEST_CASE("text that would move a terminal's cursor is refused") {
  const Folder folder;
  for (const char* key : {"device", "source", "date"}) {
    for (const char* text : {"\x1b[2J", "two\nlines", "\x7f"}) {
      json file = small();
      file[key] = text;
      const std::string path = folder.write("moving.json", file.dump());
      CHECK_THAT(error_from([&] { read_calibration(path); }),
                 Catch::Contains(std::string(key) + " must be a printable string"));
    }
  }
  json file = small();
  file["names"] = {"a device", "\x1b[2J"};
  CHECK_THAT(error_from([&] { read_calibration(folder.write("moving.json", file.dump())); }),
             Catch::Contains("names must be a list of printable strings"));
}

TEST_CASE("a file can scale the rates of another file") {
  const Folder folder;
  folder.write("small.json", small().dump());
  const json scaled{{"format_version", 1},
                    {"scales", "small.json"},
                    {"device", "half a device"},
                    {"source", "data sheets"},
                    {"error", 0.3},
                    {"rates", {{"matmuls", 0.5}, {"attention", 0.5}, {"memory", 0.25}, {"launch_us", 4}}},
                    {"copies", {{"from_device_gb_per_second", 20}}}};
  const CalibrationData data = read_calibration(folder.write("half.json", scaled.dump()));
  CHECK(data.device == "half a device");
  CHECK(data.error == 0.3);
  // 4 us of launch do not scale: 4 + 1 / 0.5, 4 + 6 / 0.25.
  CHECK(data.matmuls.front().seconds == Approx(6e-6));
  CHECK(data.kernels.at("adamw").front().seconds == Approx(28e-6));
  CHECK(data.copies.on_device == Approx(1e12));
  CHECK(data.copies.from_device == Approx(20e9));
  // Another machine's links and host are not this one's.
  CHECK(data.copies.to_device == 0);
  CHECK(data.launch_seconds == Approx(7e-6));
}

TEST_CASE("implausible times and rates are refused with their key") {
  const Folder folder;
  const auto error = [&](const char* place, double value) {
    json file = small();
    file[json::json_pointer(place)] = value;
    return error_from([&] { Calibration::from_file(folder.write("wild.json", file.dump())); });
  };
  for (const double us : {5e-324, 1e-9, 1e300}) {
    CHECK_THAT(error("/matmuls/0/us", us),
               Contains("wild.json: matmuls[0].us must be from 0.001 to 1e+09") && Contains(kRemedy));
    CHECK_THAT(error("/kernels/0/us", us), Contains("kernels[0].us must be from"));
    CHECK_THAT(error("/launch_us", us), Contains("launch_us must be from"));
    CHECK_THAT(error("/copies/on_device_gb_per_second", us),
               Contains("copies.on_device_gb_per_second must be from 0.001 to 1e+06"));
  }
  CHECK_THAT(error("/host", 1), Contains("host must be an object"));
  CHECK(error("/matmuls/0/us", 1e-3) == "no error");
  CHECK(error("/matmuls/0/us", 1e9) == "no error");
}

TEST_CASE("a file that is not a calibration is refused in one sentence") {
  const Folder folder;
  const auto error = [&](const std::string& text) {
    const fs::path path = folder.write("bad.json", text);
    std::string sentence = error_from([&] { read_calibration(path); });
    const std::string name = path.string();
    REQUIRE(sentence.starts_with(name));
    return sentence.substr(name.size());
  };
  const auto changed = [&](const std::string& pointer, const json& value) {
    json file = small();
    file[json::json_pointer(pointer)] = value;
    return error(file.dump());
  };
  const auto without = [&](const std::string& key) {
    json file = small();
    file.erase(key);
    return error(file.dump());
  };
  CHECK(error_from([&] { read_calibration(folder.path() / "none.json"); }) ==
        (folder.path() / "none.json").string() +
            ": the calibration cannot be read; check the path and its permissions");
  CHECK(error("") != "");
  CHECK(error("{\"a\": 1, \"a\": 2}") != "");
  CHECK(error("[]") == std::string(": the file must be an object") + kRemedy);
  CHECK(without("format_version") == std::string(": the key format_version is missing") + kRemedy);
  CHECK(changed("/format_version", 2) == std::string(": format_version must be 1, not 2") + kRemedy);
  CHECK(without("device") == std::string(": the key device is missing") + kRemedy);
  CHECK(without("matmuls") == std::string(": the key matmuls is missing") + kRemedy);
  CHECK(changed("/error", 1.5) == std::string(": error must be from 1e-06 to 0.999") + kRemedy);
  CHECK(changed("/matmuls", 5) == std::string(": matmuls must be a list") + kRemedy);
  CHECK(changed("/matmuls/0", 5) == std::string(": matmuls[0] must be an object") + kRemedy);
  CHECK(changed("/matmuls/0/us", -1) == std::string(": matmuls[0].us must be a number above 0") + kRemedy);
  CHECK(changed("/matmuls/0/us", "fast") == std::string(": matmuls[0].us must be a number above 0") + kRemedy);
  CHECK(changed("/matmuls/0/rows", 1.5) == std::string(": matmuls[0].rows must be an integer above 0") + kRemedy);
  CHECK(changed("/matmuls/0/layout", "TT") == std::string(": matmuls[0].layout must be one of NN, NT, TN") + kRemedy);
  CHECK(changed("/matmuls/0/rwos", 1) == std::string(": unknown key matmuls[0].rwos") + kRemedy);
  CHECK(changed("/kernels/0/type", "fp8") == std::string(": kernels[0].type must be one of bf16, fp32") + kRemedy);
  CHECK(changed("/copies/on_device_gb_per_second", -4) ==
        std::string(": copies.on_device_gb_per_second must be a number above 0") + kRemedy);
  CHECK(changed("/names", "H200") == std::string(": names must be a list of printable strings") + kRemedy);
  CHECK(changed("/gpu", "yes") == std::string(": gpu must be true or false") + kRemedy);
  CHECK(changed("/versions", {{"torch", 2}}) ==
        std::string(": versions must be an object of printable strings") + kRemedy);
  folder.write("small.json", small().dump());
  json scaled = small();
  scaled["scales"] = "small.json";
  scaled["rates"] = {{"matmuls", 0.5}, {"attention", 0.5}, {"memory", 0.25}, {"launch_us", 4}};
  CHECK(error(scaled.dump()).starts_with(": unknown key "));  // times of its own as well
  for (const char* key : {"matmuls", "attention", "kernels"}) scaled.erase(key);
  scaled["collectives"] = json::array();  // between ranks on CPUs; a scaled file describes a GPU
  CHECK(error(scaled.dump()) == std::string(": unknown key collectives") + kRemedy);
  scaled.erase("collectives");
  scaled["scales"] = "../elsewhere.json";
  CHECK(error(scaled.dump()) == std::string(": scales must be another file in this folder") + kRemedy);
  scaled["scales"] = "bad.json";
  CHECK(error(scaled.dump()) == std::string(": scales must be another file in this folder") + kRemedy);
}

TEST_CASE("FP8 matmuls have a separate list, which older files lack") {
  const Folder folder;
  CHECK_FALSE(Calibration::from_file(folder.write("before.json", small().dump())).has_fp8());
  CalibrationData data = read_calibration(folder.path() / "before.json");
  model::MatmulShape shape{.rows = 64,
                           .columns = 32,
                           .inner = 16,
                           .b_transposed = true,
                           .type = at::kFloat8_e5m2,
                           .out_type = at::kFloat,
                           .fp8 = model::Fp8Shape{.rowwise = true, .fast_accumulation = false}};
  data.matmuls.push_back({.shape = shape, .adds = true, .seconds = 5e-6});
  shape.type = at::kFloat8_e4m3fn;
  shape.bias = true;
  shape.out_type = at::kBFloat16;
  shape.fp8 = model::Fp8Shape{.rowwise = false, .fast_accumulation = true};
  data.matmuls.push_back({.shape = shape, .adds = false, .seconds = 7e-6});
  data.kernels["fp8_cast_rowwise"].push_back({at::kBFloat16, 1e6, 2e-6});
  write_calibration(folder.path() / "after.json", data);
  const CalibrationData again = read_calibration(folder.path() / "after.json");
  REQUIRE(again.matmuls.size() == data.matmuls.size());
  for (size_t i = data.matmuls.size() - 2; i < data.matmuls.size(); ++i) {
    CHECK(again.matmuls[i].shape == data.matmuls[i].shape);
    CHECK(again.matmuls[i].adds == data.matmuls[i].adds);
    CHECK(again.matmuls[i].seconds == Approx(data.matmuls[i].seconds));
  }
  CHECK(Calibration::from_file(folder.path() / "after.json").has_fp8());
  json file = json::parse(to_json(data));
  const auto error = [&](const char* key, const json& value) {
    json changed = file;
    changed["fp8_matmuls"][0][key] = value;
    const fs::path path = folder.write("bad.json", changed.dump());
    return error_from([&] { read_calibration(path); }).substr(path.string().size());
  };
  CHECK(error("type", "bf16") == std::string(": fp8_matmuls[0].type must be one of e4m3, e5m2") + kRemedy);
  CHECK(error("scaling", "block") ==
        std::string(": fp8_matmuls[0].scaling must be one of tensorwise, rowwise") + kRemedy);
  CHECK(error("fast", 1) == std::string(": fp8_matmuls[0].fast must be true or false") + kRemedy);
}

TEST_CASE("a truncated file is refused in one sentence, wherever it is cut") {
  const Folder folder;
  const std::string text = small().dump();
  for (size_t length = 0; length < text.size(); ++length) {
    const fs::path path = folder.write("cut.json", text.substr(0, length));
    CHECK(error_from([&] { read_calibration(path); }).starts_with(path.string()));
  }
}

}  // namespace mpzero::plan
