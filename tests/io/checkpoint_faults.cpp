// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: faults
// Saves that are killed or run out of disk space at each of their calls, two concurrent saves, and every bit of every
// file changed.
#include <doctest/doctest.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/io/checkpoint.hpp"
#include "support/error_of.hpp"
#include "support/file_faults.hpp"
#include "support/saved_layouts.hpp"
#include "support/stored_states.hpp"

namespace {

using namespace gspmd;
using namespace stored_states;
using namespace saved_layouts;
using caught::contains;
using caught::error_of;
using faults::fault;
namespace fs = std::filesystem;

/// Arrays of a run: one is split in two dims, one is replicated.
template <class Comm>
void save_state(Comm& comm, const std::string& directory, std::int64_t step, const checkpoint_options& options) {
  auto x = on_plane.array(comm);
  auto r = on_all.array(comm);
  on_plane.fill(comm, x, static_cast<std::uint64_t>(step));
  on_all.fill(comm, r, static_cast<std::uint64_t>(step));
  checkpoint state;
  state.add("x", x);
  state.add("r", r);
  state.save(comm, directory, step, options);
}
const checkpoint_options newest{.keep = 1, .block_bytes = 8};
void save_simulated(const std::string& directory, std::int64_t step) {
  simulated_communicator four(4);
  save_state(four, directory, step, newest);
}
void save_on_threads(const std::string& directory, std::int64_t step) {
  launch(threads{}, 4, [&](auto& comm) { save_state(comm, directory, step, newest); });
}

/// Arrays of another mesh. `restore` restores a state to these arrays and returns the step that they hold. -1: none;
/// -2: no complete step.
struct restored_state {
  simulated_communicator three{3};
  sharded_array<double> x = on_row.array(three);
  sharded_array<std::int8_t> r = on_three.array(three);
  checkpoint state;
  restored_state() {
    on_row.fill(three, x, 99);
    on_three.fill(three, r, 99);
    state.add("x", x);
    state.add("r", r);
  }
  std::int64_t restore(const std::string& directory) {
    const auto step = state.restore_latest(three, directory);
    if (!step) return -1;
    const auto seed = static_cast<std::uint64_t>(*step);
    return on_row.wrong(three, x, seed) == 0 && on_three.wrong(three, r, seed) == 0 ? *step : -2;
  }
  /// Returns true if no element has changed since before the first restore.
  bool is_untouched() {
    auto same_x = on_row.array(three);
    auto same_r = on_three.array(three);
    on_row.fill(three, same_x, 99);
    on_three.fill(three, same_r, 99);
    bool same = true;
    for (int d = 0; d < 3; ++d)
      same = same &&
             std::equal(x.shard(d).begin(), x.shard(d).end(), same_x.shard(d).begin(),
                        [](double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }) &&
             std::equal(r.shard(d).begin(), r.shard(d).end(), same_r.shard(d).begin());
    return same;
  }
};
std::int64_t restored_from(const std::string& directory) { return restored_state().restore(directory); }

void try_killing(void (*save)(const std::string&, std::int64_t)) {
  int before = 0, after = 0;
  for (int n = 1;; ++n) {
    CAPTURE(n);
    const test_directory directory("killed");
    save_simulated(directory.path, 1);
    const auto child = faults::begin_process([&] {
      if (!faults::with(fault::killed, n, [&] { save(directory.path, 2); })) _exit(7);
    });
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) {
      CHECK(WEXITSTATUS(status) == 7);
      break;
    }
    REQUIRE(WTERMSIG(status) == SIGKILL);
    const auto found = restored_from(directory.path);
    REQUIRE((found == 1 || found == 2));
    REQUIRE((found == 2 || after == 0));  // a new checkpoint that exists stays
    ++(found == 1 ? before : after);
    save_simulated(directory.path, 3);  // no file disturbs it, and no file is left
    REQUIRE(files_of(directory.path) == std::vector<std::string>{"lock", "step-000000000003"});
    REQUIRE(restored_from(directory.path) == 3);
  }
  CHECK(before >= 50);
  CHECK(after >= 5);
}

TEST_CASE("a save that is killed at any of its calls leaves the checkpoint before it, or its own") {
  try_killing(save_simulated);
  try_killing(save_on_threads);
}

TEST_CASE("a disk that is full at any call is one error, and leaves the checkpoint before it") {
  for (const auto save : {save_simulated, save_on_threads}) {
    int before = 0;
    for (int n = 1;; ++n) {
      CAPTURE(n);
      const test_directory directory("full");
      save_simulated(directory.path, 1);
      std::string text;
      if (!faults::with(fault::full, n, [&] { text = error_of([&] { save(directory.path, 2); }); })) {
        CHECK(text == "no error");
        break;
      }
      const auto found = restored_from(directory.path);
      if (found == 1) {
        ++before;
        REQUIRE(contains(text, "No space left on device"));
        REQUIRE(files_of(directory.path) == std::vector<std::string>{"lock", "step-000000000001"});
      } else {
        REQUIRE(found == 2);
      }
      save(directory.path, 3);
      REQUIRE(files_of(directory.path) == std::vector<std::string>{"lock", "step-000000000003"});
    }
    CHECK(before >= 50);
  }
}

