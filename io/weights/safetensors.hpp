#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/weights/parameter_stream.hpp"
#include "io/weights/weight_source.hpp"

namespace mpzero::io {

// Hugging Face weights: a folder with model.safetensors, or model.safetensors.index.json and its shards; F32, BF16,
// F16. Opening checks every header against its file's size, and the index against the headers. A missing tensor or a
// different shape throws UserError naming tensor and file. Thread-safe.
class SafetensorsSource final : public WeightSource {
 public:
  explicit SafetensorsSource(std::filesystem::path folder);
  ~SafetensorsSource() override;
  SafetensorsSource(SafetensorsSource&&) noexcept;

  bool contains(const std::string& name) const;
  // By name.
  std::vector<ParameterSpec> parameters() const override;
  std::span<const std::string> warnings() const override;
  void check(const ParameterSpec& parameter) const override;
  const std::filesystem::path& file_of(const ParameterSpec& parameter) const override;
  // Any value, including NaN and infinities.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether the folder has one of the files that SafetensorsSource opens first. Also true if the system cannot tell.
bool has_safetensors(const std::filesystem::path& folder);

// Writes weights into the existing `folder` under Hugging Face's names: model.safetensors, or
// model-00001-of-0000N.safetensors and model.safetensors.index.json if they exceed `max_shard_bytes` (a larger tensor
// gets its own shard). Streams: holds a few MiB per thread, and reads `source` from several threads. All files are
// synced. Returns their names.
std::vector<std::string> write_safetensors(const std::filesystem::path& folder,
                                           std::span<const ParameterSpec> parameters, const ParameterSource& source,
                                           int64_t max_shard_bytes, const OnWritten& on_written = nullptr,
                                           WeightType type = WeightType::kFloat32, FileSystem& file_system = disk());

}  // namespace mpzero::io
