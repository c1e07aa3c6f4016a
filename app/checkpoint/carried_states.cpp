#include "app/checkpoint/carried_states.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <optional>

#include "base/collectives.hpp"

namespace mpzero {
namespace {

constexpr const char* kResidual = "gradient_residual";
constexpr const char* kParameters = "parameters";

io::CarriedValues copy_values(const std::string& unit, const char* name, const at::Tensor& values) {
  const auto copy = std::make_shared<at::Tensor>(values.detach().to(at::kCPU, values.scalar_type(), false, true));
  return {.unit = unit,
          .name = name,
          .shape = copy->sizes().vec(),
          .is_bf16 = copy->scalar_type() == at::kBFloat16,
          .bytes = {static_cast<const std::byte*>(copy->const_data_ptr()), copy->nbytes()},
          .owner = copy};
}

// The values of that unit and name as a tensor; std::nullopt unless they are like `now`, which is what the run has.
std::optional<at::Tensor> find(const io::CarriedState& state, const std::string& unit, const char* name,
                               const at::Tensor& now) {
  for (const io::CarriedValues& values : state.values) {
    if (values.unit != unit || values.name != name) continue;
    if (now.sizes() != at::IntArrayRef(values.shape)) return std::nullopt;
    if ((now.scalar_type() == at::kBFloat16) != values.is_bf16) return std::nullopt;
    // from_blob wants a mutable pointer; the clone is the only reader.
    auto* const bytes = const_cast<std::byte*>(values.bytes.data());
    return at::from_blob(bytes, values.shape, now.scalar_type()).clone();
  }
  return std::nullopt;
}

// All that the run carries, as the checkpoint has it; std::nullopt where it lacks any of it.
std::optional<std::vector<parallel::Carried>> match(const io::CarriedState& state, const RunSetup& setup,
                                                    const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine) {
  if (state.nodes != setup.layout.nodes || state.ranks_per_node != setup.layout.ranks_per_node) return std::nullopt;
  std::vector<parallel::Carried> carried(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    const parallel::Carried now = engine.carried(u);
    const auto take = [&](const at::Tensor& values, const char* name, at::Tensor& into) {
      if (!values.defined()) return true;
      const std::optional<at::Tensor> found = find(state, units[u].name, name, values);
      if (found) into = *found;
      return found.has_value();
    };
    if (!take(now.gradient_residual, kResidual, carried[u].gradient_residual) ||
        !take(now.parameters, kParameters, carried[u].parameters)) {
      return std::nullopt;
    }
  }
  return carried;
}

}  // namespace

std::shared_ptr<const io::CarriedState> copy_carried(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                                     parallel::ZeroEngine& engine) {
  if (!engine.carries() || setup.config.deepspeed_format) return nullptr;
  auto state = std::make_shared<io::CarriedState>();
  state->nodes = setup.layout.nodes;
  state->ranks_per_node = setup.layout.ranks_per_node;
  for (size_t u = 0; u < units.size(); ++u) {
    const parallel::Carried carried = engine.carried(u);
    if (carried.gradient_residual.defined()) {
      state->values.push_back(copy_values(units[u].name, kResidual, carried.gradient_residual));
    }
    if (carried.parameters.defined()) {
      state->values.push_back(copy_values(units[u].name, kParameters, carried.parameters));
    }
  }
  return state;
}

std::vector<parallel::Carried> read_carried(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                            const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
                                            ProcessGroup& group, std::vector<std::string>& warnings) {
  std::optional<io::CarriedState> state;
  run_on_all_ranks(group, [&] { state = checkpoint.carried(group.rank()); });
  const bool holds_any = any(group, state.has_value());
  if (!holds_any && !engine.carries()) return {};
  const std::string folder = checkpoint.folder().string();
  if (!holds_any) {
    warnings.push_back(
        fmt::format("{} holds nothing of the compression between nodes, as its run did not compress or could not save "
                    "it: this run begins to compress as a new run does.",
                    folder));
    return {};
  }
  std::optional<std::vector<parallel::Carried>> carried;
  if (state && engine.carries()) carried = match(*state, setup, units, engine);
  if (all(group, carried.has_value())) return *carried;
  warnings.push_back(
      fmt::format("{} holds what compression between {} nodes had not sent yet, which is left out: this run {}; that "
                  "changes the sum of its gradients by less than one step's rounding.",
                  folder, state ? fmt::to_string(state->nodes) : std::string("its"),
                  engine.carries() ? "has other nodes, or compresses other values" : "does not compress"));
  return {};
}

}  // namespace mpzero
