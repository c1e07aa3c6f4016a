#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_source.hpp"
#include "io/weights/parameter_stream.hpp"

namespace mpzero::io {

// Hugging Face weights: a folder with model.safetensors, or model.safetensors.index.json and its shards; F32, BF16,
// F16. Opening checks every header against its file's size, and the index against the headers. A missing tensor or
// another shape throws UserError naming tensor and file. May be used from several threads at once.
class SafetensorsSource final : public ParameterSource {
 public:
  explicit SafetensorsSource(std::filesystem::path folder);
  ~SafetensorsSource() override;
  SafetensorsSource(SafetensorsSource&&) noexcept;

  bool contains(const std::string& name) const;
  // All tensors, by name.
  std::vector<ParameterSpec> parameters() const;
  // What should be known of the folder, one sentence each.
  std::span<const std::string> warnings() const;
  // Throws as read() does where the tensor cannot be read at all, without reading it.
  void check(const ParameterSpec& parameter) const;
  // The file that holds it; throws as check().
  const std::filesystem::path& file_of(const ParameterSpec& parameter) const;
  // Any value, also NaN and infinities.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether the folder has a file by which SafetensorsSource begins; also where the system does not let one see.
bool has_safetensors(const std::filesystem::path& folder);

// Writes weights into the existing `folder` under the names that Hugging Face gives them: model.safetensors, or
// model-00001-of-0000N.safetensors and model.safetensors.index.json when they exceed `max_shard_bytes` (a single larger
// tensor gets a shard to itself). Streams: holds a few MiB for each thread, and reads `source` from several threads.
// All files are synced. Returns their names.
std::vector<std::string> write_safetensors(const std::filesystem::path& folder,
                                           std::span<const ParameterSpec> parameters, const ParameterSource& source,
                                           int64_t max_shard_bytes, const OnWritten& on_written = nullptr,
                                           WeightType type = WeightType::kFloat32, FileSystem& file_system = disk());

}  // namespace mpzero::io
