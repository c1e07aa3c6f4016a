#include "io/ds_config/zero.hpp"

#include <string>

#include "io/ds_config/remedies.hpp"

namespace mpzero::io {
namespace {

void read_offload_device(ObjectReader& section, Setting<OffloadDevice>& device) {
  Setting<std::string> name;
  section.read("device", name, Auto::kAllowed, {"none", "cpu", "nvme"});
  if (!name.given()) return;
  if (name.value == "nvme") return section.refuse("device", "is \"nvme\", which mpzero does not support; use \"cpu\"");
  device.source = SettingSource::kGiven;
  device.value = name.value == "cpu" ? OffloadDevice::kCpu : OffloadDevice::kNone;
}

void read_offload_optimizer(ObjectReader& zero, OffloadOptimizerSection& offload) {
  auto section = zero.section("offload_optimizer");
  if (!section) return;
  read_offload_device(*section, offload.device);
  section->read("pin_memory", offload.pin_memory, Auto::kAllowed);
  section->read("ratio", offload.ratio, Auto::kAllowed, 0.0, 1.0);
  section->read("release_gradients", offload.release_gradients, Auto::kAllowed);
  section->harmless({"nvme_path", "buffer_count", "fast_init"});
  section->not_acted_on({"pipeline_read", "pipeline_write"}, false, "this setting affects only NVMe offload");
  section->not_acted_on({"super_offload", "cpuadam_cores_perc"}, false, "the host optimizer uses the rank's cores");
  section->finish();
}

void read_offload_param(ObjectReader& zero, OffloadParamSection& offload) {
  auto section = zero.section("offload_param");
  if (!section) return;
  read_offload_device(*section, offload.device);
  section->read("pin_memory", offload.pin_memory, Auto::kAllowed);
  section->harmless({"nvme_path", "buffer_count", "buffer_size", "max_in_cpu"});
  section->finish();
}

// Reads the deprecated forms of offload_optimizer and offload_param, which DeepSpeed still accepts.
void read_deprecated_offload(ObjectReader& section, ZeroSection& zero) {
  Setting<bool> cpu_offload;
  Setting<bool> cpu_offload_param;
  section.read("cpu_offload", cpu_offload, Auto::kAllowed);
  section.read("cpu_offload_param", cpu_offload_param, Auto::kAllowed);
  section.harmless({"cpu_offload_use_pin_memory"});
  if (cpu_offload.given()) {
    if (section.has("offload_optimizer")) {
      section.refuse("cpu_offload", "is the old name of offload_optimizer, which is also set; remove cpu_offload");
    }
    zero.offload_optimizer.device.source = SettingSource::kGiven;
    zero.offload_optimizer.device.value = cpu_offload.value ? OffloadDevice::kCpu : OffloadDevice::kNone;
  }
  if (cpu_offload_param.given()) {
    if (section.has("offload_param")) {
      section.refuse("cpu_offload_param",
                     "is the old name of offload_param, which is also set; remove cpu_offload_param");
    }
    zero.offload_param.device.source = SettingSource::kGiven;
    zero.offload_param.device.value = cpu_offload_param.value ? OffloadDevice::kCpu : OffloadDevice::kNone;
  }
}

// DeepSpeed accepts most stage 3 keys with and without the prefix `stage3_`.
void read_stage3_size(ObjectReader& section, const std::string& key, Setting<int64_t>& setting) {
  Setting<int64_t> unprefixed = setting;
  section.read("stage3_" + key, setting, Auto::kAllowed, 0);
  section.read(key, unprefixed, Auto::kAllowed, 0);
  if (unprefixed.missing()) return;
  if (!setting.missing())
    section.refuse(key, "is an alias of stage3_" + key + ", which is also set; keep one of the two");
  setting = unprefixed;
}

void read_levels(ObjectReader& section, ZeroSection& zero) {
  section.read("zero_hpz_partition_size", zero.hpz_partition_size, Auto::kAllowed, 1);
  section.read("mics_shard_size", zero.mics_shard_size, Auto::kAllowed, -1);
  if (zero.mics_shard_size.given() && zero.mics_shard_size.value == 0) {
    section.refuse("mics_shard_size", "is 0; use the number of ranks per shard group, or -1");
  }
  const bool hpz = zero.hpz_partition_size.is_auto() || zero.hpz_partition_size.value > 1;
  const bool mics = zero.mics_shard_size.is_auto() || zero.mics_shard_size.value > 0;
  if (hpz && mics) {
    section.refuse("mics_shard_size",
                   "and zero_hpz_partition_size both set the ranks per shard group; keep one of the two");
  }
}

void refuse_other_sharding(ObjectReader& section) {
  section.only("zero_quantized_nontrainable_weights", false, "set it to false");
  section.only("mics_hierarchical_params_gather", false, kRemoveIt);
  section.only("zeropp_loco_param", nullptr, kRemoveIt);
  section.only("zenflow", nullptr, kRemoveIt);
}

}  // namespace

void read_zero(ObjectReader& root, ZeroSection& zero) {
  auto section = root.section("zero_optimization");
  if (!section) return;
  section->read("stage", zero.stage, Auto::kRefused, 0, 3);
  read_offload_optimizer(*section, zero.offload_optimizer);
  read_offload_param(*section, zero.offload_param);
  read_deprecated_offload(*section, zero);
  section->read("overlap_comm", zero.overlap_comm, Auto::kAllowed);
  section->read("reduce_bucket_size", zero.reduce_bucket_size, Auto::kAllowed, 1);
  section->read("allgather_bucket_size", zero.allgather_bucket_size, Auto::kAllowed, 0);
  section->read("sub_group_size", zero.sub_group_size, Auto::kAllowed, 0);
  read_stage3_size(*section, "prefetch_bucket_size", zero.prefetch_bucket_size);
  read_stage3_size(*section, "param_persistence_threshold", zero.param_persistence_threshold);
  read_stage3_size(*section, "max_live_parameters", zero.max_live_parameters);
  read_stage3_size(*section, "max_reuse_distance", zero.max_reuse_distance);
  read_levels(*section, zero);
  section->read("zero_quantized_gradients", zero.quantized_gradients, Auto::kRefused);
  section->read("zero_quantized_weights", zero.quantized_weights, Auto::kRefused);
  refuse_other_sharding(*section);
  section->not_acted_on(
      {"contiguous_gradients", "reduce_scatter", "allgather_partitions", "use_multi_rank_bucket_allreduce",
       "round_robin_gradients", "parameter_alignment", "legacy_stage1", "allgather_bucket_size",
       "stage3_model_persistence_threshold", "model_persistence_threshold", "stage3_module_granularity_threshold",
       "module_granularity_threshold", "stage3_use_all_reduce_for_fetch_params", "use_all_reduce_for_fetch_params",
       "stage3_allgather_sequential", "allgather_sequential", "leaf_module"},
      "auto", kOneLayerAtATime);
  section->not_acted_on({"stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save",
                         "stage3_gather_fp16_weights_on_model_save"},
                        false, "zero_to_fp32 exports full weights");
  section->not_acted_on({"elastic_checkpoint"}, false, kCheckpoints);
  section->not_acted_on({"load_from_fp32_weights"}, true, "the fp32 master weights are always restored");
  section->not_acted_on({"compute_grad_norm"}, true, "the gradient norm is always logged");
  section->harmless({"ignore_unused_parameters", "memory_efficient_linear", "pipeline_loading_checkpoint",
                     "override_module_apply", "log_trace_cache_warnings", "enable_sanity_checks",
                     "save_muon_momentum_buffer_in_memory"});
  section->finish();
}

}  // namespace mpzero::io
