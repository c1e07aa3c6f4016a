#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "io/hub/hub_cache.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"
#include "tests/setting.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using Catch::Contains;

TEST_CASE("the first variable that is set selects the cache") {
  // As huggingface_hub/constants.py orders them, from the last.
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
  CHECK(hub_cache() == fs::path(std::getenv("HOME")) / ".cache/huggingface/hub");
  const Setting xdg("XDG_CACHE_HOME", "/x");
  CHECK(hub_cache() == "/x/huggingface/hub");
  const Setting hf_home("HF_HOME", "/y");
  CHECK(hub_cache() == "/y/hub");
  const Setting former("HUGGINGFACE_HUB_CACHE", "/z");
  CHECK(hub_cache() == "/z");
  const Setting cache("HF_HUB_CACHE", "");
  CHECK(hub_cache() == "/z");
}

TEST_CASE("Hub names are distinguished from paths") {
  for (const char* name : {"Qwen/Qwen3-0.6B", "a/b", "org_1/x.y-z"}) CHECK(is_hub_name(name));
  for (const char* path : {"gpt2", "/Qwen/Qwen3", "./Qwen", "../Qwen", "a/b/c", "a/", "/a", "a/b--c", "a/b c", "~/a"}) {
    CHECK_FALSE(is_hub_name(path));
  }
}

TEST_CASE("a cached name selects the snapshot of its main branch") {
  const testing::TemporaryFolder cache;
  const Setting variable("HF_HUB_CACHE", cache.path());
  const fs::path name = "an-org-nobody-has/Model-1.5";
  const fs::path repository = cache / "models--an-org-nobody-has--Model-1.5";
  const auto set_main = [&](const std::string& commit) { std::ofstream(repository / "refs/main") << commit; };
  CHECK(hub_snapshot_or(name) == name);
  fs::create_directories(repository / "refs");
  for (const char* commit : {"0a1b", "2c3d"}) fs::create_directories(repository / "snapshots" / commit);
  CHECK(hub_snapshot_or(name) == name);
  set_main("2c3d");
  CHECK(hub_snapshot_or(name) == repository / "snapshots/2c3d");
  CHECK(hub_name_of(hub_snapshot_or(name)) == name);
  set_main("0a1b\n");
  CHECK(hub_snapshot_or(name) == repository / "snapshots/0a1b");
  // A commit, and a tag.
  std::ofstream(repository / "refs/v1") << "2c3d";
  CHECK(hub_snapshot(name, "2c3d") == repository / "snapshots/2c3d");
  CHECK(hub_snapshot(name, "v1") == repository / "snapshots/2c3d");
  CHECK_FALSE(fs::exists(hub_snapshot(name, "4e5f")));
  CHECK_FALSE(fs::exists(hub_snapshot(name, "v2")));
  for (const char* commit : {"ffff", "", "../snapshots"}) {
    set_main(commit);
    CHECK(hub_snapshot_or(name) == name);
  }
  CHECK(hub_name_of(repository / "snapshots").empty());
  CHECK(hub_name_of("/weights/snapshots/2c3d").empty());
}

TEST_CASE("an existing folder of that name takes precedence over the cache") {
  const testing::TemporaryFolder cache, work;
  const Setting variable("HF_HUB_CACHE", cache.path());
  fs::create_directories(cache / "models--org--model/refs");
  fs::create_directories(cache / "models--org--model/snapshots/1");
  std::ofstream(cache / "models--org--model/refs/main") << "1";
  const fs::path before = fs::current_path();
  fs::current_path(work.path());
  CHECK(hub_snapshot_or("org/model") == cache / "models--org--model/snapshots/1");
  fs::create_directories(work / "org/model");
  CHECK(hub_snapshot_or("org/model") == "org/model");
  fs::current_path(before);
}

TEST_CASE("missing weights are explained with a download command") {
  const Setting variable("HF_HUB_CACHE", "/some/cache");
  CHECK_THAT(explain_missing_weights("Qwen/Qwen3-0.6B"),
             Contains("/some/cache") && Contains("hf download Qwen/Qwen3-0.6B`"));
  CHECK_THAT(explain_missing_weights("/weights/x"), Contains("hf download"));
}

}  // namespace mpzero::io
