#include <bit>
#include <cmath>
#include <limits>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "tests/base/thread_group.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

struct Plain {
  int64_t count = 0;
  double seconds = 0;
};

struct Named {
  std::string name;
  std::vector<int> cores;

  static auto fields(auto& named) { return std::tie(named.name, named.cores); }
};

constexpr int kRanks = 3;

// What each rank got, after all have returned.
template <class T>
std::vector<T> on_ranks(const std::function<T(ProcessGroup&)>& work) {
  std::vector<std::optional<T>> found(kRanks);
  const auto errors =
      ThreadGroup(kRanks).run([&](ProcessGroup& group) { found[static_cast<size_t>(group.rank())] = work(group); });
  CHECK(errors == std::vector<std::string>(kRanks));
  std::vector<T> values;
  for (const std::optional<T>& value : found) values.push_back(value.value());
  return values;
}

// A group of two, of which rank 1 sends `other` whatever is called.
class SendsOther final : public ProcessGroup {
 public:
  explicit SendsOther(std::string other) : other_(std::move(other)) {}
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  void barrier() override {}
  std::vector<std::string> all_gather(const std::string& text) override {
    ++calls;
    return {text, other_};
  }
  int calls = 0;

 private:
  std::string other_;
};

std::string field(const std::string& bytes) {
  std::string message;
  collectives::append_field(message, bytes);
  return message;
}

}  // namespace

TEST_CASE("all_gather returns every rank's value in rank order, with the same bits") {
  const std::vector<double> sent = {0.1 + 0.2, -0.0, std::numeric_limits<double>::quiet_NaN()};
  for (const auto& got : on_ranks<std::vector<double>>(
           [&](ProcessGroup& group) { return all_gather(group, sent[static_cast<size_t>(group.rank())]); })) {
    REQUIRE(got.size() == sent.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(std::bit_cast<uint64_t>(got[i]) == std::bit_cast<uint64_t>(sent[i]));
  }
  for (const auto& got : on_ranks<std::vector<Plain>>([](ProcessGroup& group) {
         return all_gather(group, Plain{.count = int64_t{1} << (group.rank() + 40), .seconds = 0.5 * group.rank()});
       })) {
    CHECK(got[2].count == int64_t{1} << 42);
    CHECK(got[1].seconds == 0.5);
  }
}

TEST_CASE("strings, vectors, optionals and tuples arrive unchanged, including empty values and invalid UTF-8") {
  using Value = std::tuple<std::string, std::vector<std::string>, std::vector<std::vector<int>>, std::optional<bool>,
                           std::pair<std::optional<std::string>, std::vector<bool>>>;
  const std::vector<Value> sent = {
      {"", {}, {}, std::nullopt, {std::nullopt, {}}},
      {std::string("a\0b\xff\n", 5), {"", "/with space\n", ""}, {{}, {1, -2}, {}}, false, {"", {true, false, true}}},
      {"x", {""}, {{}}, true, {"y", {false}}}};
  for (const auto& got : on_ranks<std::vector<Value>>(
           [&](ProcessGroup& group) { return all_gather(group, sent[static_cast<size_t>(group.rank())]); })) {
    CHECK((got == sent));
  }
}

TEST_CASE("a struct is sent by its fields, also in a vector") {
  for (const auto& got : on_ranks<std::vector<std::vector<Named>>>([](ProcessGroup& group) {
         return all_gather(group, std::vector<Named>(static_cast<size_t>(group.rank()),
                                                     {.name = "caf\xc3\xa9", .cores = {group.rank()}}));
       })) {
    CHECK(got[0].empty());
    REQUIRE(got[2].size() == 2);
    CHECK(got[2][1].name == "caf\xc3\xa9");
    CHECK(got[2][1].cores == std::vector<int>{2});
  }
}

TEST_CASE("broadcast sends only rank 0's value to all ranks") {
  for (const auto& got : on_ranks<std::vector<std::string>>([](ProcessGroup& group) {
         return broadcast(group, std::vector<std::string>{"of rank", std::to_string(group.rank())});
       })) {
    CHECK(got == std::vector<std::string>{"of rank", "0"});
  }
  class SecondRank final : public ProcessGroup {
   public:
    int rank() const override { return 1; }
    int world_size() const override { return 2; }
    void barrier() override {}
    std::vector<std::string> all_gather(const std::string& text) override {
      sent = text;
      return {"its", text};
    }
    std::string sent = "nothing yet";
  } second;
  CHECK(broadcast(second, std::string("mine")) == "its");
  CHECK(second.sent.empty());
}

TEST_CASE("min, max, sum, any and all reduce over the ranks") {
  const auto reduce = [](ProcessGroup& group) {
    const int rank = group.rank();
    return std::tuple(min(group, int64_t{-5} * rank), max(group, 0.25 * rank),
                      sum(group, uint64_t{1} << (62 + rank % 2)), any(group, rank == 1), any(group, false),
                      all(group, rank != 1), all(group, true));
  };
  using Results = std::tuple<int64_t, double, uint64_t, bool, bool, bool, bool>;
  for (const Results& got : on_ranks<Results>(reduce)) {
    CHECK((got == Results(-10, 0.5, 0, true, false, false, true)));  // 2^62 + 2^63 + 2^62, modulo 2^64
  }
}

TEST_CASE("a message of a different type is a Failure with the call, its location and the rank") {
  const auto refused = [](const std::string& other, const std::function<void(ProcessGroup&)>& call) {
    SendsOther group(other);
    std::string message;
    try {
      call(group);
    } catch (const Failure& failure) {
      message = failure.what();
    }
    CHECK(group.calls == 1);
    CHECK_THAT(message, Catch::Contains("test_collectives.cpp:") && Catch::Contains("rank 1 sent "));
    return message;
  };
  CHECK_THAT(refused("1234567", [](ProcessGroup& group) { all_gather(group, 1.5); }),
             Catch::StartsWith("all_gather (") && Catch::EndsWith("7 bytes, expected 8"));
  CHECK_THAT(refused("", [](ProcessGroup& group) { max(group, 1); }),
             Catch::StartsWith("max (") && Catch::EndsWith("0 bytes, expected 4"));
  CHECK_THAT(refused("2", [](ProcessGroup& group) { any(group, true); }), Catch::EndsWith("bool"));
  const auto words = [](ProcessGroup& group) { all_gather(group, std::vector<std::string>{"a"}); };
  CHECK_THAT(refused("1234567", words), Catch::EndsWith("7 bytes, too few for a field"));
  CHECK_THAT(refused(field("abc").substr(0, 10), words), Catch::EndsWith("2 bytes of a field of 3 bytes"));
  CHECK_THAT(refused(std::string(8, '\xff'), words),
             Catch::Contains("0 bytes of a field of 18446744073709551615 bytes"));
  const auto pair = [](ProcessGroup& group) { all_gather(group, std::pair(std::string("a"), 1)); };
  CHECK_THAT(refused(field("a"), pair), Catch::EndsWith("0 bytes, too few for a field"));
  CHECK_THAT(refused(field("a") + field("four") + "x", pair), Catch::EndsWith("1 bytes, expected 0"));
  const auto option = [](ProcessGroup& group) { all_gather(group, std::optional(1)); };
  CHECK_THAT(refused(field("four") + field("four"), option), Catch::EndsWith("12 bytes, expected 0"));
  const auto named = [](ProcessGroup& group) { all_gather(group, Named{}); };
  CHECK_THAT(refused(field("a"), named), Catch::EndsWith("0 bytes, too few for a field"));
}

}  // namespace mpzero
