#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_source.hpp"

namespace mpzero::io {

// Hugging Face weights: a folder with model.safetensors, or model.safetensors.index.json and its shards; F32, BF16, F16.
// A missing tensor or another shape throws UserError naming tensor and file.
class SafetensorsSource final : public ParameterSource {
 public:
  explicit SafetensorsSource(std::filesystem::path folder);
  ~SafetensorsSource() override;
  bool contains(const std::string& name) const;
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpzero::io
