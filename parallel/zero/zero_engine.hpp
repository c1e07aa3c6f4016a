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

// Options for optimizer updates in host memory.
struct HostUpdateOptions {
  // Number of dedicated update threads, which run concurrently with the engine's caller. 0: on a GPU, as many as the
  // process has threads; on the CPU, update() uses the process's threads.
  int threads = 0;
  std::vector<int> cores;              // hardware threads for the ThreadTeam; empty: no binding
  std::optional<int64_t> extra_bytes;  // memory for updates before the norm is known; see default_extra_bytes()
  MakeHostUpdater make = {};           // factory of the updater of a simulated device, which has no threads
};

struct ZeroOptions {
  int stage = 2;  // shards no states (0), optimizer states (1), also gradients (2), also parameters (3)
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kBFloat16;                // parameters and activations
  at::ScalarType communication_dtype = at::kBFloat16;  // gradients in collectives
  at::ScalarType accumulation_dtype = at::kFloat;      // gradients over micro-batches
  at::ScalarType moment_dtype = at::kFloat;            // AdamW moments; fp32 or bf16
  int64_t gradient_accumulation_steps = 1;
  Placement optimizer_placement = Placement::kDevice;  // offload_optimizer
  double optimizer_host_ratio = 1.0;                   // fraction of the parameters whose states are on the host
  HostUpdateOptions host_update = {};
  // Copies the gradients of units with states on the host to host memory as soon as the gradients are summed, and
  // reuses the device buffers of these gradients. Updates read the copies. Requires gradient_accumulation_steps = 1.
  bool release_gradients = false;
  Placement parameter_placement = Placement::kDevice;  // offload_param, stage 3 only
  bool pin_memory = true;
  bool overlap = true;           // overlap collectives and host updates with compute
  Compression compression = {};  // of traffic between nodes
  // Quantizes parameters for gathers (stage 3 only); see ParameterStoreOptions.
  std::shared_ptr<const WeightCodec> codec = nullptr;
  // Format of frozen matrices in units with trainable parameters. initialize() and restore() quantize these matrices,
  // and gather() dequantizes them.
  WeightCodes codes = WeightCodes::kNone;
  ZeroLimits limits;
  AdamWOptions adamw;
  std::vector<std::string> no_decay = {};  // parameters without weight decay; see matches_any()
  std::vector<std::string> frozen = {};    // frozen parameters; see UnitParts
  double gradient_clipping = 0.0;          // 0: off
};

// Global values of one step, the same on every rank.
struct StepSummary {
  double loss = 0.0;                // sum over micro-batches and ranks, divided by `weight` of measure()
  double grad_norm = 0.0;           // L2 norm over all parameters, before clipping
  std::span<const double> figures;  // figures of measure(), summed over the ranks; valid until the next measure()
};

// State of a unit's compression between nodes that persists across steps. Undefined without compression.
struct Carried {
  at::Tensor gradient_residual;  // [nodes - 1, shard_numel]; see GradientExchange
  at::Tensor parameters;         // [shard_numel]: this rank's part of the shared copy; see ParameterExchange
};

// Returns true for each unit whose states are on the host if the host updates the fraction `host_ratio` of the
// trainable parameters.
std::vector<bool> units_on_host(const std::vector<UnitSpec>& units, double host_ratio);

// ZeRO (Rajbhandari et al. 2020) over flat units: shards states according to the stage, gathers units for the forward
// and backward passes, sums gradients over the ranks, clips them, and updates this rank's shard. Units are identified
// by index. Parameters, gradients and states are organized in parts of the model's units; see UnitParts.
class ZeroEngine {
 public:
  // `parameter_levels` and `gradient_levels` have separate communicators with the same layout, so that parameter
  // gathers and gradient sums can overlap. The communicators must outlive the engine. Stage 0 supports only a single
  // level.
  ZeroEngine(const std::vector<UnitSpec>& units, const ZeroOptions& options, const Levels& parameter_levels,
             const Levels& gradient_levels);
  ZeroEngine(const ZeroEngine&) = delete;
  ZeroEngine& operator=(const ZeroEngine&) = delete;

  // Sets the weights from `source` and the moments to zero. Must be called by all ranks of `group`. If any rank fails,
  // throws on all ranks.
  void initialize(const ParameterSource& source, ProcessGroup& group);

