#include "app/train/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "app/checkpoint/resume.hpp"
#include "app/checkpoint/resume_position.hpp"
#include "app/config/own_values.hpp"
#include "app/config/zero_options.hpp"
#include "app/fp8/weight_codec.hpp"
#include "app/health/gpu_condition.hpp"
#include "app/machine/host_limits.hpp"
#include "app/machine/host_threads.hpp"
#include "app/machine/system.hpp"
#include "app/memory/gpu_peak.hpp"
#include "app/plan/estimate/plan_beside_run.hpp"
#include "app/schedule/schedule_rates.hpp"
#include "app/tokens/token_checks.hpp"
#include "app/train/finite_check.hpp"
#include "app/train/gpu_collector.hpp"
#include "app/train/start_facts.hpp"
#include "app/train/step/optimizer_step.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "parallel/comm/gpu_address.hpp"
#include "parallel/mpi/late_sum.hpp"
#include "parallel/trace/profile_range.hpp"

namespace mpzero {
namespace {

using Clock = std::chrono::steady_clock;

// Indices into Trainer::figures(). The ranks' step times excluding waits start at kOwnSeconds.
constexpr size_t kStopVotes = 0;
constexpr size_t kWarnings = 1;
constexpr size_t kAttention = 2;
constexpr size_t kOwnSeconds = 3;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Returns rank 0's prediction of whether the run releases gradients. Collective.
std::optional<bool> preferred_release(const RunSetup& setup, at::Device device, const RunMemory& memory,
                                      const std::string& network, parallel::MpiRuntime& mpi) {
  std::optional<bool> release;
  if (mpi.rank() == 0 && setup.hosts * mpi.local_size() == mpi.world_size()) {
    release =
        plan::predicted_release(plan::planned_run(setup, device, mpi.local_size(), memory.host_at_start(), network));
  }
  return broadcast(mpi, release);
}

parallel::ZeroOptions engine_options(const RunSetup& setup, at::Device device, RunMemory& memory,
                                     const std::string& network, parallel::MpiRuntime& mpi) {
  const RunConfig& config = setup.config;
  parallel::ZeroOptions options = zero_options(config, device);
  options.codec = weight_codec(config.fp8_options, setup.model);
  if (device.is_cpu()) return options;
  options.release_gradients = memory.choose_release(mpi, preferred_release(setup, device, memory, network, mpi));
  const std::optional<int64_t> extra_bytes = memory.host_extra_bytes(mpi);
  if (!config.zero.offload_optimizer) return options;
  options.host_update = host_update_options(device, mpi);
  options.host_update.extra_bytes = extra_bytes;
  return options;
}

io::LoaderOptions loader_options(const RunSetup& setup, const ProcessGroup& group, const RunPosition& position) {
  return {.micro_batch_size = setup.config.micro_batch_size,
          .gradient_accumulation_steps = setup.config.gradient_accumulation_steps,
          .data_parallel = setup.layout.data_parallel(group.rank()),
          .sequence_parallel = setup.layout.sequence_parallel(group.rank()),
          .seed = setup.config.seed,
          .shuffle = setup.config.shuffle,
          .vocab_limit = setup.model.vocab_size,
          .first_window = position.sequences_seen,
          .sources = position.sources,
          .decoder_start = setup.model.t5 ? std::optional(setup.model.t5->decoder_start_token_id) : std::nullopt};
}

}  // namespace

Trainer::Trainer(parallel::MpiRuntime& mpi, Network& network, RunSetup setup, at::Device device, RunMemory& memory,
                 RunControl control)
    : mpi_(mpi),
      memory_(memory),
      control_(control),
      setup_(std::move(setup)),
      config_(setup_.config),
      device_(device),
      zero_options_(engine_options(setup_, device, memory, control_.network, mpi)),
      decoder_(model::make_model(setup_.model, {.fp8 = setup_.config.fp8_options})),
      timeline_(parallel::make_timeline(device)),
      communicators_(network, setup_.layout, control.watchdog, *timeline_),
      timer_(*timeline_, communicators_.parameters(), communicators_.gradients()),
      engine_(decoder_->units(), zero_options_, communicators_.parameters().levels(),
              communicators_.gradients().levels()),
      placement_(config_, device, engine_, memory, mpi),
      pass_(*decoder_, engine_, timer_, config_.gradient_accumulation_steps,
            [&watchdog = control.watchdog] { watchdog.moved_on(); }),
      profiler_(config_, mpi.rank(), device),
      endpoint_(config_),
      log_(config_, mpi, peak_step_time(setup_, device, mpi.world_size())),
      folder_(config_, mpi, log_),
      saved_units_(engine_.parts().parts()),
      checkpointer_(setup_, saved_units_, engine_, device, mpi, log_, folder_),
      stop_(control.stop, config_, mpi, log_),
      watch_(control.watchdog, communicators_.all()) {
  engine_.parameters().measure_waits(*timeline_);
  if (!config_.fp8_options) return;
  zero_share_.emplace(config_.fp8_options->recipe.scaling, [this](int64_t layer, model::LayerProduct product) {
    return decoder_->weight_name(layer, product);
  });
}

TrainingEnd Trainer::run() {
  start();
  if (at_end()) {
    log_.say(fmt::format("Training already finished: step {} of {} is saved; raise {} to continue", position_.step,
                         config_.max_steps, config_.sequences ? "the number of epochs" : "--max_steps"));
    return TrainingEnd::kFinished;
  }
  const RunStart start{.began = control_.began, .steps_done = position_.step, .device = device_};
  endpoint_.open(setup_, start, memory_.planned(), control_.ec2, mpi_, log_);
  nlohmann::ordered_json facts = start_facts(setup_, start, memory_, mpi_);
  facts.update(endpoint_.facts());
  run_on_all_ranks(mpi_, [&] { log_.begin(position_.step, metrics_owner_, setup_.start, facts); });
  folder_.keep();
  if (const auto& steps = config_.profile_steps; steps && steps->last <= position_.step) {
    log_.warn(fmt::format("--profile_steps {}-{} has no effect: the run resumes after step {}", steps->first,
                          steps->last, position_.step));
  }
  const Watchdog::EndRecord end_record(control_.watchdog, [record = log_.late_end(), tell = endpoint_.late_failure()](
                                                              std::string_view status, std::string_view reason) {
    record(status, reason);
    if (status == "failed") tell(reason);
  });
  try {
    record_node();
    const TrainingEnd end = train_to_the_end();
    node_recorder_.reset();
    record_warnings();
    endpoint_.ended();
    log_.end(end == TrainingEnd::kFinished ? "finished" : "stopped", stop_reason_);
    return end;
  } catch (const Error& error) {
    if (error.scope() == ErrorScope::kAllRanks) checkpointer_.finish_after_error();
    endpoint_.failed(error.what(), log_);
    log_.end("failed", error.what());
    throw;
  } catch (const std::exception& error) {
    endpoint_.failed(error.what(), log_);
    log_.end("failed", error.what());
    throw;
  }
}

TrainingEnd Trainer::train_to_the_end() {
  // If the ratio is chosen after the first step, states move to GPU memory at that point.
  if (!placement_.leaves_ratio_open()) checkpointer_.prepare(position_, memory_.host_after_growth());
  first_step_ = position_.step + 1;
  // Discard the traffic of the initial gather.
  communicators_.take_internode_bytes();
  while (!at_end()) {
    control_.watchdog.enter(position_.step + 1 == first_step_ ? RunPhase::kFirstStep : RunPhase::kTraining,
                            position_.step + 1);
    profiler_.begin_step(position_.step + 1);
    StepReport report = train_step();
    const Profiler::Outcome trace = profiler_.end_step(report.step);
    if (validation_is_due()) report.validation = validate();
    log_.step(report);
    if (report.step == first_step_ && placement_.leaves_ratio_open()) {
      const auto [ratio, line] = placement_.choose_ratio();
      setup_.host_ratio = ratio;
      log_.say(line);
      checkpointer_.prepare(position_, memory_.host_after_growth());
    }
    comment_on(report, trace);
    advise(report);
    control_.watchdog.enter(RunPhase::kCheckpoint, position_.step);
    const bool stops = stops_ && !at_end();
    checkpointer_.after_step(position_, report.seconds, stops);
    if (stops) {
      if (!validation_->empty() && due(config_.validation_freq)) {
        log_.say(fmt::format("Skipped validation after step {} because the run is stopping", position_.step));
      }
      stop_reason_ = stop_.save_and_stop(position_, checkpointer_);
      return TrainingEnd::kStopped;
    }
  }
  checkpointer_.finish(position_);
  if (!config_.save_final) log_.say(unsaved_end());
  return TrainingEnd::kFinished;
}

std::string Trainer::unsaved_end() const {
  const std::optional<int64_t> saved = checkpointer_.saved_step();
  return fmt::format(
      "Training finished after step {} without a final checkpoint (--save_final=false); {}", position_.step,
      saved ? fmt::format("the newest checkpoint is from step {}", *saved) : std::string("there is no checkpoint"));
}

bool Trainer::at_end() const { return position_.step >= config_.max_steps; }

bool Trainer::due(int64_t frequency) const { return frequency > 0 && position_.step % frequency == 0; }

bool Trainer::validation_is_due() const {
  if (validation_->empty() || config_.validation_freq == 0) return false;
  return at_end() || (due(config_.validation_freq) && !stops_);
}

void Trainer::comment_on(const StepReport& report, const Profiler::Outcome& trace) {
  // The first step still allocates memory; from the second step on, memory usage is stable.
  if (report.step == first_step_ + 1) {
    if (const std::optional<std::string> line = memory_.comparison()) log_.say(*line);
  }
  name_straggler();
  if (warned_) record_warnings();
  if (zero_share_) {
    if (const std::optional<std::string> warning = zero_share_->judge(report.casts, report.step)) log_.warn(*warning);
  }
  if (!trace.message.empty()) log_.say(trace.message);
  if (!trace.warning.empty()) log_.warn(trace.warning);
}

void Trainer::advise(const StepReport& report) {
  const bool clipped = config_.gradient_clipping > 0 && report.grad_norm > config_.gradient_clipping;
  if (!first_steps_.add(report.split, clipped)) return;
  const std::vector<StepSplit> means = all_gather(mpi_, first_steps_.mean());
  const std::vector<std::string> throttled = all_gather(mpi_, gpu_throttling(device_));
  const auto slowed = std::find_if(throttled.begin(), throttled.end(), [](const auto& text) { return !text.empty(); });
  const std::optional<std::string> advice =
      bottleneck(means, {.on_gpu = device_.is_cuda(),
                         .world_size = mpi_.world_size(),
                         .stage_2_bytes = stage_2_bytes(setup_),
                         .offloads_optimizer = config_.zero.offload_optimizer,
                         .new_file_keys = new_file_keys(config_),
                         .micro_batch_tokens = config_.micro_batch_tokens(),
                         .spare_bytes = device_.is_cuda() ? memory_.spare() : 0,
                         .host_states_bytes = engine_.memory_use().host_optimizer_states,
                         .mfu = log_.mfu(means.front().total(), report.attention_share),
                         .throttled = slowed == throttled.end() ? "" : *slowed});
  if (advice) log_.say(fmt::format("Bottleneck: {}", *advice));
  if (mpi_.rank() != 0 || !control_.plans) return;
  RunSetup setup = setup_;
  setup.attention_share = report.attention_share;
  setup.config.zero.release_gradients = zero_options_.release_gradients;
  const plan::PlannedRun run =
      plan::planned_run(setup, device_, mpi_.local_size(), memory_.host_at_start(), control_.network);
  const std::string line = plan::plan_beside_run(run, means.front(), first_steps_.mostly_after_clipping());
  if (!line.empty()) log_.say(line);
}

std::vector<double> Trainer::figures() const {
  std::vector<double> figures(kOwnSeconds + static_cast<size_t>(mpi_.world_size()), 0.0);
  figures[kStopVotes] = stop_.vote();
  figures[kWarnings] = control_.warnings != nullptr && !control_.warnings->empty() ? 1 : 0;
  figures[kAttention] = attention_share_;
  figures[kOwnSeconds + static_cast<size_t>(mpi_.rank())] = own_seconds_;
  return figures;
}

void Trainer::name_straggler() {
  const std::optional<Straggler> late = stragglers_.take_straggler();
  if (!late) return;
  // All ranks detect the same straggler, but only the straggler can report its host and GPU.
  std::pair<std::string, std::string> mine;
  if (mpi_.rank() == late->rank) mine = {doctor::host_name(doctor::System{}), gpu_condition(device_)};
  const auto [host, gpu] = all_gather(mpi_, mine)[static_cast<size_t>(late->rank)];
  log_.warn(describe(*late, host, gpu));
}

void Trainer::record_node() {
  std::vector<Collector> collectors;
  if (device_.is_cuda()) collectors.push_back(gpu_collector(gpus_of_host(device_, mpi_)));
  if (mpi_.rank() != 0) return;
  const auto warn = [queue = control_.warnings](const std::string& text) {
    if (queue != nullptr) queue->warn(text + ".");
  };
  node_recorder_ = std::make_unique<NodeRecorder>(
      log_.folder() / "node.jsonl",
      nlohmann::ordered_json{{"run", setup_.run.id}, {"start", setup_.start}, {"host", host_name()}},
      std::move(collectors), warn);
}

void Trainer::record_warnings() {
  const std::vector<std::string> mine =
      control_.warnings != nullptr ? control_.warnings->take() : std::vector<std::string>();
  for (const std::vector<std::string>& of_rank : all_gather(mpi_, mine)) {
    for (const std::string& warning : of_rank) log_.record_warning(warning);
  }
}

void Trainer::start() {
  // These warnings were printed before the log was opened.
  for (const std::string& warning : setup_.warnings) log_.record_warning(warning);
  if (!control_.watchdog.warning().empty()) log_.record_warning(control_.watchdog.warning());
  const int64_t parameters = model::num_parameters(setup_.model);
  const int64_t adapters = parameters - model::num_parameters(setup_.model.base());
  log_.say(fmt::format("Created model with total parameters: {}{}", parameters,
                       adapters > 0 ? fmt::format(" ({} trainable)", adapters) : ""));
  // Fail now rather than at the first checkpoint.
  folder_.open();
  setup_.data = identify_data(config_, mpi_);
  std::vector<std::string> warnings;
  const std::optional<Resumed> resumed = resume_run(setup_, saved_units_, engine_, mpi_, warnings);
  for (const std::string& warning : warnings) log_.warn(warning);
  setup_.run = folder_.identify(resumed);
  saved_units_ = saved_units(setup_, std::move(saved_units_));
  setup_.start = broadcast(mpi_, io::new_run_id());
  folder_.check(setup_.run, resumed);
  metrics_owner_ = {.run_id = setup_.run.id, .began_without_id = resumed && !resumed->checkpoint_has_id};
  if (resumed) {
    setup_.config = resumed->config;
    position_ = resumed->position;
    checkpointer_.resumed_from(position_.step);
    log_.say(fmt::format("Found existing checkpoint: {}", resumed->checkpoint.string()));
    log_.say(fmt::format("Resumed from checkpoint at step {}", position_.step));
    for (const std::string& line : resumed->changes) log_.say(line);
    if (!at_end()) {
      log_.say(fmt::format("Learning rate: {}",
                           describe_rates(config_.schedule_in_force(), position_.step + 1, config_.max_steps)));
    }
  } else {
    if (setup_.train_files.size() > 1) position_.sources = new_sources(setup_);
    const auto is_of_model = [](const std::string& key) { return key != kTokenizerKey; };
    if (std::ranges::any_of(config_.allow_changed, is_of_model))
      log_.warn("--allow_changed has no effect: this run does not resume from a checkpoint.");
    std::vector<std::string> of_weights;
    initialize_run(setup_, engine_, mpi_, of_weights);
    for (const std::string& warning : of_weights) log_.warn(warning);
    if (!config_.init_from.empty()) {
      log_.say(fmt::format("Weights: {}, {} parameters, xxh3 {}", config_.init_from,
                           model::num_parameters(setup_.model.base()), setup_.run.init_from_hash));
      if (!config_.init_adapters.empty()) {
        log_.say(fmt::format("Adapters: {}, xxh3 {}", config_.init_adapters, setup_.run.init_adapters_hash));
      }
    }
  }
  pass_.recompute(placement_.plan(), config_.micro_batch_size, config_.length_on_rank());
  if (config_.recompute == Recomputation::kAuto) {
    setup_.recompute = memory_.recompute();
    if (resumed && resumed->recompute && *resumed->recompute != setup_.recompute) {
      log_.say(fmt::format("Changed since the checkpoint: recompute {} -> {}", *resumed->recompute, setup_.recompute));
    }
  }
  decoder_->keep_casts(memory_.kept_casts());
  log_memory();
  run_on_all_ranks(mpi_, [&] {
    const io::LoaderOptions options = loader_options(setup_, mpi_, position_);
    std::vector<io::TokenDataset> data;
    for (const TrainFile& file : setup_.train_files) {
      data.emplace_back(file.path, config_.seq_length, config_.document_mask);
    }
    train_data_.emplace(std::move(data), options, position_.step);
    validation_.emplace(config_, options, communicators_.sequence());
  });
  folder_.make_room();
}

void Trainer::log_memory() {
  for (const std::string& line : memory_.breakdown()) log_.say(line);
  if (const std::optional<std::string> warning = memory_.warning()) log_.warn(*warning);
  if (const std::string line = missing_peak(setup_); !line.empty()) log_.say(line);
  if (const auto line = slow_dtype(config_, device_.is_cpu(), multiplies_bf16())) {
    device_.is_cpu() ? log_.say(*line) : log_.warn(*line + ".");
  }
  const parallel::HostUpdateOptions& on_host = zero_options_.host_update;
  if (on_host.threads > 0) log_.say(fmt::format("AdamW on the host: {}", describe(on_host)));
  if (const auto few = few_threads(on_host, mpi_.local_size(), online_hardware_threads())) log_.warn(*few + ".");
  if (on_host.threads == 0 && !device_.is_cpu()) return;
  if (const auto line = slower_update(parallel::fastest_host_kernel())) log_.say(*line);
}

StepReport Trainer::train_step() {
  const Clock::time_point start = Clock::now();
  const parallel::ProfileRange range("step", std::to_string(position_.step + 1));
  const int64_t update = position_.step + 1;
  const double lr = config_.lr(update);
  double blocked_by_checkpoints = 0;
  attention_share_ = 0;
  model::CastWatch* const watch = log_.is_logged(update) ? decoder_->cast_watch() : nullptr;
  if (watch != nullptr) watch->begin();
  const OptimizerStepResult result = run_optimizer_step(
      engine_, pass_, timer_,
      {.device = device_,
       .lr = lr,
       .update = update,
       .micro_batches = config_.gradient_accumulation_steps,
       .loss_weight = [&] { return loss_weight(*train_data_, update, mpi_); },
       .next =
           [&] {
             const io::MicroBatch batch = train_data_->next();
             attention_share_ += batch.attention_share(config_.seq_length);
             model::Batch copied = batch_on(device_, batch, config_.seq_length, communicators_.sequence());
             copied.dropout = {.seed = config_.seed, .first_sample = batch.first_window};
             return copied;
           },
       .before_update =
           [&] {
             blocked_by_checkpoints = checkpointer_.before_update();
             if (watch != nullptr) watch->end();
           },
       .figures = [&] { return figures(); }});
  const parallel::StepSummary& summary = result.summary;
  check_finite({.step = update,
                .summary = summary,
                .loss_sum = result.loss_sum,
                .micro_batches = config_.gradient_accumulation_steps,
                .saved_step = checkpointer_.saved_step()},
               mpi_);

  stops_ = summary.figures[kStopVotes] > 0;
  warned_ = summary.figures[kWarnings] > 0;
  const std::optional<SlowestRank> slowest = stragglers_.add(summary.figures.subspan(kOwnSeconds));
  const StepSplit split = timer_.finish_step();
  own_seconds_ = split.own();
  position_.step = update;
  position_.sequences_seen += config_.train_batch_size;
  for (int64_t i = 0; !position_.sources.empty() && i < config_.train_batch_size; ++i) io::draw(position_.sources);
  position_.tokens_seen += config_.train_batch_size * config_.seq_length;
  return {.step = update,
          .loss = summary.loss,
          .lr = lr,
          .grad_norm = summary.grad_norm,
          .seconds = seconds_since(start),
          .split = split,
          .tokens_seen = position_.tokens_seen,
          .internode_bytes = communicators_.take_internode_bytes(),
          .peak_memory = memory_.peak(),
          .validation = {},
          .slowest = slowest,
          .rank_seconds = {summary.figures.begin() + kOwnSeconds, summary.figures.end()},
          .attention_share = summary.figures[kAttention] /
                             static_cast<double>(config_.gradient_accumulation_steps * mpi_.world_size()),
          .checkpoint_blocked_seconds = blocked_by_checkpoints,
          .casts = watch != nullptr ? over_ranks(mpi_, watch->ranges()) : model::CastRanges()};
}

std::vector<ValidationLoss> Trainer::validate() {
  control_.watchdog.enter(RunPhase::kValidation, position_.step);
  checkpointer_.before_validation();
  const parallel::ProfileRange range("validation");
  parallel::LateSum votes;
  const auto stops = [&] {
    stops_ = votes.next(stop_.vote()) > 0;
    return stops_;
  };
  return validation_->run(pass_, engine_, device_, stops).value_or(std::vector<ValidationLoss>());
}

}  // namespace mpzero
