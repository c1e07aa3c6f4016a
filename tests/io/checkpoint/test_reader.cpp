#include <cstring>

#include "base/error.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/shard_files.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;

TEST_CASE("a checkpoint of any number of ranks is read bit for bit by any other number of ranks") {
  const auto model = small_model();
  const int writers = GENERATE(1, 2, 3, 4);
  const Split split = GENERATE(Split::kEven, Split::kRankZeroHoldsAll);
  const TemporaryFolder folder;
  for (const std::string& error : save(folder.path(), "tiny-7steps", progress_at(7), model, writers, split)) {
    REQUIRE(error == "");
  }
  REQUIRE(latest_checkpoint(folder.path()) == folder / "tiny-7steps");
  const auto reader = open_hdf5(folder / "tiny-7steps");
  const std::string states = read_file(folder / "tiny-7steps" / kModelStatesName);
  CHECK(read_model_states(kModelStatesName, std::as_bytes(std::span(states))).units == model);
  for (const int readers : {1, 2, 3, 4, 7}) {
    for (int rank = 0; rank < readers; ++rank) {
      for (size_t i = 0; i < model.size(); ++i) {
        const UnitShard wanted = shard_of(model[i], rank, readers, Split::kEven);
        for (const StateKind kind : kAllKinds) {
          std::vector<float> out(static_cast<size_t>(wanted.count));
          reader->read_unit(model[i], kind, wanted.begin, out);
          CAPTURE(writers, readers, rank, i);
          REQUIRE(same_bits(out, i, kind, wanted.begin));
        }
      }
    }
  }
}

TEST_CASE("shards with many checksum blocks are read in full, in part and from several threads") {
  // The first rank's shard ends inside a block. Reads begin and end inside blocks.
  const int64_t block = kChecksumBlockBytes / 4;
  const std::vector<UnitSpec> model = {{"big", {{"w", {11 * block + 12345}}}}};
  const TemporaryFolder folder;
  REQUIRE(save(folder.path(), "big-1steps", progress_at(1), model, 2) == std::vector<std::string>{"", ""});
  const auto reader = open_hdf5(folder / "big-1steps");
  std::vector<float> all(static_cast<size_t>(model[0].numel()));
  reader->read_unit(model[0], StateKind::kExpAvg, 0, all);
  CHECK(same_bits(all, 0, StateKind::kExpAvg, 0));
  const auto fresh = open_hdf5(folder / "big-1steps");
  ThreadGroup threads(4);
  const auto errors = threads.run([&](ProcessGroup& rank) {
    const int64_t begin = rank.rank() * 2 * block + block / 2;
    std::vector<float> out(static_cast<size_t>(4 * block));
    for (int repeat = 0; repeat < 2; ++repeat) {
      fresh->read_unit(model[0], StateKind::kMaster, begin, out);
      if (!same_bits(out, 0, StateKind::kMaster, begin)) throw Failure("other bits");
    }
  });
  CHECK(errors == std::vector<std::string>(4));
}

TEST_CASE("progress and configurations are restored unchanged") {
  const TemporaryFolder folder;
  TrainingProgress saved = progress_at(12, "fp32");
  saved.data_order = "12 sequences of 16 tokens";
  saved.run_config_json = std::string(100000, 'x');  // more than an HDF5 object header holds
  saved.settings_json = R"({"beta2": 0.95, "no_decay": ["é"]})";
  REQUIRE(save(folder.path(), "tiny-12steps", saved, small_model(), 2) == std::vector<std::string>{"", ""});
  const TrainingProgress read = open_hdf5(folder / "tiny-12steps")->progress();
  CHECK(read.step == saved.step);
  CHECK(read.tokens_seen == saved.tokens_seen);
  CHECK(read.sequences_seen == saved.sequences_seen);
  CHECK(read.seed == saved.seed);
  CHECK(read.data_order == saved.data_order);
  CHECK(read.dtype == saved.dtype);
  CHECK(read.zero_stage == saved.zero_stage);
  CHECK(read.model_config_json == saved.model_config_json);
  CHECK(read.run_config_json == saved.run_config_json);
  CHECK(read.settings_json == saved.settings_json);
  CHECK(names_in(folder / "tiny-12steps") == std::vector<std::string>{"manifest.json", "mp_rank_00_model_states.h5",
                                                                      "zero_pp_rank_0_mp_rank_00_optim_states.h5",
                                                                      "zero_pp_rank_1_mp_rank_00_optim_states.h5"});
}

TEST_CASE("a checkpoint from an older version without settings reports none") {
  const TemporaryFolder folder;
  REQUIRE(save(folder.path(), "tiny-12steps", progress_at(12), small_model(), 1) == std::vector<std::string>{""});
  CHECK(open_hdf5(folder / "tiny-12steps")->progress().settings_json.empty());
}

TEST_CASE("bf16 runs have DeepSpeed's prefix") {
  CHECK(optimizer_file_name("bf16", 12) == "bf16_zero_pp_rank_12_mp_rank_00_optim_states.h5");
  CHECK(optimizer_file_name("fp32", 3) == "zero_pp_rank_3_mp_rank_00_optim_states.h5");
}

