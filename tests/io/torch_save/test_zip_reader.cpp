#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/torch_save/pickle_reader.hpp"
#include "io/torch_save/pickle_writer.hpp"
#include "io/torch_save/zip_reader.hpp"
#include "io/torch_save/zip_writer.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

using namespace mpzero;
using namespace mpzero::io;
using namespace mpzero::io::testing;

namespace {

std::span<const std::byte> bytes_of_text(const std::string& text) { return std::as_bytes(std::span(text)); }

pickle::Document parse(const std::string& pickle) { return pickle::read(bytes_of_text(pickle), "test.pt"); }

// A pickle as Python writes it, by hand from pickletools: protocol 2, no memo.
std::string pickled(const std::string& body) { return "\x80\x02" + body + "."; }

// A pickle with one of each kind of value in checkpoints.
std::string rich_pickle() {
  const auto thing = pickle::object("some.module", "Thing", {{"x", pickle::integer(5)}});
  std::vector<std::string> numbers;
  for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{1} << 40, std::numeric_limits<int64_t>::min()}) {
    numbers.push_back(pickle::integer(value));
  }
  numbers.insert(numbers.end(), {pickle::number(-0.25), pickle::boolean(true)});
  return pickle::dump(
      pickle::dict({{"none", pickle::none()},
                    {"numbers", pickle::list(numbers)},
                    {"shapes", pickle::ordered_dict({{"w", pickle::size(std::vector<int64_t>{2, 3})}})},
                    {"tensor", pickle::tensor({.storage = "0", .storage_numel = 8, .offset = 2, .shape = {2, 3}})},
                    {"object", thing}}));
}

// Visits everything that a reader of checkpoints would visit. Only errors of mpzero may be thrown.
void walk(const pickle::Document& document) {
  const pickle::Value root = pickle::root_of(document);
  (void)root.to_json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (const char* key : {"none", "numbers", "shapes", "tensor", "object"}) {
    const auto value = root.find(key);
    if (!value) continue;
    try {
      (void)value->tensor();
    } catch (const Error&) {
    }
    try {
      for (const auto& [name, shape] : value->entries()) (void)shape.integers();
    } catch (const Error&) {
    }
    try {
      (void)value->member("x");
    } catch (const Error&) {
    }
  }
}

}  // namespace

TEST_CASE("a pickle is read as it was written") {
  const pickle::Document document = parse(rich_pickle());
  const pickle::Value root = pickle::root_of(document);
  CHECK(root.at("none").is_none());
  const std::vector<pickle::Value> numbers = root.at("numbers").elements();
  REQUIRE(numbers.size() == 6);
  CHECK(numbers[1].integer() == -1);
  CHECK(numbers[2].integer() == int64_t{1} << 40);
  CHECK(numbers[3].integer() == std::numeric_limits<int64_t>::min());
  CHECK(numbers[4].number() == -0.25);
  CHECK(numbers[5].boolean());
  CHECK(root.at("shapes").at("w").integers() == std::vector<int64_t>{2, 3});
  const pickle::Tensor tensor = root.at("tensor").tensor();
  CHECK(tensor.offset == 2);
  CHECK(tensor.numel == 6);
  CHECK(root.at("object").member("x")->integer() == 5);
}

TEST_CASE("a call in a pickle is not executed, and only its name is kept") {
  // os.system("touch /tmp/x"), as an attacker would pickle it.
  const std::string length("\x0c\0\0\0", 4);
  const pickle::Document document = parse(pickled("cposix\nsystem\nX" + length + "touch /tmp/x\x85R"));
  const pickle::Value root = pickle::root_of(document);
  CHECK(root.kind() == pickle::Kind::kObject);
  const std::string message = message_of([&] { (void)root.integer(); });
  CHECK(message.find("posix system") != std::string::npos);
}

TEST_CASE("DeepSpeed's ZeRO stages are numbers in any pickle encoding") {
  const std::string stages = "cdeepspeed.runtime.zero.config\nZeroStageEnum\n";
  CHECK(pickle::root_of(parse(pickled(stages + "K\x02\x85R"))).integer() == 2);
  const auto by_name = [&](const std::string& name) {
    const std::string length{static_cast<char>(name.size()), 0, 0, 0};
    return pickled("c__builtin__\ngetattr\n" + stages + "X" + length + name + "\x86R");
  };
  CHECK(pickle::root_of(parse(by_name("disabled"))).integer() == 0);
  CHECK(pickle::root_of(parse(by_name("optimizer_states"))).integer() == 1);
  CHECK(pickle::root_of(parse(by_name("gradients"))).integer() == 2);
  CHECK(pickle::root_of(parse(by_name("weights"))).integer() == 3);
  CHECK(pickle::root_of(parse(by_name("__class__"))).kind() == pickle::Kind::kObject);
}

