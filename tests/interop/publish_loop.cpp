#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/checkpoint_dir/save.hpp"
#include "tests/base/thread_group.hpp"

// publish_loop DIR hdf5|deepspeed replace|prune: saves one checkpoint after another, as three ranks, until its input
// ends. All values of a checkpoint are its step. `replace`: steps 3 and 6 in turn, under one name. `prune`: steps 1, 2,
// 3, ... under their own names, each of which removes the previous one. Prints "ready" once there is a checkpoint.
namespace {

using namespace mpzero;

constexpr int kRanks = 3;

std::vector<UnitSpec> model() {
  std::vector<UnitSpec> units = {{"embedding", {{"model.embed_tokens.weight", {997, 64}}}}};
  for (int i = 0; i < 8; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    units.push_back({fmt::format("layers.{}", i),
                     {{layer + "self_attn.q_proj.weight", {64, 64}}, {layer + "mlp.down_proj.weight", {64, 176}}}});
  }
  units.push_back({"head", {{"model.norm.weight", {64}}}});
  return units;
}

void save(const std::string& dir, const std::string& tag, int64_t step, bool deepspeed, int64_t keep_last) {
  const std::vector<UnitSpec> units = model();
  const std::vector<std::string> errors = ThreadGroup(kRanks).run([&](ProcessGroup& group) {
    io::SaveJob job{.checkpoint_dir = dir, .tag = tag, .progress = {}, .shards = {}, .model_type = "tiny"};
    job.keep_last = keep_last;
    job.progress.step = step;
    job.progress.lr = 0;
    job.progress.dtype = "fp32";
    job.progress.zero_stage = 2;
    job.progress.model_config_json = R"({"model_type": "qwen3"})";
    job.progress.run_config_json = "{}";
    if (deepspeed) job.format = io::DeepSpeedSettings{.ranks = kRanks, .optimizer = {}};
    for (const UnitSpec& unit : units) {
      const int64_t share = (unit.numel() + kRanks - 1) / kRanks;
      const int64_t begin = std::min(unit.numel(), group.rank() * share);
      job.shards.push_back({&unit, begin, std::min(share, unit.numel() - begin)});
    }
    std::vector<float> values;
    io::save_checkpoint(job, {.fetch = [&](size_t i, StateKind) -> std::span<const float> {
                          values.assign(static_cast<size_t>(job.shards[i].count), static_cast<float>(step));
                          return values;
                        }},
                        group);
  });
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
}

bool input_has_ended() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return ::poll(&input, 1, 0) != 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::invalid_argument("publish_loop DIR hdf5|deepspeed replace|prune");
    const bool deepspeed = std::string(argv[2]) == "deepspeed";
    const bool replace = std::string(argv[3]) == "replace";
    for (int64_t i = 1; i == 1 || !input_has_ended(); ++i) {
      const int64_t step = replace ? (i % 2 == 0 ? 6 : 3) : i;
      save(argv[1], replace ? "tiny-6steps" : fmt::format("tiny-{}steps", i), step, deepspeed, replace ? 0 : 1);
      if (i == 1) fmt::print("ready\n");
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "publish_loop: {}\n", error.what());
    return 1;
  }
}
