#include "io/weights/folder_weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/damaged.hpp"
#include "io/torch_save/zip_reader.hpp"
#include "io/weights/export_folder.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

class SafetensorsFile final : public WeightFile {
 public:
  explicit SafetensorsFile(const fs::path& path) : file_(File::open_for_reading(path)) {
    tensors_ = read_safetensors_header(file_);
  }

  const fs::path& path() const override { return file_.path(); }
  void read(const std::string& name, int64_t begin, std::span<float> out) const override {
    const StoredTensor& tensor = tensors_.at(name);
    const int64_t offset = tensor.offset + begin * element_bytes(tensor.dtype);
    const auto read = [&](int64_t position, std::span<std::byte> bytes) { file_.read(offset + position, bytes); };
    if (tensor.dtype == "F32") {
      read(0, std::as_writable_bytes(out));
    } else {
      read_16bit(out, tensor.dtype == "BF16" ? Widening(from_bfloat16) : Widening(from_float16), read);
    }
  }

 private:
  File file_;
};

// Runs `call` and replaces the remedy in its error, which applies only to checkpoints.
template <typename Call>
auto with_remedy_for_weights(const Call& call) {
  try {
    return call();
  } catch (const UserError& error) {
    std::string text = error.what();
    if (const size_t at = text.find(kChooseAnother); at != std::string::npos) {
      text.replace(at, std::string_view(kChooseAnother).size(),
                   "copy or download it again, or save it as safetensors (transformers' save_pretrained)");
    }
    throw UserError(text);
  }
}

// Before version 1.6, torch.save wrote consecutive pickles instead of a ZIP archive.
void refuse_old_format(const File& file) {
  constexpr std::byte kPickle{0x80};
  std::byte first{};
  if (file.size() < 1) return;
  file.read(0, std::span(&first, 1));
  if (first != kPickle) return;
  throw_user_error(
      "{} was saved in the format of PyTorch < 1.6, which is not supported; load it with torch.load and save it again",
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
      if (!is_new) throw_user_error("{} contains tensor {} twice; {}", path().string(), name, kChooseAnother);
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
  mutable TorchZipReader archive_;  // read() records checksums
  std::map<std::string, pickle::Tensor> places_;
};

}  // namespace

std::unique_ptr<WeightFile> open_weight_file(const fs::path& path) {
  if (path.extension() != ".bin") return std::make_unique<SafetensorsFile>(path);
  File file = File::open_for_reading(path);
  refuse_old_format(file);
  return with_remedy_for_weights([&] { return std::make_unique<TorchFile>(std::move(file)); });
}

namespace {

// File names of unsharded weights and of the index of shards.
using EntryNames = std::array<const char*, 2>;
constexpr EntryNames kSafetensorsNames = {"model.safetensors", "model.safetensors.index.json"};
constexpr EntryNames kTorchNames = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
constexpr JsonLimits kIndexLimits{.bytes = size_t{1} << 28};

struct Index {
  std::map<std::string, std::string> shard_of;  // tensor name to file name
  json total_size;                              // bytes according to the index; null if missing
};

Index read_index(const fs::path& path) {
  const json index =
      parse_user_json(read_text_file(path, static_cast<int64_t>(kIndexLimits.bytes)), path.string(), kIndexLimits);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw_user_error("{} has no weight_map; copy or download it again", path.string());
  }
  Index read;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos) {
      throw_user_error("{} maps tensor {} to '{}', which is not a file in its folder; copy or download it again",
                       path.string(), tensor, name);
    }
    read.shard_of.emplace(tensor, name);
  }
  if (const auto metadata = index.find("metadata"); metadata != index.end() && metadata->is_object()) {
    read.total_size = metadata->value("total_size", json());
  }
  return read;
}

std::string text_of(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool has_one_of(const fs::path& folder, std::span<const char* const> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) {
    std::error_code error;
    return fs::symlink_status(folder / name, error).type() != fs::file_type::not_found;
  });
}

}  // namespace

bool has_safetensors(const fs::path& folder) { return has_one_of(folder, kSafetensorsNames); }
bool has_other_weights(const fs::path& folder) {
  return has_one_of(folder, kTorchNames) || has_one_of(folder, {&kHdf5Name, 1});
}

struct FolderWeights::Impl {
  struct Location {
    const WeightFile* file;
    const StoredTensor* tensor;
  };

  explicit Impl(fs::path path) : folder(std::move(path)), names(choose_names()) {
    std::error_code error;
    const fs::path single = folder / names[0], index = folder / names[1];
    if (fs::exists(single, error)) {
      for (const auto& [name, tensor] : open(names[0]).tensors()) {
        tensors.emplace(name, Location{files.back().get(), &tensor});
      }
      if (fs::exists(index, error)) {
        warnings.push_back(
            fmt::format("{} is ignored because {} exists, as in transformers.", index.string(), names[0]));
      }
      return;
    }
    read_shards(read_index(index));
  }

  // The order of precedence matches transformers.
  EntryNames choose_names() const {
    std::error_code error;
    for (const EntryNames& candidate : {kSafetensorsNames, kTorchNames}) {
      for (const char* name : candidate) {
        if (fs::exists(folder / name, error)) return candidate;
      }
    }
    if (fs::exists(folder / kHdf5Name, error)) {
      throw_user_error(
          "{} contains weights as {}, which is not supported; export the weights again without --format hdf5",
          folder.string(), kHdf5Name);
    }
    if (is_folder(folder)) refuse_foreign(OpenFolder(folder));
    throw_user_error("{} contains neither {} nor {} nor an index of shards; use a folder with Hugging Face weights",
                     folder.string(), kSafetensorsNames[0], kTorchNames[0]);
  }

