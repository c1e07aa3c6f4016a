#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/zero/parameter_store.hpp"

namespace mpzero::parallel {

// Full parameters on every rank: ZeRO 0 to 2. publish() starts the gather of a unit's shards, first between nodes and
// then within the node. gather() waits for the result.
class ReplicatedParameters final : public ParameterStore {
 public:
  ReplicatedParameters(const std::vector<UnitSpec>& units, const std::vector<FlatLayout>& layouts, int shard_index,
                       const Levels& levels, const ParameterStoreOptions& options);

  MemoryUse memory_use() const override;
  std::optional<uint64_t> version(size_t unit) const override { return states_[unit].published; }

 private:
  void start(size_t unit) override;
  std::vector<Due> due_after_publishing(size_t unit, Written written) override;
  void drop_gathered() override;
};

}  // namespace mpzero::parallel
