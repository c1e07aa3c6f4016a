#include "io/weights/weight_file.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/damaged.hpp"
#include "io/torch_save/zip_reader.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr size_t kConversionFloats = size_t{1} << 18;  // 512 KiB of 16-bit values: stays in the cache

void read_16bit(const File& file, int64_t offset, std::span<float> out, float (*convert)(uint16_t)) {
  std::vector<uint16_t> bits(std::min(out.size(), kConversionFloats));
  for (size_t done = 0; done < out.size(); done += bits.size()) {
    bits.resize(std::min(bits.size(), out.size() - done));
    file.read(offset + static_cast<int64_t>(done * sizeof(uint16_t)), std::as_writable_bytes(std::span(bits)));
    std::transform(bits.begin(), bits.end(), out.begin() + static_cast<std::ptrdiff_t>(done), convert);
  }
}

class SafetensorsFile final : public WeightFile {
 public:
  explicit SafetensorsFile(const fs::path& path) : file_(File::open_for_reading(path)) {
    tensors_ = read_safetensors_header(file_);
  }

  const fs::path& path() const override { return file_.path(); }
  void read(const std::string& name, int64_t begin, std::span<float> out) const override {
    const StoredTensor& tensor = tensors_.at(name);
    const int64_t offset = tensor.offset + begin * element_bytes(tensor.dtype);
    if (tensor.dtype == "F32") {
      file_.read(offset, std::as_writable_bytes(out));
    } else {
      read_16bit(file_, offset, out, tensor.dtype == "BF16" ? &from_bfloat16 : &from_float16);
    }
  }

 private:
  File file_;
};

// Runs a call into the reader of checkpoints, whose sentences advise to choose another checkpoint.
template <typename Call>
auto with_remedy_for_weights(const Call& call) {
  try {
    return call();
  } catch (const UserError& error) {
    std::string text = error.what();
    if (const size_t at = text.find(kChooseAnother); at != std::string::npos) {
      text.replace(at, std::string_view(kChooseAnother).size(),
                   "copy or download it again, or save it as safetensors (save_pretrained of transformers)");
    }
    throw UserError(text);
  }
}

// Before version 1.6, torch.save wrote pickles one after another, not a ZIP archive.
void refuse_old_format(const File& file) {
  constexpr std::byte kPickle{0x80};
  std::byte first{};
  if (file.size() < 1) return;
  file.read(0, std::span(&first, 1));
  if (first != kPickle) return;
  throw_user_error(
      "{} has the format of torch before version 1.6, which is not read: load it with torch.load and save it again",
      file.path().string());
}

std::string dtype_of(pickle::ScalarType type) {
  switch (type) {
    case pickle::ScalarType::kFloat32:
      return "F32";
    case pickle::ScalarType::kBFloat16:
      return "BF16";
    case pickle::ScalarType::kFloat16:
      return "F16";
  }
  return "";
}

class TorchFile final : public WeightFile {
 public:
  explicit TorchFile(File file) : archive_(std::move(file)) {
    for (const auto& [name, value] : archive_.root().entries()) {
      const pickle::Tensor tensor = value.tensor();
      archive_.check(tensor);
      const bool is_new = places_.emplace(name, tensor).second;
      if (!is_new) throw_user_error("{} holds tensor {} twice; {}", path().string(), name, kChooseAnother);
      tensors_[name] = {.dtype = dtype_of(tensor.type),
                        .shape = tensor.shape,
                        .offset = 0,
                        .bytes = tensor.numel * pickle::bytes_of(tensor.type)};
    }
  }

  const fs::path& path() const override { return archive_.path(); }
  void read(const std::string& name, int64_t begin, std::span<float> out) const override {
    with_remedy_for_weights([&] { archive_.read(places_.at(name), begin, out); });
  }
  std::vector<std::string> checksums_of_what_was_read() const override { return archive_.checksums_of_what_was_read(); }
  void verify(std::span<const std::string> lines) const override {
    with_remedy_for_weights([&] { archive_.verify(lines); });
  }

 private:
  mutable TorchZipReader archive_;  // records what is read
  std::map<std::string, pickle::Tensor> places_;
};

}  // namespace

std::unique_ptr<WeightFile> open_weight_file(const fs::path& path) {
  if (path.extension() != ".bin") return std::make_unique<SafetensorsFile>(path);
  File file = File::open_for_reading(path);
  refuse_old_format(file);
  return with_remedy_for_weights([&] { return std::make_unique<TorchFile>(std::move(file)); });
}

}  // namespace mpzero::io
