#include "app/plan/unit_times.hpp"

#include <algorithm>
#include <span>

#include "app/simulation/unit_record.hpp"

namespace mpzero::plan {
namespace {

using model::Operation;
using model::Recompute;

Seconds sum_of(const Calibration& calibration, std::span<const Operation> operations) {
  Seconds sum;
  for (const Operation& operation : operations) {
    const auto [seconds, extrapolated] = calibration.seconds(operation);
    (operation.matmul                            ? sum.matmuls
     : operation.attention || operation.products ? sum.attention
                                                 : sum.elementwise) += seconds;
    if (extrapolated) sum.extrapolated += seconds;
    sum.launch_bound += operation.launches * calibration.data().launch_seconds;
  }
  return sum;
}

void scale(Seconds& seconds, double factor) {
  for (double* part : {&seconds.matmuls, &seconds.attention, &seconds.elementwise, &seconds.extrapolated}) {
    *part *= factor;
  }
}

std::vector<Seconds*> parts_of(UnitTimes& times) {
  std::vector<Seconds*> parts = {&times.embedding_forward, &times.embedding_backward, &times.head};
  for (model::ByLevel<Seconds>* layer : {&times.layer_forward, &times.layer_backward}) {
    for (Seconds& level : layer->values) parts.push_back(&level);
  }
  return parts;
}

}  // namespace

Seconds& Seconds::operator+=(const Seconds& other) {
  matmuls += other.matmuls;
  attention += other.attention;
  elementwise += other.elementwise;
  launch_bound += other.launch_bound;
  extrapolated += other.extrapolated;
  return *this;
}

void UnitTimes::scale(double factor) {
  for (Seconds* part : parts_of(*this)) plan::scale(*part, factor);
}

UnitTimes unit_times(const Calibration& calibration, const model::ModelConfig& model,
                     const MicroBatchShape& micro_batch) {
  const std::shared_ptr<const UnitRecord> record =
      unit_record(model, micro_batch, calibration.data().gpu ? at::kCUDA : at::kCPU);
  const auto seconds = [&](const UnitCall& call) { return sum_of(calibration, call.operations); };
  UnitTimes times;
  times.embedding_forward = seconds(record->embedding_forward);
  times.embedding_backward = seconds(record->embedding_backward);
  times.head = seconds(record->head);
  for (const Recompute recompute : model::kRecomputes) {
    times.layer_forward[recompute] = seconds(record->layers[recompute].forward);
    times.layer_backward[recompute] = seconds(record->layers[recompute].backward);
  }
  times.step_factor = calibration.step_factor(times.layer_forward[Recompute::kNone].on_device() +
                                              times.layer_backward[Recompute::kNone].on_device());
  times.scale(times.step_factor);
  return times;
}

UnitTimes mean_of(const std::vector<std::pair<double, UnitTimes>>& weighted) {
  double all = 0;
  for (const auto& [weight, times] : weighted) all += weight;
  UnitTimes mean;
  mean.step_factor = 0;
  const std::vector<Seconds*> sums = parts_of(mean);
  for (auto [weight, times] : weighted) {
    const double share = weight / all;
    mean.step_factor += share * times.step_factor;
    const std::vector<Seconds*> parts = parts_of(times);
    for (size_t i = 0; i < parts.size(); ++i) {
      scale(*parts[i], share);
      parts[i]->launch_bound *= share;
      *sums[i] += *parts[i];
    }
  }
  return mean;
}

double host_adamw_seconds(const Calibration& calibration, int64_t parameters) {
  const double rate = calibration.data().host.adamw_parameters_per_second;
  if (rate <= 0) calibration.lacks("AdamW on the host");
  return static_cast<double>(parameters) / rate;
}

double device_copy_seconds(const Calibration& calibration, double bytes) {
  const double rate = calibration.data().copies.on_device;
  if (rate <= 0) calibration.lacks("copies on the device");
  return 2 * bytes / rate;
}

double pcie_seconds(const Calibration& calibration, double bytes, PcieDirection direction) {
  const measure::CopyRates& copies = calibration.data().copies;
  const double rate = direction == PcieDirection::kToDevice ? copies.to_device : copies.from_device;
  if (rate <= 0) calibration.lacks("copies between host and device");
  return bytes / rate;
}

}  // namespace mpzero::plan
