#include "io/deepspeed/without_zero.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io {
namespace {

using pickle::Kind;
using pickle::ScalarType;
using pickle::Tensor;
using pickle::Value;

// Limits the amount of data that is read when a checkpoint is opened.
constexpr int64_t kComparedValues = 16384;

struct Weight {
  std::string name;
  Value value;
  Tensor tensor;
};

// Returns each trained weight once, in the order of the model.
std::vector<Weight> read_weights(const Value& model, std::vector<StoredCheckpoint::Alias>& aliases) {
  std::set<std::string> buffers;
  if (const auto names = model.find("buffer_names"); names && !names->is_none()) {
    for (const Value& name : names->elements()) buffers.insert(name.text());
  }
  std::vector<Weight> weights;
  std::map<std::tuple<std::string, int64_t, std::vector<int64_t>>, std::string> places;
  for (const auto& [name, value] : model.at("module").entries()) {
    if (buffers.contains(name)) continue;
    const Tensor tensor = value.tensor();
    // DeepSpeed saves a tied head under both names.
    const auto [holder, is_new] = places.try_emplace({tensor.storage, tensor.offset, tensor.shape}, name);
    if (is_new || tensor.numel == 0) {
      weights.push_back({name, value, tensor});
    } else {
      aliases.push_back({name, holder->second});
    }
  }
  return weights;
}

// The optimizer's tensors by index. `flat` is true if each tensor contains all parameters of a group. `group_sizes` is
// the number of parameters per group, set only without separate master weights.
struct Slots {
  std::vector<Tensor> tensors;
  bool flat = false;
  std::vector<size_t> group_sizes;
};

using Order = std::vector<const Weight*>;

// Returns the weights of each slot if this order matches the optimizer's tensors, otherwise an empty list.
std::vector<Order> divide(const Order& weights, const Slots& slots) {
  std::vector<Order> divided;
  size_t next = 0;
  for (const Tensor& slot : slots.tensors) {
    Order& of_slot = divided.emplace_back();
    int64_t numel = 0;
    do {
      if (next == weights.size()) return {};
      of_slot.push_back(weights[next++]);
      numel += of_slot.back()->tensor.numel;
    } while (slots.flat && numel < slot.numel);
    if (slots.flat ? numel != slot.numel : of_slot.back()->tensor.shape != slot.shape) return {};
  }
  return next == weights.size() ? divided : std::vector<Order>{};
}

[[noreturn]] void throw_other_order(const std::filesystem::path& file, size_t tensors, size_t parameters) {
  throw_user_error(
      "{}: the optimizer's {} tensors have no names and do not match the order of the model's {} parameters, "
      "either in one group or in two groups split by weight decay; pass the weights as safetensors to --init_from",
      file.string(), tensors, parameters);
}

std::vector<Order> assign(const std::vector<Weight>& weights, const Slots& slots, const std::filesystem::path& file) {
  Order order;
  for (const Weight& weight : weights) order.push_back(&weight);
  const auto is_matrix = [](const Weight* weight) { return weight->tensor.shape.size() > 1; };
  Order matrices_first = order, vectors_first = order;
  std::stable_partition(matrices_first.begin(), matrices_first.end(), is_matrix);
  std::stable_partition(vectors_first.begin(), vectors_first.end(),
                        [&](const Weight* weight) { return !is_matrix(weight); });
  const auto matrices = static_cast<size_t>(std::ranges::count_if(order, is_matrix));
  const size_t vectors = order.size() - matrices;
  const std::pair<Order, std::vector<size_t>> candidates[] = {
      {order, {order.size()}}, {matrices_first, {matrices, vectors}}, {vectors_first, {vectors, matrices}}};
  for (const auto& [candidate, group_sizes] : candidates) {
    if (!slots.group_sizes.empty() && slots.group_sizes != group_sizes) continue;
    if (std::vector<Order> divided = divide(candidate, slots); !divided.empty()) return divided;
  }
  throw_other_order(file, slots.tensors.size(), weights.size());
}

float rounded(float value, ScalarType type) {
  switch (type) {
    case ScalarType::kFloat32:
      return value;
    case ScalarType::kBFloat16:
      return from_bfloat16(to_bfloat16(value));
    case ScalarType::kFloat16:
      return from_float16(to_float16(value));
  }
  return value;
}

}  // namespace

bool is_without_zero(const Value& model) {
  const auto shapes = model.find("param_shapes");
  const auto optimizer = model.find("optimizer");
  return (!shapes || shapes->is_none()) && optimizer && optimizer->kind() == Kind::kDict;
}

StatesWithoutZero read_states_without_zero(const Value& model, const std::filesystem::path& file) {
  StatesWithoutZero states;
  const std::vector<Weight> weights = read_weights(model, states.aliases);
  Value optimizer = model.at("optimizer");
  Slots slots;
  std::vector<Value> masters;
  // FP16_Optimizer and FP16_UnfusedOptimizer, also for bf16, wrap the torch optimizer and store fp32 weights.
  if (const auto flat = optimizer.find("fp32_groups_flat")) {
    slots.flat = true;
    masters = flat->elements();
  } else if (const auto groups = optimizer.find("fp32_groups")) {
    for (const Value& group : groups->elements()) {
      for (const Value& master : group.elements()) masters.push_back(master);
    }
  }
  for (const Value& master : masters) slots.tensors.push_back(master.tensor());
  if (const auto inner = optimizer.find("optimizer_state_dict")) optimizer = *inner;
  states.has_own_masters = !masters.empty();
  if (!states.has_own_masters) {
    for (const Value& group : optimizer.at("param_groups").elements()) {
      if (const size_t size = group.at("params").elements().size(); size > 0) slots.group_sizes.push_back(size);
    }
    const Value state = optimizer.at("state");
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto of_weight = state.find(static_cast<int64_t>(i));
      // Before the first update, the states are missing and equal to 0.
      slots.tensors.push_back(of_weight ? of_weight->at("exp_avg").tensor() : weights[i].tensor);
    }
  }
  for (const Order& of_slot : assign(weights, slots, file)) {
    DeepSpeedLayout::Group& group = states.groups.emplace_back();
    for (const Weight* weight : of_slot) group.parameters.push_back({weight->name, weight->tensor.shape});
    if (!states.has_own_masters) states.masters.push_back(of_slot.front()->value);
  }
  if (states.has_own_masters) states.masters = std::move(masters);
  states.optimizer = optimizer;
  return states;
}

void check_masters_are_weights(TorchZipReader& archive, const StatesWithoutZero& states) {
  const Value module = archive.root().at("module");
  size_t parameters = 0;
  bool same = true;
  for (size_t g = 0; g < states.groups.size(); ++g) {
    const Tensor master = states.masters[g].tensor();
    int64_t offset = 0;
    for (const ParameterSpec& parameter : states.groups[g].parameters) {
      const Tensor weight = module.at(parameter.name).tensor();
      std::vector<float> weights(static_cast<size_t>(std::min(weight.numel, kComparedValues))), masters(weights);
      archive.read(weight, 0, weights);
      archive.read(master, offset, masters);
      same = same && std::ranges::equal(weights, masters, [&](float computed, float value) {
               return rounded(value, weight.type) == computed || (std::isnan(value) && std::isnan(computed));
             });
      offset += weight.numel;
      ++parameters;
    }
  }
  if (same) return;
  archive.verify();  // reports damage before a different order
  throw_other_order(archive.path(), states.masters.size(), parameters);
}

}  // namespace mpzero::io