TEST_CASE("the first save of all is made or not, too") {
  for (int n = 1;; ++n) {
    CAPTURE(n);
    const test_directory directory("first");
    const auto place = directory.path + "/a/b";
    if (!faults::with(fault::full, n, [&] { static_cast<void>(error_of([&] { save_simulated(place, 1); })); })) break;
    const auto found = restored_from(place);
    REQUIRE((found == -1 || found == 1));
    if (found == -1) save_simulated(place, 1);
    REQUIRE(restored_from(place) == 1);
  }
}

TEST_CASE("the second of two savers is told so") {
  for (const bool has_no_locks : {false, true}) {
    faults::has_no_locks = has_no_locks;
    const test_directory directory("two");
    save_simulated(directory.path, 1);
    const auto child =
        faults::begin_process([&] { faults::with(fault::stopped, 20, [&] { save_simulated(directory.path, 2); }); });
    int status = 0;
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    REQUIRE(WIFSTOPPED(status));
    for (const std::int64_t step : {2, 3}) {
      const auto text = error_of([&] { save_simulated(directory.path, step); });
      CAPTURE(text);
      if (has_no_locks) CHECK(contains(text, "another save is under way, or one was killed; if so, remove it"));
      else CHECK(contains(text, "checkpoint: another save to `" + directory.path + "` is under way; wait for it"));
    }
    CHECK(restored_from(directory.path) == 1);
    kill(child, SIGCONT);
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK(restored_from(directory.path) == 2);
    save_simulated(directory.path, 3);
    CHECK(restored_from(directory.path) == 3);
  }
  faults::has_no_locks = false;
}

TEST_CASE("any bit that changes in any file, and any byte that is missing, is one error, and nothing is restored") {
  const test_directory directory("changed");
  save_simulated(directory.path, 1);
  const auto place = directory.path + "/step-000000000001/";
  const auto files = files_of(place);
  REQUIRE(files.size() == 6);
  restored_state state;
  const auto refuses = [&](const std::string& what) {
    const auto text = error_of([&] { state.restore(directory.path); });
    if (!contains(text, "checkpoint: `" + place + what)) {
      CAPTURE(text);
      CAPTURE(what);
      REQUIRE(false);
    }
  };
  for (const auto& name : files) {
    const auto whole = text_of_file(place + name);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      auto changed = whole;
      for (int bit = 0; bit < 8; ++bit) {
        changed[i] = static_cast<char>(whole[i] ^ (1 << bit));
        write_file(place + name, changed);
        refuses(name);
      }
      write_file(place + name, whole.substr(0, i));
      refuses(name);
    }
    write_file(place + name, whole + '\0');
    refuses(name);
    fs::remove(place + name);
    refuses(name);
    fs::create_directory(place + name);
    refuses(name);
    fs::remove(place + name);
    write_file(place + name, whole);
  }
  // The parts of two rows, of equal size.
  fs::rename(place + "0.x.0.npy", place + "kept");
  fs::copy(place + "0.x.1.npy", place + "0.x.0.npy");
  refuses("0.x.0.npy");
  fs::remove(place + "0.x.0.npy");
  fs::rename(place + "kept", place + "0.x.0.npy");
  CHECK(state.is_untouched());
  CHECK(state.restore(directory.path) == 1);
}

TEST_CASE("a manifest that would be too long is refused before anything is written") {
  const test_directory directory("long");
  simulated_communicator one(1);
  array<std::int8_t> large({(std::int64_t{1} << 30) / 12 + 1});
  checkpoint state;
  state.add("large", large);
  CHECK(error_of([&] { state.save(one, directory.path, 1, {.block_bytes = 1}); }) ==
        "gspmd: checkpoint: the manifest would have 1073741832 bytes, and at most 1073741824 are allowed; set block_bytes to a "
        "larger "
        "number, or save fewer arrays to one checkpoint");
  CHECK(!fs::exists(directory.path));
}

TEST_CASE("links and pipes with names of a checkpoint are not followed, waited for or removed with their target") {
  const faults::time_limit seconds(60);
  for (const auto kind : {faults::obstacle::pipe, faults::obstacle::link, faults::obstacle::directory}) {
    const test_directory directory("way"), other("way-other");
    fs::create_directories(directory.path);
    fs::create_directories(other.path);
    const auto mine = other.path + "/mine", lock = directory.path + "/lock";
    faults::put(kind, lock, mine);
    const bool is_link = kind == faults::obstacle::link;
    CHECK(error_of([&] { save_simulated(directory.path, 1); }) ==
          "gspmd: checkpoint: `" + lock +
              (is_link ? "` is a link, which is not followed; remove it" : "` is no file; remove it"));
    CHECK(!fs::exists(mine));
    fs::remove(lock);
    write_file(mine, "mine");
    if (kind == faults::obstacle::directory) continue;  // a directory belongs to a dead saver
    const auto partial = directory.path + "/step-000000000009.partial";
    faults::put(kind, partial, other.path);
    CHECK(error_of([&] { save_simulated(directory.path, 1); }) ==
          "gspmd: checkpoint: `" + partial + "` is no directory; remove it");
    CHECK(text_of_file(mine) == "mine");
  }
  // A checkpoint on another disk can be restored. When it is the oldest, the link is removed and the checkpoint stays
  // there.
  const test_directory directory("way"), other("way-other");
  save_simulated(other.path, 1);
  fs::create_directories(directory.path);
  fs::create_directory_symlink(other.path + "/step-000000000001", directory.path + "/step-000000000001");
  CHECK(restored_from(directory.path) == 1);
  save_simulated(directory.path, 2);
  CHECK(files_of(directory.path) == std::vector<std::string>{"lock", "step-000000000002"});
  CHECK(restored_from(other.path) == 1);
}