  at::Device device() const { return options_.device; }
  at::ScalarType dtype() const { return options_.dtype; }
  bool pins_memory() const { return options_.pin_memory; }
  const UnitParts& parts() const { return parts_; }
  ParameterStore& parameters() { return *parameters_; }
  GradientStore& gradients() { return gradients_; }

  // Must be called before the first micro-batch of a step. If the arguments of the later update() are passed, states on
  // the host are updated as soon as their gradients are complete, unless the last step was clipped. If these arguments
  // are passed, a unit's parameters must not be used after the reduction of its last gradient in the step has started.
  // The results are bitwise identical with and without these arguments.
  void begin_step();
  void begin_step(double lr, int64_t update);
  // Finishes the gradient reductions, and computes the global gradient norm and the mean loss with one all-reduce. Must
  // be called after the last micro-batch. `loss_sum`: sum of this rank's losses, a scalar on the device. `weight`:
  // divisor of the loss summed over all ranks. `figures`: additional values to sum in the same all-reduce, with the
  // same count on every rank.
  void measure(const at::Tensor& loss_sum, double weight, std::span<const double> figures = {});
  // Clips the gradients and applies AdamW with learning rate `lr`. `update` counts from 1. No-op if the measured loss
  // or norm is not finite. The update may still be in progress on return: on a GPU, the work is queued, and
  // ParameterStore::gather() waits for host updates unit by unit, so that the next forward pass begins with the first
  // units while later units are updated. Without overlap, host updates are done on return.
  void update(double lr, int64_t update);
  // tensor <- the sum of `tensor` over all ranks, bitwise equal on all ranks.
  void sum_over_ranks(const at::Tensor& tensor);
  // Returns the results of measure(). Waits for the GPU, but not for updates.
  StepSummary summary();

  // Reduces the fraction of parameters on the host, and moves the states of the other parameters to the training
  // device. Units are placed as in an engine with this optimizer_host_ratio, which must not exceed this engine's ratio.
  // All ranks must pass the same value.
  void set_host_ratio(double ratio);

  MemoryUse memory_use() const;
  // See GradientStore::target().
  static GradientTarget gradient_target(const ZeroOptions& options, const ParallelLayout& ranks);
  // Returns, for each unit, whether an engine with the layout `ranks` gathers it in quantized form.
  static std::vector<bool> units_in_codes(const std::vector<UnitSpec>& units, const ZeroOptions& options,
                                          const ParallelLayout& ranks);

  // This rank's shard of a unit's state, excluding padding: elements [begin, begin + count) of the unit's parameters.
  // In stage 0, the shard of every rank is the full unit. states_of() lists the states of a unit.
  struct Shard {
    int64_t begin = 0;
    int64_t count = 0;
  };
  Shard shard(size_t unit) const;
  // Returns this rank's shard of a state. The span is valid until the next call to read_state() or update().
  std::span<const float> read_state(size_t unit, StateKind kind);
  // Returns a read-only view of this rank's shard of a state, on the device or in host memory, in the state's dtype.
  // The view is valid until the next update(); on the device, only for work queued on the current stream. Waits for the
  // host's update of the unit. Can be called from any thread, but not concurrently with update().
  at::Tensor state(size_t unit, StateKind kind) const;
  // Returns true if a unit's states are in host memory.
  bool state_on_host(size_t unit) const {
    return on_host(unit) || options_.device.is_cpu() || (is_frozen(unit) && parameters_->shard(unit).is_cpu());
  }
  // Returns true if hold() supports the unit's states. bf16 moments are copied instead, because a checkpoint stores
  // fp32.
  bool can_hold(size_t unit) const { return on_host(unit) && options_.moment_dtype == at::kFloat; }
  // Holds all three states of a unit for which can_hold() is true, as returned by state() but including padding. The
  // states do not change until the hold ends, because updates write to spare states. Can be called from any thread, but
  // not concurrently with update().
  StateHold hold(size_t unit) { return host_->hold(unit); }
  // Allocates memory so that updates do not wait for holds if each unit is held at most once. The additional memory
  // equals the size of the states of all units that the host updates. Must be called at most once, from any thread.
  void make_room_for_holds() {
    if (host_) host_->add_spares_for_holds();
  }
  // Restores the states of all units. `read` fills elements [begin, begin + out.size()) of a unit. Must be called by
  // all ranks, like initialize(). `carried`: result of carried() for each unit when the states were saved, from the
  // same rank of the same layout. If `carried` is empty, compression starts without state, and all nodes start with
  // equal parameters.
  using StateReader = std::function<void(size_t unit, StateKind kind, int64_t begin, std::span<float> out)>;
  void restore(const StateReader& read, ProcessGroup& group, std::span<const Carried> carried = {});

