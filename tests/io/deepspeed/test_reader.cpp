#include <barrier>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/torch_save/zip_reader.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/deepspeed_fixture.hpp"
#include "tests/io/paged_client.hpp"

using namespace mpzero;
using namespace mpzero::io;
using namespace mpzero::io::testing;

TEST_CASE("DeepSpeed's files contain every state, bit for bit, for any number of ranks and any stage") {
  const TemporaryFolder folder;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const int64_t sub_group_size : {int64_t{1'000'000'000}, int64_t{20}, int64_t{0}}) {
        if (stage < 3 && sub_group_size != 1'000'000'000) continue;
        INFO("stage " << stage << ", ranks " << ranks << ", sub-groups of " << sub_group_size);
        const std::string tag = "tiny-7steps";
        const Saved how{stage, ranks, sub_group_size, ranks % 2 == 0 ? "bf16" : "fp32"};
        require_saved(folder.path(), tag, how);
        for (const int readers : {1, 2, 3}) CHECK(holds_what_was_saved(folder / tag, readers));
        open_checkpoint(folder / tag)->verify();
      }
    }
  }
}

TEST_CASE("files of DeepSpeed's BF16_Optimizer, which do not record their stage, are read as stage 1") {
  const TemporaryFolder folder;
  for (const int stage : {1, 3}) {
    require_stock(folder.path(), "tiny-7steps", {.stage = stage, .dtype = "bf16"});
    for (const std::string& name : names_in(folder / "tiny-7steps")) {
      if (name.ends_with("optim_states.pt")) edit_pickle(folder / "tiny-7steps" / name, "zero_stage", "zero_other");
    }
    if (stage == 1) {
      CHECK(holds_what_was_saved(folder / "tiny-7steps", 3));
      CHECK(open_checkpoint(folder / "tiny-7steps")->progress().zero_stage == 1);
    } else {
      CHECK_THAT(message_of([&] { open_checkpoint(folder / "tiny-7steps"); }), Catch::Contains("zero_stage"));
    }
  }
}

TEST_CASE("progress and client state are restored") {
  const TemporaryFolder folder;
  require_saved(folder.path(), "tiny-7steps", {});
  const auto checkpoint = open_checkpoint(folder / "tiny-7steps");
  const TrainingProgress expected = progress_at(7);
  const TrainingProgress& found = checkpoint->progress();
  CHECK(checkpoint->made_by_mpzero());
  CHECK(found.step == 7);
  CHECK(found.tokens_seen == expected.tokens_seen);
  CHECK(found.sequences_seen == expected.sequences_seen);
  CHECK(found.seed == expected.seed);
  CHECK(found.lr == 0.25);
  CHECK(found.dtype == "fp32");
  CHECK(found.zero_stage == 2);
  CHECK(found.model_config_json == R"({"model_type": "qwen3"})");
  CHECK(found.settings_json == R"({"beta2": 0.5})");
  CHECK(checkpoint->next_lr() == 0.5);
  REQUIRE(checkpoint->aliases().size() == 1);
  CHECK(checkpoint->aliases()[0].name == "lm_head.weight");
  check_same_parameters(checkpoint->parameters(), transformer(), checkpoint->folder());
  std::vector<UnitSpec> other = transformer();
  other[1].parameters[1].shape = {5, 7};
  const std::string message =
      message_of([&] { check_same_parameters(checkpoint->parameters(), other, checkpoint->folder()); });
  CHECK(message.find("model.layers.0.self_attn.q_proj.weight has shape [7, 5]") != std::string::npos);
}

TEST_CASE("DeepSpeed's fp16 checkpoint is not mistaken for an fp32 checkpoint") {
  const TemporaryFolder folder;
  for (const bool enabled : {true, false}) {
    const std::string fp16 = enabled ? R"({"fp16": {"enabled": true}})" : R"({"fp16": {"enabled": false}})";
    require_stock(folder.path(), "tiny-7steps", {.ds_config = fp16});
    CHECK(open_checkpoint(folder / "tiny-7steps")->progress().dtype == (enabled ? "fp16" : "fp32"));
  }
}

TEST_CASE("a checkpoint without settings uses its optimizer's settings") {
  const TemporaryFolder folder;
  for (const int stage : {1, 3}) {
    require_saved(folder.path(), "tiny-7steps", {.stage = stage, .settings = ""});
    CHECK(nlohmann::json::parse(open_checkpoint(folder / "tiny-7steps")->progress().settings_json) ==
          nlohmann::json(
              {{"beta1", 0.8}, {"beta2", 0.98}, {"eps", 1e-6}, {"weight_decay", 0.2}, {"bias_correction", true}}));
  }
}