TEST_CASE("manifests that nobody should have written") {
  const test_directory directory("manifests");
  save_simulated(directory.path, 1);
  const auto file = directory.path + "/step-000000000001/manifest.json";
  const auto right = text_of_file(file);
  restored_state state;
  /// Returns the error of a manifest with other words and a right checksum.
  const auto with = [&](const std::string& words, const std::string& others) {
    auto text = right.substr(0, right.find("\n\"manifest_crc32c\""));
    const auto at = text.find(words);
    REQUIRE(at != std::string::npos);
    text.replace(at, words.size(), others);
    write_file(file, text + "\n\"manifest_crc32c\": \"" + detail::hex_text(detail::crc32c(text.data(), text.size())) + "\"}\n");
    return error_of([&] { state.restore(directory.path); });
  };
  CHECK(contains(with("\"version\": 1", "\"version\": 2"), "has version 2 of the format, and this library reads version 1"));
  CHECK(contains(with("gspmd checkpoint", "other checkpoint"), "is no manifest of a checkpoint of this library"));
  CHECK(contains(with("\"step\": 1", "\"step\": 2"), "holds step 2"));
  CHECK(contains(with("\"0.x.1.npy\"", "\"../x.npy\""), "names the file `../x.npy`, which is not in its directory"));
  CHECK(contains(with("\"0.x.1.npy\"", "\"a/x.npy\""), "names the file `a/x.npy`, which is not in its directory"));
  CHECK(contains(with("\"0.x.1.npy\"", "\"\""), "names the file ``, which is not in its directory"));
  CHECK(contains(with("\"f64\"", "\"f65\""), "has the element type `f65`, which this library does not know"));
  CHECK(contains(with("\"offset\": [0, 3]", "\"offset\": [0, 2]"), "some element is in no part or in two parts"));
  CHECK(contains(with("\"offset\": [3, 3]", "\"offset\": [0, 3]"), "some element is in no part or in two parts"));
  CHECK(contains(with("\"offset\": [0, 3]", "\"offset\": [0, 9]"), "some element is in no part or in two parts"));
  CHECK(contains(with("\"shape\": [5, 6]", "\"shape\": [6, 6]"), "some element is in no part or in two parts"));
  CHECK(contains(with("\"shape\": [5, 6]", "\"shape\": [576460752303423488, 6]"), "has an array of more than 2^60 bytes, `x`"));
  CHECK(contains(with("\"shape\": [5, 6]", "\"shape\": [99999999999999999999, 6]"), "has an unexpected character at byte "));
  CHECK(contains(with("\"block_bytes\": 8", "\"block_bytes\": 0"), "has blocks of 0 bytes"));
  CHECK(contains(with("\"block_bytes\": 8", "\"block_bytes\": 4"), "has an unexpected character at byte "));
  CHECK(contains(with("\"size\": [3, 3]", "\"size\": [3, 3, 1]"), "has an unexpected character at byte "));
  CHECK(contains(with("\"bytes\": 72", "\"bytes\": 73"), "has an unexpected character at byte "));
  CHECK(contains(with("\"crc32c\": [\"", "\"crc32c\": [\"0"), "has an unexpected character at byte "));
  CHECK(contains(with("\"x\"", "\"y\""), "has no array `x`; it has `y`, `r`"));
  // A file of any size, which is not read whole, and a pipe, which is not waited for.
  const faults::time_limit seconds(60);
  const std::string limit = " bytes, and a manifest has at most 1073741824; gspmd did not write it";
  for (const auto& [text, size, refused] :
       {std::tuple(right, std::int64_t{1} << 20, std::string("is truncated, or continues after its end")),
        std::tuple(right, (std::int64_t{1} << 30) + 1, "has 1073741825" + limit),
        std::tuple(right, std::int64_t{6} << 30, "has 6442450944" + limit),
        std::tuple(std::string("x"), std::int64_t{6} << 30, std::string("is no manifest of a checkpoint"))}) {
    write_file(file, text);
    fs::resize_file(file, static_cast<std::uintmax_t>(size));
    CHECK(contains(error_of([&] { state.restore(directory.path); }), refused));
  }
  fs::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0666) == 0);
  CHECK(contains(error_of([&] { state.restore(directory.path); }), "is no file"));
  CHECK(state.is_untouched());
}

}  // namespace
