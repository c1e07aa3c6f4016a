#include "io/torch_save/pickle_writer.hpp"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/torch_save/pickle_opcodes.hpp"

namespace mpzero::io::pickle {
namespace {

constexpr char kProtocol = 2;

std::string code(Opcode opcode) { return {static_cast<char>(opcode)}; }

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string global(std::string_view module, std::string_view name) {
  return fmt::format("{}{}\n{}\n", code(Opcode::kGlobal), module, name);
}

std::string tuple_of(std::span<const int64_t> values) {
  std::string codes = code(Opcode::kMark);
  for (const int64_t value : values) codes += integer(value);
  return codes + code(Opcode::kTuple);
}

// Adds entries to the dict on the stack.
std::string items(const std::vector<Entry>& entries) {
  std::string codes = code(Opcode::kMark);
  for (const Entry& entry : entries) codes += entry.code;
  return codes + code(Opcode::kSetItems);
}

std::string_view storage_class(ScalarType type) {
  switch (type) {
    case ScalarType::kFloat32:
      return "FloatStorage";
    case ScalarType::kBFloat16:
      return "BFloat16Storage";
    case ScalarType::kFloat16:
      return "HalfStorage";
  }
  return "";
}

}  // namespace

std::string none() { return code(Opcode::kNone); }
std::string boolean(bool value) { return code(value ? Opcode::kNewTrue : Opcode::kNewFalse); }

std::string integer(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    return code(Opcode::kBinInt) + raw(static_cast<int32_t>(value));
  }
  return code(Opcode::kLong1) + static_cast<char>(sizeof value) + raw(value);
}

std::string number(double value) {
  return code(Opcode::kBinFloat) + raw(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

std::string text(std::string_view value) {
  return code(Opcode::kBinUnicode).append(raw(static_cast<uint32_t>(value.size()))).append(value);
}

std::string list(const std::vector<std::string>& values) {
  std::string codes = code(Opcode::kEmptyList) + code(Opcode::kMark);
  for (const std::string& value : values) codes += value;
  return codes + code(Opcode::kAppends);
}

std::string size(std::span<const int64_t> shape) {
  return global("torch", "Size") + tuple_of(shape) + code(Opcode::kTuple1) + code(Opcode::kReduce);
}

std::string tensor(const Tensor& tensor) {
  std::vector<int64_t> strides(tensor.shape.size());
  int64_t stride = 1;
  for (size_t i = strides.size(); i > 0; --i) {
    strides[i - 1] = stride;
    if (i > 1) stride *= tensor.shape[i - 1];
  }
  const std::string mark = code(Opcode::kMark), tuple = code(Opcode::kTuple);
  const std::string storage = mark + text("storage") + global("torch", storage_class(tensor.type)) +
                              text(tensor.storage) + text("cpu") + integer(tensor.storage_numel) + tuple +
                              code(Opcode::kBinPersId);
  const std::string requires_grad = boolean(false), backward_hooks = ordered_dict({});
  return global("torch._utils", "_rebuild_tensor_v2") + mark + storage + integer(tensor.offset) +
         tuple_of(tensor.shape) + tuple_of(strides) + requires_grad + backward_hooks + tuple + code(Opcode::kReduce);
}

std::string json(const nlohmann::json& value) {
  using Type = nlohmann::json::value_t;
  switch (value.type()) {
    case Type::object: {
      std::vector<Entry> entries;
      for (const auto& [key, item] : value.items()) entries.emplace_back(key, json(item));
      return dict(entries);
    }
    case Type::array: {
      std::vector<std::string> values;
      for (const nlohmann::json& item : value) values.push_back(json(item));
      return list(values);
    }
    case Type::string:
      return text(value.get_ref<const std::string&>());
    case Type::boolean:
      return boolean(value.get<bool>());
    case Type::number_unsigned:
      if (value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return number(value.get<double>());
      }
      return integer(value.get<int64_t>());
    case Type::number_integer:
      return integer(value.get<int64_t>());
    case Type::number_float:
      return number(value.get<double>());
    default:
      return none();
  }
}

std::string dict(const std::vector<Entry>& entries) { return code(Opcode::kEmptyDict) + items(entries); }

std::string ordered_dict(const std::vector<Entry>& entries) {
  return global("collections", "OrderedDict") + code(Opcode::kEmptyTuple) + code(Opcode::kReduce) + items(entries);
}

std::string object(std::string_view module, std::string_view name, const std::vector<Entry>& members) {
  return global(module, name) + code(Opcode::kEmptyTuple) + code(Opcode::kNewObj) + dict(members) +
         code(Opcode::kBuild);
}

std::string dump(const std::string& value) { return code(Opcode::kProto) + kProtocol + value + code(Opcode::kStop); }

}  // namespace mpzero::io::pickle
