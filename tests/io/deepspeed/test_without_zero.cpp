#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/deepspeed/without_zero.hpp"
#include "tests/catch.hpp"
#include "tests/io/deepspeed_fixture.hpp"

// DeepSpeed 0.19.8 without ZeRO (tests/golden/make_tiny_runs.py): torch's AdamW in fp32, FP16_UnfusedOptimizer and
// FP16_Optimizer around it in bf16, each with the parameter groups of the Hugging Face Trainer.
namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

fs::path tag_of(const std::string& run) {
  return fs::path(MPZERO_SOURCE_DIR) / "tests/golden" / run / "deepspeed/global_step6";
}

}  // namespace

TEST_CASE("without ZeRO, the optimizer's tensors are matched to the parameters") {
  const std::string run = GENERATE("tiny-qwen3-zero0-fp32", "tiny-qwen3-zero0-bf16", "tiny-llama-zero0-fused");
  const bool bf16 = run != "tiny-qwen3-zero0-fp32";
  const auto checkpoint = open_checkpoint(tag_of(run));
  CHECK(checkpoint->progress().step == 6);
  CHECK(checkpoint->progress().zero_stage == 0);
  CHECK(checkpoint->progress().dtype == (bf16 ? "bf16" : "fp32"));
  CHECK(checkpoint->aliases().size() == (run.find("qwen3") != std::string::npos ? 1 : 0));
  checkpoint->verify();
  // The weights that the model computes with are the rounded masters.
  TorchZipReader archive(tag_of(run) / "mp_rank_00_model_states.pt");
  const pickle::Value module = archive.root().at("module");
  bool same = true;
  for (const ParameterSpec& parameter : checkpoint->parameters()) {
    std::vector<float> computed(static_cast<size_t>(parameter.numel())), master(computed), moment(computed);
    archive.read(module.at(parameter.name).tensor(), 0, computed);
    checkpoint->read(parameter.name, StateKind::kMaster, 0, master);
    checkpoint->read(parameter.name, StateKind::kExpAvgSq, 0, moment);
    for (size_t i = 0; i < master.size(); ++i) {
      same = same && (bf16 ? from_bfloat16(to_bfloat16(master[i])) : master[i]) == computed[i];
    }
    CHECK(std::ranges::any_of(moment, [](float value) { return value > 0; }));
  }
  CHECK(same);
}

// Layers have equal shapes; groups of layer-wise learning rates number them from the top.
TEST_CASE("an optimizer with a different layer order is refused") {
  const TemporaryFolder folder;
  fs::copy(tag_of("tiny-qwen3-zero0-bf16"), folder.path(), fs::copy_options::recursive);
  const fs::path file = folder / "mp_rank_00_model_states.pt";
  std::map<std::string, std::string> storages;  // of the masters, by parameter
  {
    const auto checkpoint = open_checkpoint(folder.path());
    CHECK(checkpoint->warnings().size() == 1);  // of AdamW's count
    const TorchZipReader archive(file);
    size_t next = 0;
    for (const pickle::Value& group : archive.root().at("optimizer").at("fp32_groups").elements()) {
      for (const pickle::Value& master : group.elements()) {
        storages[checkpoint->parameters()[next++].name] = master.tensor().storage;
      }
    }
  }
  const auto pickled = [](const std::string& key) {
    return std::string{'X', static_cast<char>(key.size()), 0, 0, 0} + key;
  };
  int swapped = 0;
  for (const auto& [name, storage] : storages) {
    if (name.find("layers.0.") == std::string::npos) continue;
    std::string other = name;
    replace_all(other, "layers.0.", "layers.1.");
    const std::string first = pickled(storage), second = pickled(storages.at(other));
    if (first.size() != second.size()) continue;
    const std::string neither(first.size(), '?');
    edit_pickle(file, first, neither);
    edit_pickle(file, second, first);
    edit_pickle(file, neither, second);
    CAPTURE(name);
    CHECK_THAT(message_of([&] { open_checkpoint(folder.path()); }),
               Contains(file.string()) && Contains("24 tensors") && Contains("--init_from"));
    ++swapped;
  }
  CHECK(swapped == 8);  // the keys of the other pairs differ in length
}

TEST_CASE("flat master weights in a different order are refused") {
  const TemporaryFolder folder;
  fs::copy(tag_of("tiny-llama-zero0-fused"), folder.path(), fs::copy_options::recursive);
  // The offsets of the layers' q_proj, 768 and 2304.
  const fs::path file = folder / "mp_rank_00_model_states.pt";
  const std::string first("M\x00\x03", 3), second("M\x00\x09", 3), neither("M??");
  edit_pickle(file, first, neither);
  edit_pickle(file, second, first);
  edit_pickle(file, neither, second);
  CHECK_THAT(message_of([&] { open_checkpoint(folder.path()); }), Contains("2 tensors") && Contains("--init_from"));
}

TEST_CASE("damaged master weights are not reported as a different order") {
  const TemporaryFolder folder;
  fs::copy(tag_of("tiny-qwen3-zero0-bf16"), folder.path(), fs::copy_options::recursive);
  const fs::path file = folder / "mp_rank_00_model_states.pt";
  std::string storage;
  {
    const TorchZipReader archive(file);
    const auto groups = archive.root().at("optimizer").at("fp32_groups").elements();
    storage = groups.at(0).elements().at(0).tensor().storage;
  }
  std::string bytes = read_file(file);
  for (const auto& [name, record] : read_zip_directory(File::open_for_reading(file)).records) {
    if (name.ends_with("/data/" + storage)) bytes[static_cast<size_t>(record.offset) + 3] ^= 0x40;
  }
  write_file(file, bytes);
  CHECK_THAT(message_of([&] { open_checkpoint(folder.path()); }), Contains("damaged") && Contains("data/" + storage));
}

TEST_CASE("without master weights, the order of the optimizer's states is assumed, with a warning") {
  const auto checkpoint = open_checkpoint(tag_of("tiny-qwen3-zero0-fp32"));
  REQUIRE(checkpoint->warnings().size() == 1);
  CHECK_THAT(checkpoint->warnings()[0], Contains("mp_rank_00_model_states.pt") && Contains("order"));
}

TEST_CASE("optimizer states of ZeRO are rejected in a checkpoint without ZeRO") {
  const TemporaryFolder folder;
  fs::copy(tag_of("tiny-qwen3-zero0-fp32"), folder.path(), fs::copy_options::recursive);
  const std::string left = "zero_pp_rank_0_mp_rank_00_optim_states.pt";
  fs::copy(tag_of("tiny-qwen3-zero2-fp32") / left, folder / left);
  CHECK_THAT(message_of([&] { open_checkpoint(folder.path()); }), Contains(left) && Contains("two runs"));
}

}  // namespace mpzero::io
