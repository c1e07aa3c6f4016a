#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_source.hpp"
#include "base/parameter_spec.hpp"
#include "base/process_group.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/host/thread_team.hpp"
#include "parallel/optimizer/adamw.hpp"
#include "parallel/optimizer/host_optimizer.hpp"
#include "parallel/optimizer/optimizer_shard.hpp"
#include "parallel/zero/gradient_store.hpp"
#include "parallel/zero/parameter_store.hpp"
#include "parallel/zero/unit_parts.hpp"

namespace mpzero::parallel {

// How states in host memory are updated.
struct HostUpdateOptions {
  // Dedicated threads, concurrent with the engine's caller. 0: on the CPU, the process's threads in update(); while a
  // GPU trains, as many threads as the process would use.
  int threads = 0;
  std::vector<int> cores;              // hardware threads that ThreadTeam binds them to; empty: no binding
  std::optional<int64_t> extra_bytes;  // for updates before the norm is known; std::nullopt: see default_extra_bytes
  MakeHostUpdater make = {};           // for a simulated device, without threads
};

struct ZeroOptions {
  int stage = 2;  // 0: nothing sharded; 1: optimizer states; 2: gradients too; 3: parameters too
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kBFloat16;                // of parameters and activations
  at::ScalarType communication_dtype = at::kBFloat16;  // of gradients in collectives
  at::ScalarType accumulation_dtype = at::kFloat;      // of gradients over micro-batches
  at::ScalarType moment_dtype = at::kFloat;            // AdamW's; fp32 or bf16
  int64_t gradient_accumulation_steps = 1;
  Placement optimizer_placement = Placement::kDevice;  // offload_optimizer
  double optimizer_host_ratio = 1.0;                   // the fraction of the parameters whose states are on the host
  HostUpdateOptions host_update = {};
  Placement parameter_placement = Placement::kDevice;  // offload_param, stage 3 only
  bool pin_memory = true;
  bool overlap = true;           // collectives and updates on the host overlap with compute
  Compression compression = {};  // between nodes
  // Quantizes parameters for gathers: see ParameterStoreOptions. Stage 3.
  std::shared_ptr<const WeightCodec> codec = nullptr;
  // Format of frozen matrices in units with trainable parameters: quantized by initialize() and restore(), dequantized
  // by gather().
  WeightCodes codes = WeightCodes::kNone;
  ZeroLimits limits;
  AdamWOptions adamw;
  std::vector<std::string> no_decay = {};  // parameters without weight decay: see matches_any
  std::vector<std::string> frozen = {};    // parameters that are not trained: see UnitParts
  double gradient_clipping = 0.0;          // 0: off
};

// Global values of one step, the same on every rank.
struct StepSummary {
  double loss = 0.0;                // the sum over micro-batches and ranks, divided by their weight
  double grad_norm = 0.0;           // L2 over all parameters, before clipping
  std::span<const double> figures;  // measure()'s, summed over the ranks; valid until the next measure()
};

// State of compression between nodes that a unit carries from step to step, besides its optimizer states; undefined
// without compression.
struct Carried {
  at::Tensor gradient_residual;  // [nodes - 1, shard_numel]: see GradientExchange
  at::Tensor parameters;         // [shard_numel]: this rank's shard as all nodes hold it, see ParameterExchange
};

// By unit: whether its states are on the host, if the host updates this fraction of the trainable parameters.
std::vector<bool> units_on_host(const std::vector<UnitSpec>& units, double host_ratio);

// ZeRO (Rajbhandari et al. 2020) over flat units: shards states according to the stage, gathers units for forward and
// backward, sums gradients over the ranks, clips, and updates this rank's shard. Identifies units by index,
// independently of their computation. Its parameters, gradients and states are organized in parts of the model's units:
// see UnitParts.
class ZeroEngine {
 public:
  // Separate communicators with the same layout, so that parameter gathers and gradient sums can overlap. They must
  // outlive the engine. Stage 0 has one level.
  ZeroEngine(const std::vector<UnitSpec>& units, const ZeroOptions& options, const Levels& parameter_levels,
             const Levels& gradient_levels);
  ZeroEngine(const ZeroEngine&) = delete;
  ZeroEngine& operator=(const ZeroEngine&) = delete;

