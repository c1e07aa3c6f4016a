#include "io/torch_save/pickle_writer.hpp"

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/torch_save/pickle_opcodes.hpp"

namespace mpzero::io::pickle {
namespace {

constexpr uint8_t kProtocol = 2;

uint8_t code(Opcode opcode) { return static_cast<uint8_t>(opcode); }

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
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

Writer::Writer() {
  put(code(Opcode::kProto));
  put(kProtocol);
}

void Writer::none() { put(code(Opcode::kNone)); }
void Writer::boolean(bool value) { put(code(value ? Opcode::kNewTrue : Opcode::kNewFalse)); }

void Writer::integer(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    put(code(Opcode::kBinInt));
    append(bytes_, static_cast<int32_t>(value));
  } else {
    put(code(Opcode::kLong1));
    put(sizeof value);
    append(bytes_, value);
  }
}

void Writer::number(double value) {
  put(code(Opcode::kBinFloat));
  append(bytes_, __builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void Writer::text(std::string_view value) {
  put(code(Opcode::kBinUnicode));
  append(bytes_, static_cast<uint32_t>(value.size()));
  bytes_ += value;
}

void Writer::begin_dict() {
  put(code(Opcode::kEmptyDict));
  put(code(Opcode::kMark));
}

void Writer::begin_ordered_dict() {
  global("collections", "OrderedDict");
  put(code(Opcode::kEmptyTuple));
  put(code(Opcode::kReduce));
  put(code(Opcode::kMark));
}

void Writer::end_dict() { put(code(Opcode::kSetItems)); }

void Writer::begin_list() {
  put(code(Opcode::kEmptyList));
  put(code(Opcode::kMark));
}

void Writer::end_list() { put(code(Opcode::kAppends)); }
void Writer::begin_tuple() { put(code(Opcode::kMark)); }
void Writer::end_tuple() { put(code(Opcode::kTuple)); }

void Writer::begin_object(std::string_view module, std::string_view name) {
  global(module, name);
  put(code(Opcode::kEmptyTuple));
  put(code(Opcode::kNewObj));
  begin_dict();
}

void Writer::end_object() {
  end_dict();
  put(code(Opcode::kBuild));
}

void Writer::size(std::span<const int64_t> shape) {
  global("torch", "Size");
  tuple_of(shape);
  put(code(Opcode::kTuple1));
  put(code(Opcode::kReduce));
}

void Writer::tensor(const Tensor& tensor) {
  global("torch._utils", "_rebuild_tensor_v2");
  begin_tuple();

  begin_tuple();
  text("storage");
  global("torch", storage_class(tensor.type));
  text(tensor.storage);
  text("cpu");
  integer(tensor.storage_numel);
  end_tuple();
  put(code(Opcode::kBinPersId));

  integer(tensor.offset);
  tuple_of(tensor.shape);
  std::vector<int64_t> strides(tensor.shape.size());
  int64_t stride = 1;
  for (size_t i = strides.size(); i > 0; --i) {
    strides[i - 1] = stride;
    if (i > 1) stride *= tensor.shape[i - 1];
  }
  tuple_of(strides);
  boolean(false);  // requires_grad
  begin_ordered_dict();
  end_dict();  // no backward hooks
  end_tuple();
  put(code(Opcode::kReduce));
}

void Writer::json(const nlohmann::json& value) {
  switch (value.type()) {
    case nlohmann::json::value_t::object:
      begin_dict();
      for (const auto& [key, item] : value.items()) {
        text(key);
        json(item);
      }
      end_dict();
      return;
    case nlohmann::json::value_t::array:
      begin_list();
      for (const nlohmann::json& item : value) json(item);
      end_list();
      return;
    case nlohmann::json::value_t::string:
      text(value.get_ref<const std::string&>());
      return;
    case nlohmann::json::value_t::boolean:
      boolean(value.get<bool>());
      return;
    case nlohmann::json::value_t::number_integer:
      integer(value.get<int64_t>());
      return;
    case nlohmann::json::value_t::number_unsigned:
      if (value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        integer(value.get<int64_t>());
      } else {
        number(value.get<double>());
      }
      return;
    case nlohmann::json::value_t::number_float:
      number(value.get<double>());
      return;
    default:
      none();
  }
}

std::string Writer::finish() {
  put(code(Opcode::kStop));
  return std::move(bytes_);
}

void Writer::global(std::string_view module, std::string_view name) {
  put(code(Opcode::kGlobal));
  bytes_ += module;
  bytes_ += '\n';
  bytes_ += name;
  bytes_ += '\n';
}

void Writer::tuple_of(std::span<const int64_t> values) {
  begin_tuple();
  for (const int64_t value : values) integer(value);
  end_tuple();
}

}  // namespace mpzero::io::pickle