  // Checks that each tensor in the index is in its shard and that the shards contain no other tensors.
  void read_shards(const Index& index) {
    const auto& shard_of = index.shard_of;
    std::set<std::string> shards;
    std::error_code error;
    for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
    for (const std::string& shard : shards) {
      if (!fs::exists(folder / shard, error)) {
        throw_user_error("{} is listed in {}, but the file is missing; copy or download the folder again",
                         (folder / shard).string(), names[1]);
      }
      for (const auto& [name, tensor] : open(shard).tensors()) {
        const auto listed = shard_of.find(name);
        if (listed == shard_of.end() || listed->second != shard) {
          throw_user_error("tensor {} is in {}, but {} {}; copy or download the folder again", name,
                           (folder / shard).string(), names[1],
                           listed == shard_of.end() ? "does not list the tensor" : "lists it in " + listed->second);
        }
        tensors.emplace(name, Location{files.back().get(), &tensor});
      }
    }
    for (const auto& [tensor, shard] : shard_of) {
      if (!tensors.contains(tensor)) {
        throw_user_error("tensor {} is not in {}, but {} lists it there; copy or download the folder again", tensor,
                         (folder / shard).string(), names[1]);
      }
    }
    if (names == kSafetensorsNames)
      check_total_size(index.total_size);  // in torch.save files, tensors may share storage
  }

  // Only warns, because total_size is not used and is wrong in some published folders.
  void check_total_size(const json& total_size) {
    int64_t bytes = 0;
    for (const auto& [name, location] : tensors) bytes += location.tensor->bytes;
    if (total_size.is_null() || total_size == json(bytes)) return;
    warnings.push_back(fmt::format("{} has total_size {}, but the tensors have {} bytes.", (folder / names[1]).string(),
                                   total_size.dump(), bytes));
  }

  const Location& find(const ParameterSpec& parameter) const;

  const WeightFile& open(const std::string& name) { return *files.emplace_back(open_weight_file(folder / name)); }

  fs::path folder;
  EntryNames names;
  std::vector<std::unique_ptr<WeightFile>> files;
  std::map<std::string, Location> tensors;
  std::vector<ParameterSpec> parameters;
  std::vector<std::string> warnings;
};

const FolderWeights::Impl::Location& FolderWeights::Impl::find(const ParameterSpec& parameter) const {
  const auto found = tensors.find(parameter.name);
  if (found == tensors.end()) {
    throw_user_error("tensor {} is missing from {}; use weights of the configured model", parameter.name,
                     folder.string());
  }
  const std::string path = found->second.file->path().string();
  const StoredTensor& tensor = *found->second.tensor;
  if (tensor.shape != parameter.shape) {
    throw_user_error("tensor {} of {} has shape {}, but the model requires {}; use weights of the configured model",
                     parameter.name, path, text_of(tensor.shape), text_of(parameter.shape));
  }
  if (element_bytes(tensor.dtype) == 0) {
    throw_user_error("tensor {} of {} has dtype {}, which is not supported; convert it to F32, BF16 or F16",
                     parameter.name, path, tensor.dtype);
  }
  return found->second;
}

FolderWeights::FolderWeights(fs::path folder) : impl_(std::make_unique<Impl>(std::move(folder))) {
  for (const auto& [name, location] : impl_->tensors) impl_->parameters.push_back({name, location.tensor->shape});
}
FolderWeights::~FolderWeights() = default;
FolderWeights::FolderWeights(FolderWeights&&) noexcept = default;

bool FolderWeights::contains(const std::string& name) const { return impl_->tensors.contains(name); }

std::span<const ParameterSpec> FolderWeights::parameters() const { return impl_->parameters; }

std::span<const std::string> FolderWeights::warnings() const { return impl_->warnings; }

void FolderWeights::check(const ParameterSpec& parameter) const { impl_->find(parameter); }

const fs::path& FolderWeights::file_of(const ParameterSpec& parameter) const {
  return impl_->find(parameter).file->path();
}

void FolderWeights::read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const {
  if (begin < 0 || static_cast<int64_t>(out.size()) > parameter.numel() - begin) {
    throw_failure("elements {} to {} were requested from tensor {}, which has {} elements", begin,
                  begin + static_cast<int64_t>(out.size()), parameter.name, parameter.numel());
  }
  impl_->find(parameter).file->read(parameter.name, begin, out);
}

void FolderWeights::verify_what_was_read(ProcessGroup& group) const {
  if (impl_->names == kSafetensorsNames) return;
  std::vector<std::vector<std::string>> lines;
  for (const auto& file : impl_->files) lines.push_back(file->checksums_of_what_was_read());
  const auto of_ranks = all_gather(group, lines);
  run_on_all_ranks(group, [&] {
    const auto ranks = static_cast<size_t>(group.world_size());
    for (auto i = static_cast<size_t>(group.rank()); i < impl_->files.size(); i += ranks) {
      std::vector<std::string> of_file;
      for (const auto& of_rank : of_ranks) {
        const std::vector<std::string>& read = of_rank.at(i);
        of_file.insert(of_file.end(), read.begin(), read.end());
      }
      impl_->files[i]->verify(of_file);
    }
  });
}

}  // namespace mpzero::io