TEST_CASE("the model's weights are the rounded master weights, in transformers' order") {
  const TemporaryFolder folder;
  require_saved(folder.path(), "tiny-7steps", {.stage = 2, .ranks = 3, .dtype = "bf16"});
  TorchZipReader archive(folder / "tiny-7steps" / "mp_rank_00_model_states.pt");
  archive.verify();
  const auto module = archive.root().at("module").entries();
  // Hand-written: q, o, q_norm, down, input norm of each layer; the tied head is last.
  const std::vector<std::string> order = {"self_attn.q_proj.weight", "self_attn.o_proj.weight",
                                          "self_attn.q_norm.weight", "mlp.down_proj.weight", "input_layernorm.weight"};
  REQUIRE(module.size() == 1 + 2 * order.size() + 2);
  for (size_t i = 0; i < order.size(); ++i) {
    CHECK(module[1 + i].first == "model.layers.0." + order[i]);
    CHECK(module[1 + order.size() + i].first == "model.layers.1." + order[i]);
  }
  CHECK(module.back().first == "lm_head.weight");
  const std::vector<UnitSpec> units = transformer();
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t p = 0; p < units[u].parameters.size(); ++p) {
      const ParameterSpec& parameter = units[u].parameters[p];
      const auto entry = std::find_if(module.begin(), module.end(),
                                      [&](const auto& candidate) { return candidate.first == parameter.name; });
      std::vector<float> weights(static_cast<size_t>(parameter.numel()));
      archive.read(entry->second.tensor(), 0, weights);
      for (size_t k = 0; k < weights.size(); ++k) {
        const uint32_t bits =
            bits_at(u, StateKind::kMaster, parameter_offset(units[u], p) + static_cast<int64_t>(k), 0);
        const float expected = from_bfloat16(to_bfloat16(std::bit_cast<float>(bits)));
        CHECK(std::bit_cast<uint32_t>(weights[k]) == std::bit_cast<uint32_t>(expected));
      }
    }
  }
}

TEST_CASE("ranks on several clients of a network file system do not overwrite each other's bytes") {
  const TemporaryFolder folder;
  for (const int stage : {1, 2, 3}) {
    for (const int ranks : {2, 3, 4}) {
      INFO("stage " << stage << ", ranks " << ranks);
      const Saved how{.stage = stage, .ranks = ranks, .dtype = ranks == 3 ? "fp32" : "bf16", .width = 509};
      const std::string tag = "tiny-7steps";
      std::barrier all_have_written(ranks);
      std::deque<PagedClient> clients;
      for (int rank = 0; rank < ranks; ++rank) clients.emplace_back(all_have_written);
      for (const std::string& error : save_as_deepspeed(folder.path(), tag, how, nullptr, [&](int rank) -> FileSystem& {
             return clients[static_cast<size_t>(rank)];
           })) {
        REQUIRE(error.empty());
      }
      CHECK(holds_what_was_saved(folder / tag, 1, 0, how.width));
      CHECK(message_of([&] { open_checkpoint(folder / tag)->verify(); }).empty());
      for (const PagedClient& client : clients) {
        for (const std::string& name : client.opened_for_reading()) {
          INFO(name);
          CHECK_FALSE(name.ends_with(".pt"));
        }
      }
    }
  }
}

TEST_CASE("a rank that cannot write leaves the previous checkpoint unchanged") {
  const TemporaryFolder folder;
  require_saved(folder.path(), "tiny-6steps", {.stage = 3, .ranks = 3});
  const auto errors =
      save_as_deepspeed(folder.path(), "tiny-7steps", {.stage = 3, .ranks = 3}, [](int rank, size_t shard, StateKind) {
        if (rank == 1 && shard == 2) throw Failure("the device is gone");
      });
  for (const std::string& error : errors) CHECK(error == "rank 1: the device is gone");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "tiny-6steps"});
  CHECK(holds_what_was_saved(*latest_checkpoint(folder.path()), 2));
}