TEST_CASE("parameters are found in their units") {
  const auto model = small_model();
  const TemporaryFolder folder;
  save(folder.path(), "tiny-1steps", progress_at(1), model, 3);
  const auto reader = open_hdf5(folder / "tiny-1steps");
  std::vector<float> norm(13);
  reader->read("model.layers.0.norm.weight", StateKind::kExpAvgSq, 0, norm);
  CHECK(same_bits(norm, 1, StateKind::kExpAvgSq, 77));
  std::vector<float> part(4);
  reader->read(model[1].parameters[1], 9, part);
  CHECK(same_bits(part, 1, StateKind::kMaster, 86));
  CHECK_THAT(message_of([&] { reader->read("model.layers.0.norm.weight", StateKind::kMaster, 10, part); }),
             Contains("different model") && Contains("13 elements"));
  CHECK_THAT(message_of([&] { reader->read("lm_head.weight", StateKind::kMaster, 0, part); }),
             Contains("lm_head.weight"));
  CHECK_THROWS_AS(reader->read_unit(model[2], StateKind::kMaster, 0, part), UserError);
}

TEST_CASE("reads parameters that the run groups into different units") {
  const auto model = small_model();
  const TemporaryFolder folder;
  save(folder.path(), "tiny-1steps", progress_at(1), model, 3);
  const auto reader = open_hdf5(folder / "tiny-1steps");
  const ParameterSpec& q = model[1].parameters[0];
  const ParameterSpec& norm = model[1].parameters[1];
  const UnitSpec turned{"other", {norm, model[2].parameters[0], q}};
  std::vector<float> out(13 + 1 + 4 - 9);
  reader->read_unit(turned, StateKind::kExpAvg, 9, out);
  CHECK(same_bits(std::span(out).first(4), 1, StateKind::kExpAvg, q.numel() + 9));
  CHECK(same_bits(std::span(out).subspan(4, 1), 2, StateKind::kExpAvg, 0));
  CHECK(same_bits(std::span(out).subspan(5), 1, StateKind::kExpAvg, 0));
  CHECK_THROWS_AS(reader->read_unit(turned, StateKind::kExpAvg, turned.numel() - 8, out), Failure);
  const UnitSpec unknown{"layers.1", {{"model.layers.1.q.weight", {9}}}};
  CHECK_THAT(message_of([&] { reader->read_unit(unknown, StateKind::kMaster, 0, out); }),
             Contains("different model") && Contains("model.layers.1.q.weight"));
}

TEST_CASE("`latest` may have trailing blanks and must refer to an existing checkpoint") {
  const TemporaryFolder folder;
  CHECK(latest_checkpoint(folder.path()) == std::nullopt);
  CHECK(latest_checkpoint(folder / "absent") == std::nullopt);
  save(folder.path(), "tiny-1steps", progress_at(1), small_model(), 1);
  CHECK(read_file(folder / "latest") == "tiny-1steps\n");
  write_file(folder / "latest", "tiny-1steps \r\n\n");
  CHECK(latest_checkpoint(folder.path()) == folder / "tiny-1steps");
  CHECK(find_checkpoint(folder.path()) == folder / "tiny-1steps");
  CHECK(find_checkpoint(folder / "tiny-1steps") == folder / "tiny-1steps");
  CHECK(find_checkpoint(folder.path(), "tiny-1steps") == folder / "tiny-1steps");
  CHECK_THROWS_AS(find_checkpoint(folder.path(), "tiny-2steps"), UserError);
  CHECK_THROWS_AS(find_checkpoint(folder / "absent"), UserError);
  CHECK_THROWS_WITH(find_checkpoint(folder / "latest"), Contains("latest is a file"));

  write_file(folder / "latest", "tiny-9steps\n");
  CHECK_THAT(message_of([&] { latest_checkpoint(folder.path()); }),
             Contains((folder / "latest").string()) && Contains((folder / "tiny-9steps").string()));
  for (const std::string& wrong :
       {std::string(), std::string("\n"), std::string("../tiny-1steps"), std::string(9000, 'a')}) {
    write_file(folder / "latest", wrong);
    CHECK_THROWS_AS(latest_checkpoint(folder.path()), UserError);
  }
}

TEST_CASE("pruning keeps the most recently saved checkpoints, whatever their steps, and the target of `latest`") {
  const TemporaryFolder folder;
  // A run of 100 steps, then another run that started over in the same folder.
  for (const int step : {10, 100, 2, 9}) {
    save(folder.path(), "tiny-" + std::to_string(step) + "steps", progress_at(step), small_model(), 1);
  }
  fs::create_directory(folder / "tiny-bigger-1steps");  // of another model
  fs::create_directory(folder / "tiny-1steps-mine");
  fs::create_directory(folder / "tiny-77steps");  // no manifest, so its age is unknown
  write_file(folder / "latest", "tiny-10steps\n");
  prune_checkpoints(folder.path(), "tiny", "", 0);
  CHECK(names_in(folder.path()).size() == 8);
  prune_checkpoints(folder.path(), "tiny", "", 2);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "tiny-10steps", "tiny-1steps-mine", "tiny-2steps",
                                                            "tiny-77steps", "tiny-9steps", "tiny-bigger-1steps"});
}

