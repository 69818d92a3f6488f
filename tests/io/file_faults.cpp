// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: faults
// Saves to one file that are killed or run out of disk space at each of their calls, and two concurrent saves.
#include <doctest/doctest.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/io/detail/device_group.hpp"
#include "gspmd/io/npy.hpp"
#include "gspmd/io/safetensors.hpp"
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

template <class Comm>
void save_arrays(Comm& comm, const std::string& file, std::uint64_t seed) {
  auto x = on_plane.array(comm);
  auto r = on_all.array(comm);
  on_plane.fill(comm, x, seed);
  on_all.fill(comm, r, seed);
  named_arrays model;
  model.add("x", x);
  for (const char* const name : {"r", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"}) model.add(name, r);  // a call for each
  save_safetensors(comm, file, model);
}
void save_simulated(const std::string& file, std::uint64_t seed) {
  simulated_communicator four(4);
  save_arrays(four, file, seed);
}
void save_on_threads(const std::string& file, std::uint64_t seed) {
  launch(threads{}, 4, [&](auto& comm) { save_arrays(comm, file, seed); });
}

/// Returns the save that a file holds, or 0 if the file is not a complete save.
std::uint64_t loaded_from(const std::string& file) {
  simulated_communicator three(3);
  auto x = on_row.array(three);
  auto r = on_three.array(three);
  named_arrays model;
  model.add("x", x);
  model.add("r", r);
  load_safetensors(three, file, model);
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    if (on_row.wrong(three, x, seed) == 0 && on_three.wrong(three, r, seed) == 0) return seed;
  return 0;
}

TEST_CASE("a save that is killed at any of its calls leaves the file before it, or its own") {
  for (const auto save : {save_simulated, save_on_threads}) {
    int before = 0, after = 0;
    for (int n = 1;; ++n) {
      CAPTURE(n);
      const test_files files("file-killed");
      save_simulated(files.file("x"), 1);
      const auto child = faults::begin_process([&] {
        if (!faults::with(fault::killed, n, [&] { save(files.file("x"), 2); })) _exit(7);
      });
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      if (WIFEXITED(status)) {
        CHECK(WEXITSTATUS(status) == 7);
        break;
      }
      REQUIRE(WTERMSIG(status) == SIGKILL);
      const auto found = loaded_from(files.file("x"));
      REQUIRE((found == 1 || found == 2));
      REQUIRE((found == 2 || after == 0));
      ++(found == 1 ? before : after);
      save_simulated(files.file("x"), 3);  // no file disturbs it, and no file is left
      REQUIRE(files_of(files.path) == std::vector<std::string>{"x"});
      REQUIRE(loaded_from(files.file("x")) == 3);
    }
    CHECK(before >= 15);
    CHECK(after >= 1);
  }
}

TEST_CASE("a disk that is full at any call is one error, and leaves the file before it") {
  for (const auto save : {save_simulated, save_on_threads}) {
    int before = 0;
    for (int n = 1;; ++n) {
      CAPTURE(n);
      const test_files files("file-full");
      save_simulated(files.file("x"), 1);
      std::string text;
      if (!faults::with(fault::full, n, [&] { text = error_of([&] { save(files.file("x"), 2); }); })) {
        CHECK(text == "no error");
        break;
      }
      const auto found = loaded_from(files.file("x"));
      if (found == 1) {
        ++before;
        REQUIRE(contains(text, "safetensors: `" + files.file("x")));
        REQUIRE(contains(text, "No space left on device"));
        REQUIRE(files_of(files.path) == std::vector<std::string>{"x"});
      } else {
        REQUIRE(found == 2);
      }
      save(files.file("x"), 3);
      REQUIRE(files_of(files.path) == std::vector<std::string>{"x"});
    }
    CHECK(before >= 15);
  }
}

TEST_CASE("the second of two savers is told so") {
  for (const bool has_no_locks : {false, true}) {
    faults::has_no_locks = has_no_locks;
    const test_files files("file-two");
    const auto file = files.file("x");
    save_simulated(file, 1);
    const auto child = faults::begin_process([&] { faults::with(fault::stopped, 5, [&] { save_simulated(file, 2); }); });
    int status = 0;
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    REQUIRE(WIFSTOPPED(status));
    const auto text = error_of([&] { save_simulated(file, 3); });
    CAPTURE(text);
    if (has_no_locks)
      CHECK(contains(text, "safetensors: `" + file + ".partial` is there, and no locks on this file system: another save is " +
                               "under way, or one was killed; if so, remove it"));
    else CHECK(contains(text, "safetensors: another save to `" + file + "` is under way; wait for it, or save to another file"));
    CHECK(loaded_from(file) == 1);
    kill(child, SIGCONT);
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK(loaded_from(file) == 2);
    save_simulated(file, 3);
    CHECK(loaded_from(file) == 3);
  }
  faults::has_no_locks = false;
}

TEST_CASE("a dead saver's file is not written to, since its other processes may still write there") {
  const test_files files("file-dead");
  write_file(files.file("x.partial"), "half of it");
  const auto other = detail::posix_file::write_to(files.file("x.partial"));
  save_simulated(files.file("x"), 1);
  other.write_at(0, "rubbish", 7);
  CHECK(loaded_from(files.file("x")) == 1);
  CHECK(files_of(files.path) == std::vector<std::string>{"x"});
}

TEST_CASE("a link or a pipe at x.partial is an error: no file is followed, none is waited for") {
  const faults::time_limit seconds(60);
  for (const auto save : {save_simulated, save_on_threads})
    for (const auto kind : {faults::obstacle::pipe, faults::obstacle::link, faults::obstacle::directory})
      for (const bool has_target : {true, false}) {
        const test_files files("file-way");
        const auto file = files.file("x"), partial = file + ".partial", target = files.file("mine");
        if (has_target) write_file(target, "mine");
        faults::put(kind, partial, target);
        const bool is_link = kind == faults::obstacle::link;
        CHECK(contains(error_of([&] { save(file, 1); }),
                       "safetensors: `" + partial +
                           (is_link ? "` is a link, which is not followed; remove it" : "` is no file; remove it")));
        CHECK(std::filesystem::exists(target) == has_target);
        CHECK(text_of_file(target) == (has_target ? "mine" : ""));
        CHECK(std::filesystem::symlink_status(partial).type() != std::filesystem::file_type::not_found);
        std::filesystem::remove(partial);
        save(file, 2);
        CHECK(loaded_from(file) == 2);
      }
}

TEST_CASE("a file of the user's may be a link; a pipe is an error at once") {
  const faults::time_limit seconds(60);
  const test_files files("file-pipe");
  faults::put(faults::obstacle::pipe, files.file("pipe"), "");
  CHECK(contains(error_of([&] { loaded_from(files.file("pipe")); }), "pipe` is no file"));
  CHECK(contains(error_of([&] { save_simulated(files.file("pipe"), 1); }), "pipe` is there, and is no file"));
  save_simulated(files.file("x"), 1);
  faults::put(faults::obstacle::link, files.file("link"), files.file("x"));
  CHECK(loaded_from(files.file("link")) == 1);
  save_simulated(files.file("link"), 2);
  CHECK(loaded_from(files.file("link")) == 2);
}

TEST_CASE("a text of any length gets from one device to all") {
  launch(threads{}, 3, [&](auto& comm) {
    const detail::device_group devices(comm, "test");
    for (const std::size_t size : {0, 1, 8, 65535, 65536, 65537, 200001}) {
      std::string text;
      for (std::size_t k = 0; k < size; ++k) text += static_cast<char>(k * k % 251);
      const auto mine = comm.device(0) == 1 ? text : std::string(size / 3 + 5, 'x');
      if (devices.broadcast(mine, 1) != text) throw error("another text of " + std::to_string(size));
    }
  });
}

TEST_CASE("control characters from files are escaped in the texts of errors, and UTF-8 stays") {
  const std::pair<std::string, std::string> shown[] = {
      {"w\xc3\xa4rme \xe2\x82\xac \xf0\x9f\x99\x82", "w\xc3\xa4rme \xe2\x82\xac \xf0\x9f\x99\x82"},
      {"\x1b[31mred\x07\n\r\t", "\\x1B[31mred\\x07\\x0A\\x0D\\x09"},
      {std::string("a\0b", 3) + '\x7f', "a\\x00b\\x7F"},
      {"\xc2\x9b\xe2\x80\xae\xe2\x81\xa6", "\\x9B\\u202E\\u2066"},
      {"\x9b \xc3 \xe0\x80\x80 \xff", "\\x9B \\xC3 \\xE0\\x80\\x80 \\xFF"}};
  for (const auto& [text, escaped] : shown) {
    CHECK(printable(text) == escaped);
    CHECK(error(text).with_op(text).what() == "gspmd: " + escaped + ": " + escaped);
    CHECK(error(text).with_rank(1).text() == escaped);
  }
  CHECK(printable("four\n", 4) == "four...");
  CHECK(std::string(error(std::string(1 << 20, 'x')).what()).size() < 17000);

  // A name in each format, and a path.
  const test_files files("file-names");
  const auto refuses = [&](const std::string& file, auto load) {
    const auto text = error_of([&] { load(files.file(file)); });
    CAPTURE(text);
    CHECK(contains(text, "\\x1B[2J\\x0Aok"));
    CHECK(printable(text) == text);
  };
  const std::string name = "\x1b[2J\nok";
  const auto load_tensors = [](const std::string& file) { loaded_from(file); };
  const std::string header = R"({"\u001b[2J\nok":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  write_file(files.file("tensor"), std::string{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0} + header + "1234");
  refuses("tensor", load_tensors);
  refuses(name, load_tensors);
  const std::string key = "{'" + name + "': 1}";
  write_file(files.file("npy"), std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(key.size()) + '\0' + key);
  refuses("npy", [](const std::string& file) { static_cast<void>(read_npy_header(file)); });
}

}  // namespace