  // Returns true if compression between nodes has state that persists across steps.
  bool carries() const { return gradients_.exchange() != nullptr || parameters_->is_compressed(); }
  // Returns a unit's compression state, for work queued on the current stream. Waits for updates on the host. All ranks
  // must call carried() for the same units in the same order, between two steps.
  Carried carried(size_t unit);
  // Returns tensors with the shapes, dtypes and device of carried() and unspecified values. Does not wait.
  Carried like_carried(size_t unit) const;
  // Sets a callback that is called before a residual returned by carried() changes, on the thread that uses the engine.
  // The callback must make the current stream (on the CPU, the caller) wait for readers of the residual. The parameters
  // returned by carried() change only after update().
  void set_residual_reader(const std::function<void()>& wait);

 private:
  // Makes the parameter store wait for the host's updates.
  class HostWriter final : public ShardWriter {
   public:
    explicit HostWriter(ZeroEngine& engine) : engine_(engine) {}
    // Always returns true on the CPU: a gather starts at the same point on each rank, and then waits. If only one
    // thread may use MPI, the CPU's collectives block, so ranks that start collectives at different points would
    // deadlock.
    bool written(size_t unit) override {
      return !engine_.host_ || engine_.options_.device.is_cpu() || engine_.host_->ready(unit);
    }
    void wait(size_t unit) override {
      if (engine_.host_) engine_.host_->wait(unit);
    }

   private:
    ZeroEngine& engine_;
  };

  enum class Moments : uint8_t { kRead, kZero };
  // Sets all states of this rank's shards. `read` is called only for master weights if `moments` is kZero.
  void set_states(const StateReader& read, Moments moments, ProcessGroup& group, std::span<const Carried> carried);
  void make_host_optimizer(const std::vector<bool>& host_units);
  bool is_frozen(size_t unit) const { return !units_[unit].trainable(); }
  bool on_host(size_t unit) const { return host_ && host_->updates(unit); }
  AdamWUpdate scalars(double lr, int64_t update) const;
  // Makes the unit's updated shard available to gathers, which wait until the shard is written.
  void publish(size_t unit);
  // Publishes all units, with the parameters in `carried` unless it is empty.
  void publish_all(std::span<const Carried> carried);
  // Computes the squared norm of this rank's shard of a unit's gradient, and passes the shard to the unit's optimizer
  // during the backward pass.
  void take_gradient(size_t unit);
  // Quantizes this rank's shard of a unit. `read` provides the values to quantize.
  void encode(size_t unit, const std::function<void(std::span<float>)>& read);

  const UnitParts parts_;
  const std::vector<UnitSpec>& units_;  // parts_.parts()
  ZeroOptions options_;
  Levels levels_;    // gradient levels
  int shard_index_;  // the shard of each unit that this rank updates
  std::vector<FlatLayout> layouts_;
  std::vector<FlatLayout> parameter_layouts_;  // quantized units: layouts of messages
  std::vector<FlatLayout> gradient_layouts_;   // empty for frozen units
  std::unique_ptr<ParameterStore> parameters_;
  GradientStore gradients_;
  std::unique_ptr<ThreadTeam> team_;
  std::vector<OptimizerShard> shards_;
  HostWriter host_writer_{*this};
  std::unique_ptr<HostUpdater> host_;            // null without host updates
  bool last_was_clipped_ = true;                 // true before the first step
  std::optional<c10::Stream> measuring_stream_;  // sums squares during backward
  at::Tensor partial_squares_;  // squares of this rank's gradients: fp64 [units, partial sums] on the device
  at::Tensor totals_;           // squares, loss and figures over all ranks, fp64 in host memory
  at::Tensor gradient_scale_;   // fp32 scalar on the GPU
  c10::Event totals_arrived_;
  double loss_weight_ = 1;
  at::Tensor copy_;  // copy of a state that is not fp32 in host memory, for read_state()
};

}  // namespace mpzero::parallel
