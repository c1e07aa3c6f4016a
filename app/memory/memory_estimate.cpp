#include "app/memory/memory_estimate.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "app/config/zero_options.hpp"
#include "app/fp8/weight_codec.hpp"
#include "app/memory/memory_limit.hpp"
#include "app/simulation/planned_states.hpp"
#include "base/device/simulated.hpp"
#include "base/words.hpp"
#include "model/kernels/cublas_lt.hpp"

namespace mpzero {
namespace {

// Returns the FLOPs of all operations, and of attention. FP8 matmuls count half, because they run twice as fast.
std::pair<double, double> flops_of(const plan::UnitCall& call) {
  double all = 0, attention = 0;
  for (const model::Operation& operation : call.operations) {
    all += operation.matmul && operation.matmul->fp8 ? operation.flops / 2 : operation.flops;
    if (operation.attention) attention += operation.flops;
  }
  return {all, attention};
}

}  // namespace

std::vector<PlannedMemory::Part> PlannedMemory::device_parts() const {
  return {{"parameters", states.parameters},
          {"gradients", states.gradients, states.host_gradients > 0 ? "copied to the host" : ""},
          {"optimizer states", states.optimizer_states},
          {"units in flight", states.units_in_flight},
          {"activations", activations, fmt::format("recompute {}", describe(levels))},
          {"weights in FP8", cast_weights, counted(kept_casts, "layer")},
          {"workspace", workspace}};
}

std::vector<PlannedMemory::Part> PlannedMemory::host_parts() const {
  return {{"optimizer states", states.host_optimizer_states},
          {"parameters", states.host_parameters},
          {"gradients", states.host_gradients},
          {"transfer buffers", states.host_staging},
          {"spare states", states.host_spares, "for early updates"},
          {"layer inputs", host_inputs},
          {"attention outputs", host_activations - host_inputs}};
}

std::string describe(const std::vector<PlannedMemory::Part>& parts) {
  std::vector<std::string> shown;
  for (const PlannedMemory::Part& part : parts) {
    if (part.bytes == 0) continue;
    shown.push_back(fmt::format("{} {}{}", part.name, gibibytes(part.bytes),
                                part.note.empty() ? "" : fmt::format(" ({})", part.note)));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

plan::MicroBatchShape micro_batch_shape(const RunConfig& config, const parallel::ZeroOptions& options,
                                        const parallel::ParallelLayout& ranks) {
  const parallel::GradientTarget gradients = parallel::ZeroEngine::gradient_target(options, ranks);
  return {.sequences = config.micro_batch_size,
          .length = config.seq_length,
          .sequence_ranks = ranks.sequence_ranks,
          .source_length = config.source_length,
          .type = options.dtype,
          .gradient_type = gradients.type,
          .accumulates = gradients.accumulates,
          .fp8 = config.fp8_options,
          .deterministic = config.deterministic,
          .frozen = config.freeze_parameters};
}

MemoryEstimate::MemoryEstimate(const RunConfig& config, const model::ModelConfig& model, at::Device device,
                               const parallel::ParallelLayout& ranks, int peer_gpus)
    : config_(config),
      device_(device),
      ranks_(ranks),
      peer_gpus_(peer_gpus),
      codec_(weight_codec(config.fp8_options, model)),
      decoder_(model, {.fp8 = config.fp8_options}),
      kinds_(plan::layer_kinds(decoder_, config.freeze_parameters)),
      releases_gradients_(!device.is_cpu() && config.zero.release_gradients.value_or(false)) {}

bool MemoryEstimate::choose_release(const MemoryNeed& limit, std::optional<bool> preferred) {
  MemoryScenario chosen = fitting(limit, scenario(), /*host_extra_bytes=*/0);
  if (preferred && *preferred != chosen.release_gradients && config_.may_release_gradients()) {
    MemoryScenario other = scenario();
    other.release_gradients = *preferred;
    other.may_release_gradients = false;
    const MemoryNeed need = need_within(limit, other, /*host_extra_bytes=*/0);
    if (need.device <= limit.device && need.host <= limit.host) chosen = other;
  }
  releases_gradients_ = chosen.release_gradients;
  return releases_gradients_;
}

MemoryScenario MemoryEstimate::scenario() const {
  return {.recompute = config_.recompute,
          .micro_batch_size = config_.micro_batch_size,
          .gradient_accumulation_steps = config_.gradient_accumulation_steps,
          .zero_stage = config_.zero.stage,
          .offload_optimizer = config_.zero.offload_optimizer,
          .offload_param = config_.zero.offload_param,
          .release_gradients = releases_gradients_,
          .keeps_casts = config_.fp8_options && config_.fp8_options->kept_casts == model::KeptCasts::kAll,
          .may_offload_optimizer = !device_.is_cpu(),
          // Compressed parameters stay on the GPU; see resolve_compression().
          .may_offload_param = !device_.is_cpu() && !config_.zero.quantized_weights,
          .may_offload_activations = may_offload_activations(),
          .may_release_gradients = !device_.is_cpu() && !config_.zero.release_gradients,
          .requires_release = config_.zero.release_gradients.value_or(false),
          .forbids_release = !device_.is_cpu() && !config_.zero.release_gradients.value_or(true),
          .new_file_keys = new_file_keys(config_)};
}

ActivationSizes MemoryEstimate::activation_sizes(int64_t micro_batch_size) const {
  MemoryScenario now = scenario();
  now.micro_batch_size = micro_batch_size;
  ActivationSizes sizes = sizes_of(now, decoder_.kept_casts());
  sizes.host_parameters = states_of(now, 0).host_parameters;
  return sizes;
}

ActivationSizes MemoryEstimate::sizes_of(const MemoryScenario& scenario, int64_t kept_casts) const {
  using enum plan::WeightCasts;
  const bool keeps_all = kept_casts == decoder_.config().num_hidden_layers;
  plan::MicroBatchShape shape = micro_batch_shape(config_, options_of(scenario), ranks_);
  shape.sequences = scenario.micro_batch_size;
  shape.documents = config_.documents;
  shape.loss_mask = config_.has_loss_mask;
  shape.casts = keeps_all ? kKept : gathers_codes(scenario) ? kCodes : kEachUse;
  const int64_t always = cast_bytes(kept_casts) + (device_.is_cuda() ? model::LtMatmul::kHandleBytes : 0);
  ActivationSizes sizes;
  sizes.levels = model::recompute_levels(decoder_.config(), config_.fp8_options.has_value());
  sizes.layers.resize(static_cast<size_t>(decoder_.config().num_hidden_layers));
  double all_flops = 0, attention_flops = 0;
  for (const std::vector<int64_t>& kind : kinds_) {
    shape.layer = kind.front();
    const std::shared_ptr<const plan::UnitRecord> record = plan::unit_record(decoder_.config(), shape, device_);
    // The head reads the last layer's output. A backward pass reads the gradient of its layer's output.
    const int64_t hidden = record->hidden_bytes;
    if (kind.back() + 1 == std::ssize(sizes.layers)) sizes.head = hidden + record->head.peak + always;
    const auto [flops, of_attention] = flops_of(record->layers[model::Recompute::kFull].forward);
    const double share = static_cast<double>(kind.size()) / static_cast<double>(sizes.layers.size());
    all_flops += share * flops;
    attention_flops += share * of_attention;
    ActivationSizes::Layer sizes_of_layer;
    for (const model::Recompute level : sizes.levels) {
      const plan::UnitRecorder::Layer& layer = record->layers[level];
      const int64_t kept = layer.forward.kept - hidden;
      // The workspace of the forward pass is the input plus the peak, minus the kept bytes.
      sizes_of_layer[level] = {
          .kept = kept,
          .workspace = always + std::max(hidden + layer.forward.peak - kept, hidden + layer.backward.peak)};
    }
    for (const int64_t index : kind) sizes.layers[static_cast<size_t>(index)] = sizes_of_layer;
    // All decoder layers read the output of T5's encoder.
    const std::optional<model::T5Config>& t5 = decoder_.config().t5;
    if (t5 && std::ranges::find(kind, t5->encoder_layers - 1) != kind.end()) {
      ActivationSizes::Layer& last = sizes.layers[static_cast<size_t>(t5->encoder_layers - 1)];
      for (const model::Recompute level : sizes.levels) last[level].kept += hidden;
    }
  }
  if (all_flops > 0) {
    sizes.copy_passes = simulated_target().flops_per_byte / all_flops;
    sizes.attention_share = attention_flops / all_flops;
  }
  return sizes;
}

int64_t MemoryEstimate::cast_bytes(int64_t layers) const {
  if (layers == 0 || !config_.fp8_options) return 0;
  int64_t sum = 0;
  for (const std::vector<int64_t>& kind : kinds_) {
    const plan::MicroBatchShape shape{.fp8 = config_.fp8_options,
                                      .casts = plan::WeightCasts::kFirstUse,
                                      .layer = kind.front(),
                                      .deterministic = config_.deterministic};
    sum += std::ranges::count_if(kind, [&](int64_t layer) { return layer < layers; }) *
           plan::unit_record(decoder_.config(), shape, device_)->layers[model::Recompute::kNone].casts;
  }
  return sum;
}

int64_t MemoryEstimate::kept_casts_within(int64_t bytes) const {
  if (!config_.fp8_options || config_.fp8_options->kept_casts != model::KeptCasts::kAsToldLater) return kept_casts();
  int64_t layers = decoder_.config().num_hidden_layers;
  while (layers > 0 && cast_bytes(layers) > bytes) --layers;
  return layers;
}

parallel::MemoryUse MemoryEstimate::states_of(const MemoryScenario& scenario,
                                              std::optional<int64_t> host_extra_bytes) const {
  // Memory depends on whether micro-batches are accumulated, but not on their number.
  const int64_t micro_batches = std::min<int64_t>(scenario.gradient_accumulation_steps, 2);
  const std::tuple key(scenario.zero_stage, scenario.offload_optimizer, scenario.offload_param,
                       scenario.release_gradients, micro_batches, host_extra_bytes);
  if (const auto known = states_.find(key); known != states_.end()) return known->second;
  parallel::ZeroOptions options = options_of(scenario);
  options.host_update.extra_bytes = host_extra_bytes;
  return states_[key] = plan::planned_states(decoder_.units(), options, ranks_, decoder_.training_order(micro_batches),
                                             peer_gpus_);
}

parallel::ZeroOptions MemoryEstimate::options_of(const MemoryScenario& scenario) const {
  RunConfig config = config_;
  config.micro_batch_size = scenario.micro_batch_size;
  config.gradient_accumulation_steps = scenario.gradient_accumulation_steps;
  config.zero.stage = scenario.zero_stage;
  config.zero.offload_optimizer = scenario.offload_optimizer;
  config.zero.offload_param = scenario.offload_param;
  config.zero.release_gradients =
      scenario.release_gradients && scenario.offload_optimizer && scenario.gradient_accumulation_steps == 1;
  parallel::ZeroOptions options = zero_options(config, device_);
  options.codec = codec_;
  return options;
}

bool MemoryEstimate::gathers_codes(const MemoryScenario& scenario) const {
  if (!codec_) return false;
  const std::vector<bool> in_codes =
      parallel::ZeroEngine::units_in_codes(decoder_.units(), options_of(scenario), ranks_);
  for (size_t unit = 0; unit < in_codes.size(); ++unit) {
    if (!in_codes[unit] && !codec_->ranges(unit).empty()) return false;
  }
  return true;
}

LayerLevels MemoryEstimate::leanest(Recomputation recompute) const {
  return leanest(activation_sizes(config_.micro_batch_size), recompute);
}

LayerLevels MemoryEstimate::levels_within(const ActivationSizes& sizes, int64_t room, int64_t on_host) const {
  if (config_.recompute != Recomputation::kAuto) return leanest(sizes, config_.recompute);
  const std::optional<LayerLevels> on_device = cheapest_levels(sizes, room, 0);
  if (!on_device) {
    const std::optional<LayerLevels> levels = cheapest_levels(sizes, room, on_host);
    return levels ? *levels : leanest_levels(sizes, config_.recompute, on_host);
  }
  // Copies from pageable memory do not overlap. A plan may not know the host's memory.
  const bool is_known = on_host < std::numeric_limits<int64_t>::max() / 2;
  return config_.zero.pin_memory && is_known ? cheapest_levels(sizes, room, on_host / 2).value_or(*on_device)
                                             : *on_device;
}

LayerLevels MemoryEstimate::levels_beside(const parallel::MemoryUse& states, const MemoryNeed& limit) const {
  const int64_t on_host = may_offload_activations() ? std::max<int64_t>(0, limit.host - host_bytes(states)) : 0;
  return levels_within(activation_sizes(config_.micro_batch_size), limit.device - device_bytes(states), on_host);
}

PlannedMemory MemoryEstimate::planned(const parallel::MemoryUse& states, const LayerLevels& levels) const {
  const ActivationSizes sizes = activation_sizes(config_.micro_batch_size);
  PlannedMemory memory{.states = states,
                       .levels = levels,
                       .activations = kept_activations(levels, sizes),
                       .host_activations = host_activations(levels, sizes),
                       .host_inputs = host_inputs(levels, sizes),
                       .cast_weights = cast_bytes(kept_casts()),
                       .kept_casts = kept_casts()};
  memory.workspace = activation_peak(levels, sizes) - memory.activations - memory.cast_weights;
  return memory;
}

PlannedMemory MemoryEstimate::plan(const parallel::MemoryUse& states, const MemoryNeed& limit) {
  const LayerLevels levels = levels_beside(states, limit);
  // Activations have priority, because recomputation costs more than casting weights again.
  const int64_t left = limit.device - planned(states, levels).need().device;
  keep_casts(kept_casts_within(device_.is_cpu() ? std::numeric_limits<int64_t>::max() : left));
  return planned(states, levels);
}

std::optional<int64_t> MemoryEstimate::host_extra_bytes(const MemoryNeed& limit) const {
  const parallel::MemoryUse least = states_of(scenario(), 0);
  const int64_t left = limit.host - planned(least, levels_beside(least, limit)).need().host;
  if (host_bytes(states_of(scenario())) - host_bytes(least) <= left) return std::nullopt;
  return std::max<int64_t>(0, left);
}

std::vector<MemoryChange> MemoryEstimate::changes(const MemoryNeed& limit,
                                                  const std::optional<LayerLevels>& planned) const {
  return changes_that_fit(scenario(), ranks_.ranks(), limit, [&](const MemoryScenario& changed) {
    return planned && changed.recompute == config_.recompute ? need(changed, planned) : need_within(limit, changed);
  });
}

std::string MemoryEstimate::problem(const PlannedMemory& memory, const MemoryRoom& room,
                                    const std::optional<MemoryChange>& more_hosts) const {
  const MemoryNeed need = memory.need(), limit = room.limit(), &available = room.available;
  const auto on_host = [&](int64_t bytes) {
    const auto [needed, given] = compared_sizes(bytes * room.ranks, available.host * room.ranks);
    return fmt::format("a host needs {} of memory for {}, but {} is available", needed, counted(room.ranks, "rank"),
                       given);
  };
  if (need.device > available.device || need.host <= available.host) {
    std::vector<MemoryChange> found = changes(limit);
    if (found.size() < 2 && more_hosts) found.push_back(*more_hosts);
    const std::string remedy = describe_changes(found);
    // With more host memory, the run might offload more.
    const MemoryNeed offloaded =
        need_within({.device = limit.device, .host = std::numeric_limits<int64_t>::max()}, scenario(), 0);
    if (offloaded.device <= limit.device && offloaded.host > limit.host) {
      return fmt::format("to fit in GPU memory, {}; {}", on_host(offloaded.host), remedy);
    }
    if (need.device <= available.device) {
      return fmt::format("the run leaves {} MiB of GPU memory free, {} MiB less than the required margin",
                         (available.device - need.device) >> 20,
                         std::max<int64_t>(1, (need.device - limit.device) >> 20));
    }
    // As in reports, GPU memory includes the context.
    const auto [needed, given] = device_.is_cpu()
                                     ? compared_sizes(process_bytes(need.device), available.host)
                                     : compared_sizes(need.device + room.context, available.device + room.context);
    return fmt::format("the run needs {} of {}, but {} is available; {}", needed,
                       device_.is_cpu() ? "memory per rank" : "GPU memory", given, remedy);
  }
  if (host_bytes(states_of(scenario(), 0)) <= available.host) {
    return fmt::format(
        "{}; shorten the sequences, or pass --recompute {}", on_host(need.host),
        config_.recompute == Recomputation::kHostAttention
            ? "host, which recomputes attention"
            : fmt::format("full{}, which keeps layer inputs on the GPU", yields_for(config_, {"recompute"})));
  }
  return fmt::format("{}; {}, or {}", on_host(need.host),
                     more_hosts ? "use " + more_hosts->text
                                : "use more hosts or ranks, raise the memory limit of the job or container",
                     config_.zero.release_gradients.value_or(false)
                         ? "remove \"release_gradients\" from offload_optimizer"
                         : ratio_remedy(config_));
}

LayerLevels MemoryEstimate::leanest(const ActivationSizes& sizes, Recomputation recompute) const {
  if (recompute == Recomputation::kAuto) return leanest_levels(sizes, recompute);
  if (recompute > Recomputation::kTiled && !may_offload_activations()) recompute = Recomputation::kTiled;
  // The search for changes that fit may request levels that the model does not support.
  const bool supported = sizes.supports(static_cast<model::Recompute>(recompute));
  return leanest_levels(sizes, supported ? recompute : Recomputation::kFull);
}

MemoryNeed MemoryEstimate::need(const MemoryScenario& scenario, const std::optional<LayerLevels>& levels,
                                std::optional<int64_t> host_extra_bytes) const {
  const bool may_keep = scenario.keeps_casts && scenario.zero_stage < 3;
  const ActivationSizes sizes = sizes_of(scenario, may_keep ? kept_casts() : 0);
  const parallel::MemoryUse use = states_of(scenario, host_extra_bytes);
  const LayerLevels of_layers = levels ? *levels : leanest(sizes, scenario.recompute);
  return {.device = device_bytes(use) + activation_peak(of_layers, sizes),
          .host = host_bytes(use) + host_activations(of_layers, sizes)};
}

MemoryNeed MemoryEstimate::need_within(const MemoryNeed& limit, const MemoryScenario& scenario,
                                       std::optional<int64_t> host_extra_bytes) const {
  return need(fitting(limit, scenario, host_extra_bytes), std::nullopt, host_extra_bytes);
}

MemoryScenario MemoryEstimate::fitting(const MemoryNeed& limit, const MemoryScenario& scenario,
                                       std::optional<int64_t> host_extra_bytes) const {
  int64_t least = need(scenario, std::nullopt, host_extra_bytes).device;
  if (least <= limit.device) return scenario;
  const bool may_release = scenario.may_release_gradients && scenario.offload_optimizer &&
                           scenario.gradient_accumulation_steps == 1 && !scenario.release_gradients;
  const bool may_offload = scenario.recompute == Recomputation::kAuto && may_offload_activations();
  std::vector<MemoryScenario> changes;
  if (may_release) changes.emplace_back(scenario).release_gradients = true;
  if (may_offload) changes.emplace_back(scenario).recompute = Recomputation::kHost;
  if (may_release && may_offload) changes.emplace_back(changes.front()).recompute = Recomputation::kHost;
  MemoryScenario leanest = scenario;
  for (const MemoryScenario& changed : changes) {
    const MemoryNeed need = this->need(changed, std::nullopt, host_extra_bytes);
    if (need.host > limit.host || need.device >= least) continue;
    if (need.device <= limit.device) return changed;
    leanest = changed;
    least = need.device;
  }
  return leanest;
}

}  // namespace mpzero
