#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/bytes/checksum.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/files/atomic_file.hpp"

// make_sparse_checkpoint DIR LAYERS HIDDEN VOCABULARY RANKS STAGE: a checkpoint in DeepSpeed's format with a Llama's
// shapes. Its numbers are all zero and take no space on the disk. For the tests of the memory that reading many GB
// takes.
namespace {

using namespace mpzero;

std::vector<UnitSpec> llama(int64_t layers, int64_t hidden, int64_t vocabulary) {
  const int64_t inner = hidden * 7 / 2;
  const int64_t key_value = hidden / 4;
  std::vector<UnitSpec> units = {{"embedding", {{"model.embed_tokens.weight", {vocabulary, hidden}}}}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    units.push_back({fmt::format("layers.{}", i),
                     {{layer + "self_attn.q_proj.weight", {hidden, hidden}},
                      {layer + "self_attn.k_proj.weight", {key_value, hidden}},
                      {layer + "self_attn.v_proj.weight", {key_value, hidden}},
                      {layer + "self_attn.o_proj.weight", {hidden, hidden}},
                      {layer + "mlp.gate_proj.weight", {inner, hidden}},
                      {layer + "mlp.up_proj.weight", {inner, hidden}},
                      {layer + "mlp.down_proj.weight", {hidden, inner}},
                      {layer + "input_layernorm.weight", {hidden}},
                      {layer + "post_attention_layernorm.weight", {hidden}}}});
  }
  units.push_back({"head", {{"model.norm.weight", {hidden}}, {"lm_head.weight", {vocabulary, hidden}}}});
  return units;
}

uint32_t crc_of_zeros(int64_t bytes) {
  constexpr int64_t kBlock = int64_t{1} << 22;
  const std::vector<std::byte> block(kBlock);
  const uint32_t of_block = io::crc32_of(block);
  io::RangeChecksums checksums;
  for (int64_t at = 0; at < bytes; at += kBlock) {
    const int64_t end = std::min(at + kBlock, bytes);
    const uint32_t crc =
        end - at == kBlock ? of_block : io::crc32_of(std::span(block).first(static_cast<size_t>(end - at)));
    checksums.add(at, end, crc);
  }
  return checksums.combined(bytes, [](int64_t, int64_t) { return 0U; });
}

void make(const std::filesystem::path& dir, const io::DeepSpeedPlan& plan) {
  const std::string tag = "llama-1steps";
  io::make_folders(dir / tag);
  io::Manifest manifest;
  for (const io::DeepSpeedPlan::PlannedFile& planned : plan.files()) {
    io::File file = io::File::create(dir / tag / planned.name);
    file.resize(planned.layout.file_bytes());
    std::vector<uint32_t> checksums;
    for (size_t i = 0; i < planned.layout.num_storages(); ++i) {
      checksums.push_back(crc_of_zeros(planned.layout.storage_bytes(i)));
    }
    manifest.files.push_back({.name = planned.name,
                              .size = planned.layout.file_bytes(),
                              .structure_checksum = 0,
                              .datasets = {},
                              .has_own_checksums = true,
                              .directory_checksum = planned.layout.write_rest(file, checksums)});
  }
  io::write_manifest(dir / tag, manifest);
  io::write_text_file(dir / "latest", tag + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 7) {
      throw std::invalid_argument("make_sparse_checkpoint DIR LAYERS HIDDEN VOCABULARY RANKS STAGE");
    }
    io::TrainingProgress progress;
    progress.step = 1;
    progress.lr = 0;
    progress.dtype = "bf16";
    progress.zero_stage = std::stoi(argv[6]);
    progress.model_config_json = R"({"model_type": "llama"})";
    make(argv[1], io::DeepSpeedPlan(progress, llama(std::stoll(argv[2]), std::stoll(argv[3]), std::stoll(argv[4])),
                                    {.ranks = std::stoi(argv[5]), .optimizer = {}}));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_sparse_checkpoint: {}\n", error.what());
    return 1;
  }
}
