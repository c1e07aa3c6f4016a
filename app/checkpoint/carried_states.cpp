#include "app/checkpoint/carried_states.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

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

// Lists the ranks that satisfy `is`: "rank 1", "ranks 0 and 2"; empty if there are none.
std::string ranks_where(std::span<const CarriedFound> found, const auto& is) {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (is(found[rank])) ranks.push_back(rank);
  }
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const size_t last = ranks.back();
  ranks.pop_back();
  return fmt::format("ranks {} and {}", fmt::join(ranks, ", "), last);
}

std::string describe(int64_t nodes, int64_t ranks_per_node) {
  return fmt::format("{} of {}", counted(nodes, "shard group"), counted(ranks_per_node, "rank"));
}

// Reads the `wanted` values from this rank's file and updates `found`. Returns std::nullopt if the file is missing or
// damaged.
std::optional<io::StoredCarried> read_file(const io::StoredCheckpoint& checkpoint, int rank,
                                           std::span<const io::CarriedValues> wanted, CarriedFound& found) {
  try {
    std::optional<io::StoredCarried> stored = checkpoint.carried(rank, wanted);
    found.is_there = stored.has_value();
    return stored;
  } catch (const Damaged& error) {
    found.is_there = true;
    found.damage = error.what();
    return std::nullopt;
  }
}

void note_stored(const io::StoredCarried& stored, std::span<const io::CarriedValues> wanted, CarriedFound& found) {
  found.nodes = stored.nodes;
  found.ranks_per_node = stored.ranks_per_node;
  found.gradients = found.parameters = true;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!stored.values[i]) (wanted[i].name == kResidual ? found.gradients : found.parameters) = false;
  }
}

std::vector<CarriedFound> of_all_ranks(ProcessGroup& group, const CarriedFound& mine) {
  using Message = std::tuple<int64_t, bool, std::string, int64_t, int64_t, bool, bool>;
  std::vector<CarriedFound> found;
  for (const auto& [holders, is_there, damage, nodes, ranks_per_node, gradients, parameters] :
       all_gather(group, Message(mine.holders, mine.is_there, mine.damage, mine.nodes, mine.ranks_per_node,
                                 mine.gradients, mine.parameters))) {
    found.push_back({holders, is_there, damage, nodes, ranks_per_node, gradients, parameters});
  }
  return found;
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

std::vector<std::string> sentences(const io::StoredCheckpoint& checkpoint, const CarriedChoice& choice) {
  const std::string folder = checkpoint.folder().string();
  if (!choice.left_out.empty()) {
    return {fmt::format("{}: discarded the compression state of shard groups, because {}{}.", folder, choice.left_out,
                        describe_loss(checkpoint.progress().settings_json))};
  }
  std::vector<std::string> all;
  const auto add = [&](const char* what, const char* missing, const std::string& ranks) {
    if (ranks.empty()) return;
    all.push_back(fmt::format(
        "{}: {} found no {} with this run's shapes and dtype; compression of {} starts without error feedback.", folder,
        ranks, missing, what));
  };
  add("gradients", "error feedback of gradients", choice.gradients_missing);
  add("parameters", "error feedback of parameters", choice.parameters_missing);
  return all;
}

std::vector<parallel::Carried> tensors_of(const io::StoredCarried& stored, const std::vector<UnitSpec>& units,
                                          const parallel::ZeroEngine& engine, const CarriedChoice& choice) {
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
    take(like.gradient_residual, choice.gradients, carried[u].gradient_residual);
    take(like.parameters, choice.parameters, carried[u].parameters);
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

CarriedChoice choose_carried(std::span<const CarriedFound> found, const parallel::ParallelLayout& layout,
                             bool needs_gradients, bool needs_parameters) {
  CarriedChoice choice;
  if (!needs_gradients && !needs_parameters) {
    choice.left_out = "this run does not use compression";
    return choice;
  }
  for (const CarriedFound& one : found) {
    if (one.holders != std::ssize(found)) {
      choice.left_out =
          fmt::format("the checkpoint has {}, but this run has {}", counted(one.holders, "rank"), found.size());
      return choice;
    }
    const bool is_known = one.is_there && one.damage.empty();
    if (is_known && (one.nodes != layout.nodes || one.ranks_per_node != layout.ranks_per_node)) {
      choice.left_out =
          fmt::format("the checkpoint has {}, but this run has {}", describe(one.nodes, one.ranks_per_node),
                      describe(layout.nodes, layout.ranks_per_node));
      return choice;
    }
  }
  choice.damaged = std::ranges::any_of(found, [](const CarriedFound& one) { return !one.damage.empty(); });
  if (needs_gradients) {
    choice.gradients_missing = ranks_where(found, [](const CarriedFound& one) { return !one.gradients; });
  }
  if (needs_parameters) {
    choice.parameters_missing = ranks_where(found, [](const CarriedFound& one) { return !one.parameters; });
  }
  choice.gradients = needs_gradients && choice.gradients_missing.empty();
  choice.parameters = needs_parameters && choice.parameters_missing.empty();
  return choice;
}

std::vector<parallel::Carried> read_carried(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                            const std::vector<UnitSpec>& units, const parallel::ZeroEngine& engine,
                                            ProcessGroup& group, std::vector<std::string>& warnings) {
  const std::vector<io::CarriedValues> wanted = carried_values(units, engine);
  const auto needs = [&](const char* name) {
    return std::ranges::any_of(wanted, [&](const io::CarriedValues& values) { return values.name == name; });
  };
  CarriedFound mine;
  mine.holders = checkpoint.carrying_ranks();
  std::optional<io::StoredCarried> stored;
  run_on_all_ranks(group, [&] {
    // If the number of ranks differs, the state is discarded without being read.
    if (wanted.empty() || mine.holders != group.world_size()) return;
    stored = read_file(checkpoint, group.rank(), wanted, mine);
    if (stored) note_stored(*stored, wanted, mine);
  });
  const std::vector<CarriedFound> found = of_all_ranks(group, mine);
  const std::string folder = checkpoint.folder().string();
  if (std::ranges::all_of(found, [](const CarriedFound& one) { return one.holders == 0; })) {
    if (engine.carries()) {
      warnings.push_back(fmt::format(
          "{} contains no compression state of shard groups; compression starts without error feedback.", folder));
    }
    return {};
  }
  const CarriedChoice choice = choose_carried(found, setup.layout, needs(kResidual), needs(kParameters));
  if (choice.damaged) {
    run_on_all_ranks(group, [&] {
      if (!mine.damage.empty()) throw Damaged(mine.damage);
    });
  }
  for (std::string& sentence : sentences(checkpoint, choice)) warnings.push_back(std::move(sentence));
  if (!choice.gradients && !choice.parameters) return {};
  return tensors_of(*stored, units, engine, choice);
}

}  // namespace mpzero