TEST_CASE("a checkpoint of a different model is detected by a single differing parameter") {
  const auto model = small_model();
  const auto check = [](const std::vector<UnitSpec>& of_checkpoint, const std::vector<UnitSpec>& of_run) {
    std::vector<ParameterSpec> parameters;
    for (const UnitSpec& unit : of_checkpoint) {
      parameters.insert(parameters.end(), unit.parameters.begin(), unit.parameters.end());
    }
    return message_of([&] { check_same_parameters(parameters, of_run, "c"); });
  };
  CHECK(check(model, model).empty());
  auto other = model;
  other[1].parameters[0].shape = {7, 12};
  CHECK_THAT(check(model, other), Contains("model.layers.0.q.weight has shape [7, 11]"));
  other = model;
  other.push_back({"layers.1", {{"model.layers.1.q.weight", {2}}}});
  CHECK_THAT(check(model, other), Contains("has no model.layers.1.q.weight"));
  CHECK_THAT(check(other, model), Contains("model.layers.1.q.weight") && Contains("[2]"));
  other = model;
  std::swap(other[1].parameters[0], other[1].parameters[1]);
  CHECK(check(model, other).empty());  // in another order
}

TEST_CASE("shards that do not cover the model are refused on every rank") {
  const auto model = small_model();
  const TemporaryFolder folder;
  const int64_t begin = GENERATE(0, 60);  // rank 1 leaves a gap, or repeats what rank 0 holds
  ThreadGroup group(2);
  const auto errors = group.run([&](ProcessGroup& rank) {
    SaveJob job = job_of(folder.path(), kOurs, 1, {});
    for (const UnitSpec& unit : model) job.shards.push_back(shard_of(unit, rank.rank(), 2, Split::kEven));
    if (rank.rank() == 1) job.shards[1] = {&model[1], begin, model[1].numel() - begin};
    const std::vector<float> zeros(1000);
    const auto fetch = [&](size_t i, StateKind) {
      return std::span(zeros).first(static_cast<size_t>(job.shards[i].count));
    };
    save_checkpoint(job, {.fetch = fetch}, rank);
  });
  for (const std::string& error : errors) CHECK_THAT(error, Contains("layers.0"));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("only runs that need carried state read its file, and reading takes no more memory than the model") {
  const auto model = small_model();
  const TemporaryFolder folder;
  SaveJob job = job_of(folder.path(), kOurs, 7, model);
  CarriedState state{
      .nodes = 1, .ranks_per_node = 1, .values = {{model[0].name, "parameters", {64}, false}}, .fetch = [](size_t) {
        static const std::vector<std::byte> bytes(64 * sizeof(float), std::byte{3});
        return std::span<const std::byte>(bytes);
      }};
  const std::vector<CarriedValues> wanted = state.values;
  job.carried = std::make_shared<CarriedState>(std::move(state));
  SingleProcess alone;
  save_checkpoint(job, SnapshotValues(job, 0).get(), alone);
  const fs::path checkpoint = folder / "tiny-7steps";
  const fs::path file = checkpoint / carried_file_name("bf16", 0);
  {
    const auto reader = open_hdf5(checkpoint);
    CHECK(reader->carrying_ranks() == 1);
    const auto stored = reader->carried(0, wanted);
    REQUIRE(stored);
    REQUIRE(stored->values.front());
    CHECK((*stored->values.front() == std::vector<std::byte>(256, std::byte{3})));
    CHECK_FALSE(reader->carried(1, wanted));
    reader->verify();
  }
  const auto check = [&](const char* damage) {
    INFO(damage);
    CHECK(latest_checkpoint(folder.path()) == checkpoint);
    CHECK(holds_generation(checkpoint, model, 0));
    const auto reader = open_hdf5(checkpoint);
    CHECK(reader->carrying_ranks() == 1);
    CHECK_THROWS_AS(reader->carried(0, wanted), Damaged);
    CHECK_THROWS_WITH(reader->carried(0, wanted), Contains(file.string() + " is damaged: " + damage));
  };
  // As large as nothing that a run of this model carries, in a manifest that agrees.
  const int64_t written = static_cast<int64_t>(fs::file_size(file)), large = int64_t{1} << 40;
  Manifest manifest = read_manifest(checkpoint);
  for (ManifestFile& entry : manifest.files) {
    if (is_carried_file(entry.name)) entry.size = large;
  }
  fs::resize_file(file, static_cast<uintmax_t>(large));
  write_manifest(checkpoint, manifest);
  check("the file has 1099511627776 bytes, but this model needs");
  for (ManifestFile& entry : manifest.files) {
    if (is_carried_file(entry.name)) entry.size = written;
  }
  fs::resize_file(file, static_cast<uintmax_t>(written - 1));
  write_manifest(checkpoint, manifest);
  check("the file has");
  CHECK_THROWS_WITH(open_hdf5(checkpoint)->verify(), Contains("truncated"));
  fs::remove(file);
  check("the file is missing");
}

}  // namespace mpzero::io