TEST_CASE("incomplete and mixed DeepSpeed folders are reported") {
  const TemporaryFolder folder;
  const fs::path tag = folder / "tiny-7steps";
  const auto message_without = [&](const std::string& name) {
    require_stock(folder.path(), "tiny-7steps", {.stage = 2, .ranks = 3});
    fs::remove(tag / name);
    return message_of([&] { open_checkpoint(tag); });
  };
  CHECK(
      message_without("zero_pp_rank_0_mp_rank_00_optim_states.pt").find("zero_pp_rank_0_mp_rank_00_optim_states.pt") !=
      std::string::npos);
  CHECK(
      message_without("zero_pp_rank_2_mp_rank_00_optim_states.pt").find("zero_pp_rank_2_mp_rank_00_optim_states.pt") !=
      std::string::npos);
  require_stock(folder.path(), "tiny-7steps", {.stage = 2, .ranks = 3});
  fs::copy_file(tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt", tag / "zero_pp_rank_3_mp_rank_00_optim_states.pt");
  CHECK(message_of([&] { open_checkpoint(tag); }).find("does not belong to this checkpoint of 3 ranks") !=
        std::string::npos);
  require_stock(folder.path(), "tiny-7steps", {.stage = 2, .ranks = 3});
  require_stock(folder.path(), "other-7steps", {.stage = 3, .ranks = 3});
  const std::string shard = "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  fs::copy_file(folder / "other-7steps" / shard, tag / shard, fs::copy_options::overwrite_existing);
  CHECK(message_of([&] { holds_what_was_saved(tag, 1); }).find("from another run") != std::string::npos);
  fs::copy_file(folder / "other-7steps" / "zero_pp_rank_0_mp_rank_00_model_states.pt",
                tag / "zero_pp_rank_0_mp_rank_00_model_states.pt");
  CHECK(message_of([&] { open_checkpoint(tag); }).find("files from two runs") != std::string::npos);
}

// By hand from stage_1_and_2.py: 9 elements on 2 ranks are padded to a multiple of 4, so each rank has 6.
TEST_CASE("the flat group of stages 1 and 2 is aligned to twice the ranks") {
  const DeepSpeedLayout layout({{{{"a", {4}}, {"b", {5}}}, {}}}, 2, 2, "test");
  CHECK(layout.partition_numel(0) == 6);
  CHECK(layout.used_numel(0, 0) == 6);
  CHECK(layout.used_numel(0, 1) == 3);
  std::vector<std::vector<int64_t>> found;
  layout.visit("b", 0, 5, [&](const DeepSpeedLayout::Slice& slice) {
    found.push_back({slice.rank, slice.offset, slice.begin, slice.count});
  });
  CHECK(found == std::vector<std::vector<int64_t>>{{0, 4, 0, 2}, {1, 0, 2, 3}});
}

// By hand from stage3.py: 7 elements on 3 ranks give pieces of 3, the last one with two elements of padding.
TEST_CASE("stage 3 splits each parameter into equal pieces") {
  const DeepSpeedLayout layout({{{{"a", {7}}, {"b", {2, 2}}}, {}}}, 3, 3, "test");
  CHECK(layout.partition_numel(0) == 3 + 2);
  std::vector<std::vector<int64_t>> found;
  const auto remember = [&](const DeepSpeedLayout::Slice& slice) {
    found.push_back({slice.rank, slice.offset, slice.begin, slice.count});
  };
  layout.visit("a", 1, 7, remember);
  layout.visit("b", 0, 4, remember);
  CHECK(found ==
        std::vector<std::vector<int64_t>>{{0, 1, 1, 2}, {1, 0, 3, 3}, {2, 0, 6, 1}, {0, 3, 0, 2}, {1, 3, 2, 2}});
}

TEST_CASE("a checkpoint that the ranks did not write in full is not published") {
  const std::vector<UnitSpec> units = transformer();
  for (const int stage : {2, 3}) {
    const TemporaryFolder folder;
    ThreadGroup group(2);
    const auto errors = group.run([&](ProcessGroup& ranks) {
      SaveJob job{.checkpoint_dir = folder.path(),
                  .tag = "tiny-7steps",
                  .progress = progress_at(7),
                  .shards = {},
                  .model_type = {}};
      job.progress.zero_stage = stage;
      job.progress.lr = 0.25;
      job.format = DeepSpeedSettings{.ranks = 2, .optimizer = {}};
      for (const UnitSpec& unit : units) job.shards.push_back(shard_of(unit, ranks.rank(), 2, Split::kEven));
      if (ranks.rank() == 1) --job.shards[1].count;
      const std::vector<float> values(1000);
      const auto fetch = [&](size_t i, StateKind) {
        return std::span<const float>(values).first(static_cast<size_t>(job.shards[i].count));
      };
      save_checkpoint(job, {.fetch = fetch}, ranks);
    });
    for (const std::string& error : errors) CHECK(error.find("do not add up to storage") != std::string::npos);
    CHECK(names_in(folder.path()).empty());
  }
}