TEST_CASE("invalid pickles are refused with the byte position") {
  using namespace std::string_literals;
  const std::vector<std::string> bad = {
      ""s, "\x80"s, pickled(""), pickled("a"), pickled("N0"), pickled("h\x01"), pickled("}N s"), pickled("t"),
      pickled("X\xff\xff\xff\xffno"), pickled("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), pickled("(NNNu"),
      pickled("cno newline"), pickled("NQ"), pickled("NNR"), "\x80\x09N."s, pickled("\xff"),
      // A dict in place of the tensor's storage.
      pickled("ctorch._utils\n_rebuild_tensor_v2\n(}K\x01))tR")};
  for (const std::string& pickle : bad) {
    const std::string message = message_of([&] { parse(pickle); });
    INFO(pickle);
    CHECK(message.find("test.pt is damaged: its pickle") != std::string::npos);
  }
}

TEST_CASE("a small pickle cannot use much memory, run long or recurse deeply") {
  // Nested lists, deeper than any stack.
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "]";
  for (int i = 1; i < 1'000'000; ++i) deep += "a";
  (void)pickle::root_of(parse(pickled(deep))).to_json();
  // A list that contains itself.
  (void)pickle::root_of(parse(pickled(std::string("]q\x00h\x00"
                                                  "a",
                                                  6))))
      .to_json();
  // Each list holds the previous one twice: 2^1000 leaves if they are expanded.
  std::string bomb = "]q" + std::string(1, '\0');
  for (int i = 0; i < 1000; ++i)
    bomb += "0](h" + std::string(1, '\0') + "h" + std::string(1, '\0') + "eq" + std::string(1, '\0');
  (void)pickle::root_of(parse(pickled(bomb))).to_json();
  // torch.Size of the same long list many times.
  std::string copies = "(";
  for (int i = 0; i < 1'000'000; ++i) copies += "N";
  copies += "lq" + std::string(1, '\0') + "0";
  for (int i = 0; i < 1000; ++i) copies += "ctorch\nSize\nh" + std::string(1, '\0') + "\x85R0";
  CHECK(message_of([&] { parse(pickled(copies + "N")); }).find("too many function calls") != std::string::npos);
}

TEST_CASE("tensors must be within their storage") {
  const auto message = [](int64_t numel, int64_t offset, std::vector<int64_t> shape) {
    const std::string tensor =
        pickle::tensor({.storage = "0", .storage_numel = numel, .offset = offset, .shape = std::move(shape)});
    const pickle::Document document = parse(pickle::dump(tensor));
    return message_of([&] { (void)pickle::root_of(document).tensor(); });
  };
  CHECK(message(6, 0, {2, 3}).empty());
  CHECK(message(7, 1, {2, 3}).empty());
  const std::string expected = "a tensor within the bounds of its storage";
  CHECK(message(5, 0, {2, 3}).find(expected) != std::string::npos);
  CHECK(message(6, 1, {2, 3}).find(expected) != std::string::npos);
  CHECK(message(6, -1, {2, 3}).find(expected) != std::string::npos);
  CHECK(message(6, 0, {-2, -3}).find(expected) != std::string::npos);
  CHECK(message(6, 0, {int64_t{1} << 32, int64_t{1} << 32}).find(expected) != std::string::npos);
}

TEST_CASE("pickles with changed bytes cause an error or give plain data") {
  const std::string good = rich_pickle();
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bad = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    try {
      const pickle::Document document = parse(bad);
      walk(document);
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("an archive is read back in slices, and its checksums match") {
  const TemporaryFolder folder;
  const std::string tensors = pickle::list(
      {pickle::tensor({.storage = "0", .storage_numel = 1000, .offset = 100, .shape = {900}}),
       pickle::tensor({.storage = "1", .type = pickle::ScalarType::kBFloat16, .storage_numel = 3, .shape = {3}})});
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5F;
  const std::vector<uint16_t> halves = {0x3F80, 0xC000, 0x7FC1};
  const std::vector<int64_t> sizes = {4000, 6};
  const TorchZipLayout layout("x", pickle::dump(tensors), sizes);
  const fs::path path = folder / "x.pt";
  {
    File file = File::create(path);
    file.resize(layout.file_bytes());
    CHECK(layout.storage_offset(0) % 64 == 0);
    CHECK(layout.storage_offset(1) % 64 == 0);
    file.write(layout.storage_offset(0), std::as_bytes(std::span(values)));
    file.write(layout.storage_offset(1), std::as_bytes(std::span(halves)));
    const std::vector<uint32_t> checksums = {crc32_of(std::as_bytes(std::span(values))),
                                             crc32_of(std::as_bytes(std::span(halves)))};
    layout.write_rest(file, checksums);
    CHECK(file.size() == layout.file_bytes());
  }
  {
    TorchZipReader reader(path);
    reader.verify();
    const std::vector<pickle::Value> tensors = reader.root().elements();
    std::vector<float> slice(10);
    reader.read(tensors[0].tensor(), 890, slice);
    CHECK(slice[0] == 495.0F);
    CHECK(slice[9] == 499.5F);
    reader.read(tensors[0].tensor(), 0, std::span(slice).first(3));
    std::vector<float> three(3);
    reader.read(tensors[1].tensor(), 0, three);
    CHECK(three[0] == 1.0F);
    CHECK(three[1] == -2.0F);
    CHECK(std::isnan(three[2]));
    CHECK_THROWS_AS(reader.read(tensors[0].tensor(), 895, slice), Failure);
    const auto lines = reader.checksums_of_what_was_read();
    CHECK(lines.size() == 2);
    reader.verify(lines);
  }
  // One bit of a value, once inside and once outside of the range that is read.
  for (const int64_t element : {890, 500}) {
    std::string bytes = read_file(path);
    const auto place = static_cast<size_t>(layout.storage_offset(0) + 4 * (100 + element));
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
    write_file(folder / "bad.pt", bytes);
    TorchZipReader reader(folder / "bad.pt");
    std::vector<float> slice(10);
    reader.read(reader.root().elements()[0].tensor(), 890, slice);
    const auto lines = reader.checksums_of_what_was_read();
    const std::string message = message_of([&] { reader.verify(lines); });
    CHECK(message.find("the checksum of storage 0 does not match") != std::string::npos);
  }
}

TEST_CASE("sizes and offsets beyond 4 GiB are written and read as ZIP64") {
  const TemporaryFolder folder;
  constexpr int64_t kBytes = (int64_t{5} << 30) + 12;
  std::vector<std::string> tensors;
  for (const char* key : {"0", "1"}) {
    tensors.push_back(
        pickle::tensor({.storage = key, .storage_numel = kBytes / 4, .offset = 0, .shape = {kBytes / 4}}));
  }
  const std::vector<int64_t> sizes = {kBytes, kBytes};
  const TorchZipLayout layout("large", pickle::dump(pickle::list(tensors)), sizes);
  const fs::path path = folder / "large.pt";
  const float marks[] = {1.0F, 2.0F};
  {
    File file = File::create(path);
    file.resize(layout.file_bytes());  // sparse
    for (size_t i = 0; i < 2; ++i) {
      file.write(layout.storage_offset(i) + kBytes - 4, std::as_bytes(std::span(&marks[i], 1)));
    }
    layout.write_rest(file, std::vector<uint32_t>{0, 0});
  }
  TorchZipReader reader(path);
  for (size_t i = 0; i < 2; ++i) {
    float last = 0;
    reader.read(reader.root().elements()[i].tensor(), kBytes / 4 - 1, {&last, 1});
    CHECK(last == marks[i]);
  }
}

TEST_CASE("a combined checksum is computed from ranges in any order, including duplicates") {
  std::vector<std::byte> bytes(10'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 % 251);
  const auto part = [&](int64_t begin, int64_t end) {
    return std::span<const std::byte>(bytes).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  const auto read = [&](int64_t begin, int64_t end) { return crc32_of(part(begin, end)); };
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    RangeChecksums checksums;
    const int parts = static_cast<int>(random() % 20);
    for (int i = 0; i < parts; ++i) {
      const auto begin = static_cast<int64_t>(random() % bytes.size());
      const auto end = begin + static_cast<int64_t>(random() % (bytes.size() - static_cast<size_t>(begin)) + 1);
      checksums.add(begin, part(begin, end));
    }
    RangeChecksums copy;
    copy.add_text(checksums.to_text());
    CHECK(copy.combined(static_cast<int64_t>(bytes.size()), read) == crc32_of(bytes));
  }
  CHECK_THROWS_AS(RangeChecksums().add_text("1 2"), std::invalid_argument);
}
