#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/weights/safetensors.hpp"
#include "io/weights/weight_source.hpp"

namespace mpzero::io {

// One file of weights. Thread-safe.
class WeightFile {
 public:
  virtual ~WeightFile() = default;

  virtual const std::filesystem::path& path() const = 0;
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Reads elements [begin, begin + out.size()) of a tensor whose dtype has element_bytes().
  virtual void read(const std::string& name, int64_t begin, std::span<float> out) const = 0;

  // See TorchZipReader; empty for a file without checksums.
  virtual std::vector<std::string> checksums_of_what_was_read() const { return {}; }
  virtual void verify(std::span<const std::string> /*lines*/) const {}

 protected:
  std::map<std::string, StoredTensor> tensors_;
};

// Opens a torch.save file if the name ends with ".bin", else safetensors. Runs no code from a pickle. Throws UserError
// naming file and tensor.
std::unique_ptr<WeightFile> open_weight_file(const std::filesystem::path& path);

// The weights of a Hugging Face folder under the names in its files: model.safetensors, or its index and shards;
// without them pytorch_model.bin, or its index and shards. F32, BF16, F16. Opening checks every header against its
// file's size, and the index against the headers. A missing tensor or a different shape throws UserError naming tensor
// and file. Thread-safe.
class FolderWeights final : public WeightSource {
 public:
  explicit FolderWeights(std::filesystem::path folder);
  ~FolderWeights() override;
  FolderWeights(FolderWeights&&) noexcept;

  bool contains(const std::string& name) const;
  // Sorted by name.
  std::vector<ParameterSpec> parameters() const override;
  std::span<const std::string> warnings() const override;
  void check(const ParameterSpec& parameter) const override;
  const std::filesystem::path& file_of(const ParameterSpec& parameter) const override;
  // Any value, including NaN and infinities.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;
  // Files of torch.save have checksums, safetensors have none.
  void verify_what_was_read(ProcessGroup& group) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether the folder has one of the files that FolderWeights opens first. Also true if the system cannot tell.
bool has_safetensors(const std::filesystem::path& folder);
// The same for the other formats, including model.h5, which FolderWeights refuses.
bool has_other_weights(const std::filesystem::path& folder);

}  // namespace mpzero::io
