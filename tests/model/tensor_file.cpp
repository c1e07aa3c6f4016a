#include "tests/model/tensor_file.hpp"

#include <ATen/ops/empty.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace mpzero::model {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) throw std::runtime_error("cannot read " + path.string());
  return text.str();
}

}  // namespace

std::map<std::string, at::Tensor> read_tensor_file(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof(header_size));
  const auto header = nlohmann::json::parse(bytes.substr(8, header_size));
  const std::map<std::string, at::ScalarType> types{{"F32", at::kFloat}, {"BF16", at::kBFloat16}, {"I64", at::kLong}};
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    at::Tensor tensor =
        at::empty(entry["shape"].get<std::vector<int64_t>>(), types.at(entry["dtype"].get<std::string>()));
    const size_t begin = entry["data_offsets"][0].get<size_t>();
    std::memcpy(tensor.mutable_data_ptr(), bytes.data() + 8 + header_size + begin, tensor.nbytes());
    tensors[name] = tensor;
  }
  return tensors;
}

at::Tensor read_uint16_npy(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  uint16_t header_size = 0;
  std::memcpy(&header_size, bytes.data() + 8, sizeof(header_size));
  const size_t data = 10 + header_size;
  if (bytes.substr(0, data).find("'<u2'") == std::string::npos)
    throw std::runtime_error("not uint16: " + path.string());
  at::Tensor values = at::empty({static_cast<int64_t>((bytes.size() - data) / 2)}, at::kLong);
  for (int64_t i = 0; i < values.size(0); ++i) {
    uint16_t value = 0;
    std::memcpy(&value, bytes.data() + data + 2 * static_cast<size_t>(i), sizeof(value));
    values.mutable_data_ptr<int64_t>()[i] = value;
  }
  return values;
}

}  // namespace mpzero::model