  // Sets the weights from `source` and the moments to zero. Collective over `group`: an error on one rank is thrown on
  // all ranks.
  void initialize(const ParameterSource& source, ProcessGroup& group);

  at::Device device() const { return options_.device; }
  at::ScalarType dtype() const { return options_.dtype; }
  bool pins_memory() const { return options_.pin_memory; }
  const UnitParts& parts() const { return parts_; }
  ParameterStore& parameters() { return *parameters_; }
  GradientStore& gradients() { return gradients_; }

  // Call before the first micro-batch of a step, with the arguments of the later update(): states on the host are then
  // updated as soon as their gradients are complete, if the last norms needed no clipping. In this case, a unit's
  // parameters must not be used once its last gradient of the step is being summed. The result has the same bits either
  // way.
  void begin_step();
  void begin_step(double lr, int64_t update);
  // Call after the last micro-batch: measures the step's gradients. `loss_sum`: the sum of this rank's losses, a scalar
  // on the device; `weight`: the divisor of their sum over all ranks. `figures`: summed in the same collective, the
  // same number on each rank.
  void measure(const at::Tensor& loss_sum, double weight, std::span<const double> figures = {});
  // Clips and applies AdamW with this learning rate; `update` counts from 1. Changes nothing if the measured loss or
  // norm is not finite. The update may still be in progress on return: on a GPU the work is queued, and
  // ParameterStore::gather() waits for the host's updates unit by unit, so that the next forward pass begins with the
  // first units while later ones are updated. Without overlap the host's work is done on return.
  void update(double lr, int64_t update);
  // tensor <- its sum over all ranks, with the same bits on each.
  void sum_over_ranks(const at::Tensor& tensor);
  // The results of measure(); waits for the GPU, but not for updates.
  StepSummary summary();

  // Reduces the fraction of parameters on the host, and moves the states of the others to the training device: units
  // are placed as in an engine created with this optimizer_host_ratio, which must not exceed this engine's. All ranks
  // pass the same value.
  void set_host_ratio(double ratio);

  MemoryUse memory_use() const;
  // See GradientStore::target().
  static GradientTarget gradient_target(const ZeroOptions& options, const ParallelLayout& ranks);
  // By unit: whether an engine on each of `ranks` gathers it quantized.
  static std::vector<bool> units_in_codes(const std::vector<UnitSpec>& units, const ZeroOptions& options,
                                          const ParallelLayout& ranks);

  // This rank's shard of a unit's state, without padding: elements [begin, begin + count) of the unit's parameters.
  // With stage 0, every rank holds the full unit. A unit has the states in states_of().
  struct Shard {
    int64_t begin = 0;
    int64_t count = 0;
  };
  Shard shard(size_t unit) const;
  // The span stays valid until the next call.
  std::span<const float> read_state(size_t unit, StateKind kind);
  // The same values without a copy, on the device or in host memory, in their own dtype; read-only. They are valid
  // after the last update(), for work queued on the current stream or, in host memory, immediately, until the next
  // update(). Waits for the host's update of the unit; may be called from any thread that the next update() waits for.
  at::Tensor state(size_t unit, StateKind kind) const;
  // Whether a unit's states are in host memory.
  bool state_on_host(size_t unit) const {
    return on_host(unit) || options_.device.is_cpu() || (is_frozen(unit) && parameters_->shard(unit).is_cpu());
  }
  // Whether the unit's states can be held. bf16 moments are copied instead, since a checkpoint stores fp32.
  bool can_hold(size_t unit) const { return on_host(unit) && options_.moment_dtype == at::kFloat; }
  // All three states of such a unit, as returned by state() but including padding. They do not change until the hold
  // ends: updates write to spare states. From any thread that the next update() waits for.
  StateHold hold(size_t unit) { return host_->hold(unit); }
  // Allocates memory so that updates need not wait for holds if each unit is held at most once. Uses as much memory as
  // the states of all units that can be held. From any thread, once.
  void make_room_for_holds() {
    if (host_) host_->add_spares_for_holds();
  }
  // Restores all states: `read` fills elements [begin, begin + out.size()) of a unit. Collective like initialize().
  // `carried`: by unit, carried() when the states were saved, from the rank at the same place of the same layout; if
  // empty, nothing is carried, and all nodes start with equal parameters.
  using StateReader = std::function<void(size_t unit, StateKind kind, int64_t begin, std::span<float> out)>;
  void restore(const StateReader& read, ProcessGroup& group, std::span<const Carried> carried = {});

