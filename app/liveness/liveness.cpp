#include "app/liveness/liveness.hpp"

#include "app/liveness/liveness_thread.hpp"

namespace mpzero {

Liveness::Liveness(parallel::MpiRuntime& mpi, const StopRequest& stop, const Options& options)
    : thread_(std::make_unique<Thread>(mpi, stop, options)) {}

Liveness::~Liveness() = default;

const std::string& Liveness::warning() const { return thread_->warning(); }
void Liveness::use_device(at::Device device) { thread_->use_device(device); }
void Liveness::enter(RunPhase phase, int64_t step) { thread_->activity().enter(phase, step); }
void Liveness::moved_on() { thread_->activity().moved_on(); }
parallel::FlightRecorder& Liveness::recorder() { return thread_->activity().recorder(); }
void Liveness::failed(const std::string& error, const std::vector<int>& culprits) { thread_->failed(error, culprits); }
bool Liveness::overdue(const std::string& message) { return thread_->overdue(message); }

Liveness::Watch::Watch(Liveness& liveness, std::vector<parallel::Communicator*> communicators) : liveness_(liveness) {
  liveness_.thread_->activity().watch(std::move(communicators));
}

Liveness::Watch::~Watch() { liveness_.thread_->activity().watch({}); }

Liveness::EndRecord::EndRecord(Liveness& liveness, std::function<void(std::string_view, std::string_view)> record)
    : liveness_(liveness) {
  liveness_.thread_->record_end(std::move(record));
}

Liveness::EndRecord::~EndRecord() { liveness_.thread_->record_end(nullptr); }

}  // namespace mpzero
