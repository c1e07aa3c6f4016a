#include <algorithm>
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

TEST_CASE("the optimizer's tensors without ZeRO are those of the parameters") {
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

TEST_CASE("optimizer states of ZeRO do not belong to a checkpoint without it") {
  const TemporaryFolder folder;
  fs::copy(tag_of("tiny-qwen3-zero0-fp32"), folder.path(), fs::copy_options::recursive);
  const std::string left = "zero_pp_rank_0_mp_rank_00_optim_states.pt";
  fs::copy(tag_of("tiny-qwen3-zero2-fp32") / left, folder / left);
  CHECK_THAT(message_of([&] { open_checkpoint(folder.path()); }), Contains(left) && Contains("two runs"));
}

}  // namespace mpzero::io