  // Whether compression between nodes carries state from step to step.
  bool carries() const { return gradients_.exchange() != nullptr || parameters_->is_compressed(); }
  // A unit's carried state, for work queued on the current stream. Waits for updates on the host. All ranks call it for
  // the same units in the same order, between two steps.
  Carried carried(size_t unit);
  // Tensors with the shapes, dtypes and device of carried(), but unspecified values; waits for nothing.
  Carried like_carried(size_t unit) const;
  // `wait`, if any, is called before a residual returned by carried() changes, on the thread that uses the engine: it
  // makes the current stream (on the CPU, the caller) wait for readers. Parameters change only after update().
  void set_residual_reader(const std::function<void()>& wait);

 private:
  // Lets the parameter store wait for the host's updates.
  class HostWriter final : public ShardWriter {
   public:
    explicit HostWriter(ZeroEngine& engine) : engine_(engine) {}
    // If only one thread may use MPI, the CPU's collectives block, so ranks that start them at different points would
    // deadlock: on the CPU, a gather starts where it would without a writer, and waits.
    bool written(size_t unit) override {
      return !engine_.host_ || engine_.options_.device.is_cpu() || engine_.host_->ready(unit);
    }
    void wait(size_t unit) override {
      if (engine_.host_) engine_.host_->wait(unit);
    }

   private:
    ZeroEngine& engine_;
  };

  void make_host_optimizer(const std::vector<bool>& host_units);
  bool is_frozen(size_t unit) const { return !units_[unit].trainable(); }
  bool on_host(size_t unit) const { return host_ && host_->updates(unit); }
  AdamWUpdate scalars(double lr, int64_t update) const;
  // Publishes the shard's new values, which the unit's optimizer has written or will write.
  void publish(size_t unit);
  // Publishes all units, with the parameters in `carried`, if any.
  void publish_all(std::span<const Carried> carried);
  // Measures this rank's shard of a unit's gradient and sends it to its optimizer while backward runs.
  void take_gradient(size_t unit);
  // Writes this rank's shard of a quantized unit from `values`, which must be in staging().
  void encode(size_t unit, const at::Tensor& values);
  // Host memory for `count` fp32 values, shared by all calls.
  at::Tensor staging(int64_t count);

  const UnitParts parts_;
  const std::vector<UnitSpec>& units_;  // the parts
  ZeroOptions options_;
  Levels levels_;    // of gradients
  int shard_index_;  // the shard of each unit that this rank updates
  std::vector<FlatLayout> layouts_;
  std::vector<FlatLayout> parameter_layouts_;  // for quantized units, of their messages
  std::vector<FlatLayout> gradient_layouts_;   // empty for frozen units
  std::unique_ptr<ParameterStore> parameters_;
  GradientStore gradients_;
  std::unique_ptr<ThreadTeam> team_;
  std::vector<OptimizerShard> shards_;
  HostWriter host_writer_{*this};
  std::unique_ptr<HostUpdater> host_;            // null if it updates no shards
  bool last_was_clipped_ = true;                 // or there was no step yet
  std::optional<c10::Stream> measuring_stream_;  // sums squares during backward
  at::Tensor partial_squares_;  // of this rank's gradients of this step, fp64 [units, partial sums] on the device
  at::Tensor totals_;           // squares, loss and figures over all ranks, fp64 in host memory
  at::Tensor gradient_scale_;   // fp32 scalar on the GPU
  c10::Event totals_arrived_;
  double loss_weight_ = 1;
  at::Tensor staging_;
};

}  // namespace mpzero::parallel
