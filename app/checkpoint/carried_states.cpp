#include "app/checkpoint/carried_states.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

constexpr const char* kResidual = "gradient_residual";
constexpr const char* kParameters = "parameters";

io::CarriedValues values_like(const std::string& unit, const char* name, const at::Tensor& tensor) {
  return {.unit = unit, .name = name, .shape = tensor.sizes().vec(), .is_bf16 = tensor.scalar_type() == at::kBFloat16};
}

// Describes the tensors of all units, in the order of carried_tensors().
std::vector<io::CarriedValues> carried_values(const std::vector<UnitSpec>& units, const parallel::ZeroEngine& engine) {
  std::vector<io::CarriedValues> values;
  for (size_t u = 0; u < units.size(); ++u) {
    const parallel::Carried like = engine.like_carried(u);
    if (like.gradient_residual.defined()) {
      values.push_back(values_like(units[u].name, kResidual, like.gradient_residual));
    }
    if (like.parameters.defined()) values.push_back(values_like(units[u].name, kParameters, like.parameters));
  }
  return values;
}

using Fetch = std::function<std::span<const std::byte>(size_t)>;

std::shared_ptr<const io::CarriedState> state_of(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                                 const parallel::ZeroEngine& engine, Fetch fetch) {
  return std::make_shared<io::CarriedState>(io::CarriedState{.nodes = setup.layout.nodes,
                                                             .ranks_per_node = setup.layout.ranks_per_node,
                                                             .values = carried_values(units, engine),
                                                             .fetch = std::move(fetch)});
}

std::string describe(int64_t nodes, int64_t ranks_per_node) {
  return fmt::format("{} of {}", counted(nodes, "shard group"), counted(ranks_per_node, "rank"));
}

// Describes the effect of discarding carried state. `settings`: JSON settings of the run that saved the checkpoint.
std::string describe_loss(const std::string& settings) {
  const nlohmann::json saved = nlohmann::json::parse(settings, nullptr, /*allow_exceptions=*/false);
  const auto compressed = [&](const char* key) {
    return saved.is_object() && saved.contains(key) && saved[key] != "none";
  };
  std::vector<const char*> parts;
  if (compressed("zero_quantized_gradients")) {
    parts.push_back("the error feedback of gradients (smaller than the rounding error of one step)");
  }
  if (compressed("zero_quantized_weights")) {
    parts.push_back("the error feedback of parameters");
  }
  return parts.empty() ? "" : fmt::format("; this run starts without {}", fmt::join(parts, " and "));
}

std::vector<parallel::Carried> tensors_of(const io::StoredCarried& stored, const std::vector<UnitSpec>& units,
                                          const parallel::ZeroEngine& engine, bool gradients, bool parameters) {
  std::vector<parallel::Carried> carried(units.size());
  size_t index = 0;
  const auto take = [&](const at::Tensor& like, bool wanted, at::Tensor& into) {
    if (!like.defined()) return;
    const auto& bytes = stored.values[index++];
    if (!wanted) return;
    // from_blob requires a mutable pointer, but only clone() reads it.
    into = at::from_blob(const_cast<std::byte*>(bytes->data()), like.sizes(), like.scalar_type()).clone();
  };
  for (size_t u = 0; u < units.size(); ++u) {
    const parallel::Carried like = engine.like_carried(u);
    take(like.gradient_residual, gradients, carried[u].gradient_residual);
    take(like.parameters, parameters, carried[u].parameters);
  }
  return carried;
}

}  // namespace

bool saves_carried(const RunSetup& setup, const parallel::ZeroEngine& engine) {
  return engine.carries() && !setup.config.deepspeed_format;
}

std::shared_ptr<const io::CarriedState> carried_in(StateSnapshot& snapshot, const RunSetup& setup,
                                                   const std::vector<UnitSpec>& units,
                                                   const parallel::ZeroEngine& engine) {
  if (!saves_carried(setup, engine)) return nullptr;
  return state_of(setup, units, engine, [&snapshot](size_t index) {
    snapshot.wait();
    return snapshot.carried(index);
  });
}

std::shared_ptr<const io::CarriedState> carried_now(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                                    parallel::ZeroEngine& engine) {
  if (!saves_carried(setup, engine)) return nullptr;
  std::vector<parallel::Carried> carried;
  for (size_t u = 0; u < units.size(); ++u) carried.push_back(engine.carried(u));
  return state_of(setup, units, engine,
                  [tensors = carried_tensors(carried), on_host = at::Tensor()](size_t index) mutable {
                    on_host = tensors[index].cpu().contiguous();
                    return std::span(static_cast<const std::byte*>(on_host.const_data_ptr()), on_host.nbytes());
                  });
}

std::vector<parallel::Carried> read_carried(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                            const std::vector<UnitSpec>& units, const parallel::ZeroEngine& engine,
                                            ProcessGroup& group, std::vector<std::string>& warnings) {
  const std::vector<io::CarriedValues> wanted = carried_values(units, engine);
  // If another process replaces the checkpoint, ranks may count different files until verify_what_was_read().
  const int64_t holders = min(group, checkpoint.carrying_ranks());
  const std::string folder = checkpoint.folder().string();
  const auto discard = [&](const std::string& reason) -> std::vector<parallel::Carried> {
    warnings.push_back(fmt::format("{}: discarded the compression state of shard groups, because {}{}.", folder, reason,
                                   describe_loss(checkpoint.progress().settings_json)));
    return {};
  };
  if (holders == 0) {
    if (!wanted.empty()) {
      warnings.push_back(fmt::format(
          "{} contains no compression state of shard groups; compression starts without error feedback.", folder));
    }
    return {};
  }
  if (wanted.empty()) return discard("this run does not use compression");
  if (holders != group.world_size()) {
    return discard(
        fmt::format("the checkpoint has {}, but this run has {}", counted(holders, "rank"), group.world_size()));
  }
  std::optional<io::StoredCarried> stored;
  std::exception_ptr damage;
  run_on_all_ranks(group, [&] {
    try {
      stored = checkpoint.carried(group.rank(), wanted);
    } catch (const Damaged&) {
      damage = std::current_exception();
    }
  });
  // If the layout differs, the state is discarded, so damaged files do not matter.
  const std::pair<int64_t, int64_t> own(setup.layout.nodes, setup.layout.ranks_per_node);
  for (const auto& saved : all_gather(group, stored ? std::pair(stored->nodes, stored->ranks_per_node) : own)) {
    if (saved == own) continue;
    return discard(fmt::format("the checkpoint has {}, but this run has {}", describe(saved.first, saved.second),
                               describe(own.first, own.second)));
  }
  run_on_all_ranks(group, [&] {
    if (damage) std::rethrow_exception(damage);
  });
  const auto restores = [&](const char* name, const char* what) {
    bool needed = false, found = stored.has_value();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].name != name) continue;
      needed = true;
      found = found && stored->values[i];
    }
    if (!needed || all(group, found)) return needed;
    warnings.push_back(
        fmt::format("{} has no error feedback of {} with this run's shapes and dtype; compression of {} starts without "
                    "error feedback.",
                    folder, what, what));
    return false;
  };
  const bool gradients = restores(kResidual, "gradients");
  const bool parameters = restores(kParameters, "parameters");
  if (!gradients && !parameters) return {};
  return tensors_of(*stored, units, engine, gradients, parameters);
}

}  // namespace mpzero
