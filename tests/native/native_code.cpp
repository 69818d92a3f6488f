// SPDX-License-Identifier: Apache-2.0
// group: dynamic
#include <doctest/doctest.h>

#include <fcntl.h>
#include <grp.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/dynamic/session.hpp"
#include "gspmd/external/ghosted_program.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/native/native_code.hpp"

#include "support/ghosted_blocks.hpp"
#include "support/golden_folder.hpp"
#include "support/sanitized.hpp"

// The loops of run-time programs, compiled by the system's compiler: the results equal those of the interpreter, and
// without a compiler programs run as before.

namespace {

using namespace gspmd;
namespace fs = std::filesystem;

/// A directory that is removed at the end.
struct own_directory {
  std::string path = (fs::temp_directory_path() / "gspmd-native-XXXXXX").string();
  own_directory() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  own_directory(const own_directory&) = delete;
  own_directory& operator=(const own_directory&) = delete;
  ~own_directory() { fs::remove_all(path); }
  [[nodiscard]] int libraries() const {
    int count = 0;
    for (const auto& file : fs::directory_iterator(path)) count += file.path().extension() == ".so" ? 1 : 0;
    return count;
  }
  /// Returns the name of the last file in the cache of `scripted` with this end.
  [[nodiscard]] std::string only_file_like(const std::string& end) const {
    std::string found;
    for (const auto& file : fs::directory_iterator(path + "/cache"))
      if (file.path().extension() == end) found = file.path().filename().string();
    return found;
  }
  [[nodiscard]] int sources() const {
    int count = 0;
    for (const auto& file : fs::directory_iterator(path)) count += file.path().extension() == ".cpp" ? 1 : 0;
    return count;
  }
};

/// The processor for which the tests are compiled, so that the bits are the same.
dynamic::native_options into(const std::string& cache) {
  dynamic::native_options o;
#if defined(__FMA__)
  o.flags = "-O1 -march=native";
#else
  o.flags = "-O1";
#endif
  o.cache = cache;
  o.include = test::golden_folder() + "../../include";
  return o;
}

/// Returns the options of a compiler that is a shell script in `place`, with its cache there. Its version contains no
/// number.
dynamic::native_options scripted(const own_directory& place, const std::string& script) {
  const auto path = place.path + "/compiler";
  std::ofstream(path, std::ios::trunc) << "#!/bin/sh\ncase $1 in --version) echo 1; exit 0;; esac\n"
                                       << script << '\n'
                                       << std::flush;
  REQUIRE(chmod(path.c_str(), 0700) == 0);
  auto o = into(place.path + "/cache");
  o.flags = "-O0";
  o.compiler = path;
  return o;
}

/// Returns true if the process whose number is in this file exists. If `ends`, ends it.
bool is_alive(const std::string& file, bool ends = false) {
  std::string number, state;
  std::ifstream(file) >> number;
  std::ifstream status("/proc/" + number + "/stat");
  status >> state >> state >> state;
  if (ends) kill(std::stoi(number), SIGKILL);
  return status && state != "Z";
}

/// Random fused loops, of several types and shapes, as the outputs of one program: so the compiler runs once.
dynamic::program random_loops(const dynamic::mesh& m, std::vector<std::vector<std::int64_t>>& shapes) {
  std::mt19937 random(7);
  const auto pick = [&](std::size_t n) { return random() % n; };
  dynamic::builder b(m);
  shapes = {{37, 5}, {7, 300}, {1, 1}, {3, 2, 9}, {65}, {4, 64}};
  for (const auto& shape : shapes) {
    const int rank = static_cast<int>(shape.size());
    std::vector<std::string> split(shape.size());
    split[pick(shape.size())] = "x";
    const auto inputs = [&]<class T>(T) {
      return std::vector<value>{b.input(dynamic::input<T>(shape, split)), b.input(dynamic::input<T>(shape, split))};
    };
    const auto more = [&](std::vector<value> known, bool is_floating) {
      for (int k = 0; k < 9; ++k) {
        const value x = known[pick(known.size())], y = known[pick(known.size())];
        const int dim = static_cast<int>(pick(shape.size()));
        switch (pick(is_floating ? 11 : 6)) {
          case 0: known.push_back(x + y); break;
          case 1: known.push_back(x * y - x); break;
          case 2: known.push_back(where(x > y, x - y, y)); break;
          case 3: known.push_back(max(x, 3 - y)); break;
          case 4: known.push_back(shift(x, pick(2) == 0 ? 1 : -1, along(dim)) + y); break;
          case 5: known.push_back(abs(x)); break;
          case 6: known.push_back(exp(-abs(x))); break;
          case 7: known.push_back(tanh(0.25 * x + y)); break;
          case 8: known.push_back(x / (abs(y) + 1)); break;
          case 9: known.push_back(x - expand_dims(mean(x, dim), dim)); break;
          default: known.push_back(sqrt(abs(x))); break;
        }
      }
      b.output(known.back());
      b.output(known[known.size() - 3]);
      if (is_floating) b.output(sum(known.back() * known[2], rank - 1));
      b.output(reduce(known[4] - known.back(), monoid::max));
    };
    more(inputs(float{}), true);
    more(inputs(double{}), true);
    more(inputs(std::int32_t{}), false);
  }
  return b.compile();
}

bool equal(const std::vector<dynamic::any_array>& a, const std::vector<dynamic::any_array>& b) {
  bool all = a.size() == b.size();
  for (std::size_t k = 0; all && k < a.size(); ++k) all = a[k].bytes == b[k].bytes;
  return all;
}

constexpr auto few = [](auto x, auto y) { return 2.0 * x + y * y; };
dynamic::program few_on(int devices) {
  return dynamic::compile(few, dynamic::mesh({{"x", devices}}), dynamic::input<float>({13, 3}, {"x", ""}),
                          dynamic::input<float>({13, 3}, {"x", ""}));
}
/// Checks that without native code, for `reason`, the results are right.
void check_refused(const dynamic::native_options& o, const std::string& reason) {
  const auto program = few_on(2);
  const dynamic::native_code code(program, o);
  CHECK(!code.is_used());
  CHECK(!code.was_cached());
  CHECK(code.loop_count() == 0);
  INFO(code.why_not());
  CHECK(code.why_not().find(reason) != std::string::npos);
  array<float> x({13, 3}), y({13, 3});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = y[i] = static_cast<float>(i);
  CHECK(equal(code.run(simulated{}, x, y), program.run(simulated{}, x, y)));
}

}  // namespace

TEST_CASE("native code gives the bits of the interpreter, is compiled by one of two processes, and is found again") {
  const own_directory cache;
  const dynamic::mesh m({{"x", 4}});
  std::vector<std::vector<std::int64_t>> shapes;
  const auto program = random_loops(m, shapes);

  const pid_t other = fork();
  if (other == 0) {
    const dynamic::native_code code(program, into(cache.path));
    _exit(!code.is_used() ? 2 : code.was_cached() ? 1 : 0);
  }
  REQUIRE(other > 0);
  const dynamic::native_code code(program, into(cache.path));
  int status = 0;
  REQUIRE(waitpid(other, &status, 0) == other);
  REQUIRE(WIFEXITED(status));
  INFO(code.why_not());
  REQUIRE(code.is_used());
  CHECK(code.why_not().empty());
  CHECK(WEXITSTATUS(status) == (code.was_cached() ? 0 : 1));  // one process compiled, the other found the library
  CHECK(cache.libraries() == 1);
  CHECK(cache.sources() == 0);
  CHECK(code.loop_count() > 20);
  CHECK(code.left_out_count() == 0);

  std::mt19937 random(3);
  std::vector<std::vector<std::byte>> memory;
  std::vector<const void*> inputs;
  for (std::size_t k = 0; k < program.input_count(); ++k) {
    const auto type = program.view().value(program.view().inputs[k]).type;
    const auto n = detail::elements(program.view().value(program.view().inputs[k]).global);
    memory.emplace_back(static_cast<std::size_t>(n * detail::bytes_of(type)));
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(random() % 2001) * 0.01 - 10;
      if (type == dtype::f32) reinterpret_cast<float*>(memory.back().data())[i] = static_cast<float>(x);
      else if (type == dtype::f64) reinterpret_cast<double*>(memory.back().data())[i] = x;
      else reinterpret_cast<std::int32_t*>(memory.back().data())[i] = static_cast<std::int32_t>(x);
    }
    inputs.push_back(memory.back().data());
  }
  const auto run_native = [&](const dynamic::native_code& with, auto backend) {
    return program.run_by(backend, inputs, [&](auto& comm, const void* const* in, void* const* out) {
      dynamic::session steps(program, with);
      detail::run_whole<true>(program.view(), comm, in, out,
                              [&](auto& devices, const void* const* from, void* const* to) { steps.run(devices, from, to); });
    });
  };
  const auto wanted = program.run(simulated{}, inputs);
  CHECK(equal(run_native(code, simulated{}), wanted));
  CHECK(equal(run_native(code, threads{}), wanted));

  const dynamic::native_code again(program, into(cache.path));
  CHECK(again.was_cached());
  CHECK(equal(run_native(again, simulated{}), wanted));
  auto other_flags = into(cache.path);
  other_flags.flags = "-O1 -fno-such-flag";  // another key: nothing is found, and the compiler refuses the flag
  check_refused(other_flags, "does not compile the loops");
}

TEST_CASE("sessions run what the compiler made, whatever that is") {
  const own_directory cache;
  const auto program =
      dynamic::compile([](auto x) { return abs(x); }, dynamic::mesh({{"x", 1}}), dynamic::input<float>({4}, {""}));
  auto o = into(cache.path);
  o.flags = "-O0 -D__builtin_fabsf(x)=(-(x))";
  const dynamic::native_code code(program, o);
  INFO(code.why_not());
  REQUIRE(code.is_used());
  array<float> x({4});
  x[2] = 3;
  CHECK(program.run(simulated{}, x)[0].data<float>()[2] == 3);
  CHECK(code.run(simulated{}, x)[0].data<float>()[2] == -3);
}

TEST_CASE("without a compiler, a directory or headers, programs run as they do without native code") {
  const own_directory cache;
  auto o = into(cache.path);
  o.compiler = "/nowhere/c++";
  check_refused(o, "the compiler `/nowhere/c++` does not run: No such file");
  o.compiler = "false";
  check_refused(o, "the compiler `false` does not run");
  o.compiler = " ";
  check_refused(o, "no compiler is named");
  o = into(cache.path);
  o.include = cache.path;
  check_refused(o, "there is no gspmd/detail/kernels/fused_static.hpp in `" + cache.path);
  o = into(cache.path + "/open");
  fs::create_directory(o.cache);
  REQUIRE(chmod(o.cache.c_str(), 0755) == 0);
  check_refused(o, "is not a directory of yours with mode 0700");
  o.cache = cache.path + "/file";
  fclose(fopen(o.cache.c_str(), "w"));
  check_refused(o, "is not a directory of yours");
  o.cache += "/below";
  check_refused(o, "cannot be made: Not a directory");
  CHECK(cache.libraries() == 0);
}

TEST_CASE("headers that are not those of the program are refused, and leave no wrong numbers") {
  const own_directory place;
  const auto include = place.path + "/in clude's \"copy\"";  // no shell parses it
  fs::create_directories(include);
  fs::copy(test::golden_folder() + "../../include/gspmd", include + "/gspmd", fs::copy_options::recursive);
  auto o = into(place.path + "/ca che's \"own\"");
  o.include = include;
  {
    const dynamic::native_code code(few_on(2), o);
    INFO(code.why_not());
    CHECK(code.is_used());
  }
  const auto edit = [&](const std::string& header, const std::string& from, const std::string& to) {
    const auto path = include + "/gspmd/" + header;
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    auto edited = text.str();
    const auto at = edited.find(from);
    REQUIRE(at != std::string::npos);
    std::ofstream(path) << edited.replace(at, from.size(), to);
    check_refused(o, "the headers in `" + include + "` are not those this program was compiled with");
    std::ofstream(path) << text.str();
  };
  edit("detail/ir/opcode.hpp", "parameter,\n  constant,", "constant,\n  parameter,");
  edit("detail/ir/elementwise/order.hpp", "\"compare_lt\"", "\"compare_less\"");  // a name that is gone
  edit("detail/ir/types.hpp", "{ f32, f64, s32, s64,", "{ f64, f32, s32, s64,");
  edit("detail/kernels/fused_static.hpp", "  void** to;\n  std::int64_t* to_step;\n", "  std::int64_t* to_step;\n  void** to;\n");
  edit("detail/kernels/fused_row.hpp", "static_cast<dtype>(word >> 8 & 15)", "static_cast<dtype>(word >> 12 & 15)");
  edit("version.hpp", "define GSPMD_VERSION ", "define GSPMD_VERSION 1");
  const dynamic::native_code code(few_on(2), o);
  CHECK(code.was_cached());
}

TEST_CASE("headers are never looked for where the program runs") {
  CHECK(detail::include_of("/nowhere/include/gspmd/native/native_code.hpp") == "/nowhere/include");
  for (const std::string header :
       {"include/gspmd/native/native_code.hpp", "./gspmd/native/native_code.hpp", "gspmd/native/native_code.hpp",
        "/gspmd/native/native_code.hpp", "gspmd.hpp", "/a/header/that/has/all/of/them/gspmd.hpp", ""}) {
    std::string why;
    try {
      (void)detail::include_of(header);
    } catch (const detail::native_refusal& refusal) {
      why = refusal.why;
    }
    INFO(header);
    CHECK(why.find("set GSPMD_INCLUDE or native_options::include") != std::string::npos);
  }
}

TEST_CASE("a directory that others can replace is no cache") {
  const own_directory place;
  fs::create_directory(place.path + "/mine");
  REQUIRE(chmod((place.path + "/mine").c_str(), 0700) == 0);
  fs::create_symlink(place.path + "/mine", place.path + "/link");
  for (const std::string end : {"", "/", "///", "/.", "/./"})
    check_refused(into(place.path + "/link" + end), "is not a directory of yours with mode 0700");
  fs::create_directories(place.path + "/shared/below");
  for (const ::mode_t mode : {0777U, 0775U}) {
    REQUIRE(chmod((place.path + "/shared").c_str(), mode) == 0);
    check_refused(into(place.path + "/shared/cache"), "others may write in `" + fs::canonical(place.path).string() + "/shared`");
    check_refused(into(place.path + "/shared/below/cache/"), "others may write in `");
  }
  fs::create_symlink(place.path + "/shared/below", place.path + "/way");
  check_refused(into(place.path + "/way/cache"), "others may write in `");
  CHECK(detail::require_own_directory(place.path + "/mine//") == fs::canonical(place.path).string() + "/mine");
  REQUIRE(chmod((place.path + "/shared").c_str(), 01777) == 0);
  CHECK(detail::require_own_directory(place.path + "/way/cache") == fs::canonical(place.path).string() + "/shared/below/cache");
  if (chown((place.path + "/shared").c_str(), geteuid() + 1, getegid()) == 0)  // by root only
    check_refused(into(place.path + "/shared/below/cache"), "/shared` belongs to another user, who can replace `");
}

TEST_CASE("a compiler that is killed, or fails without output, is named as such") {
  const own_directory place;
  check_refused(scripted(place, "kill -9 $$"), "compiler` does not compile the loops: killed by signal 9");
  check_refused(scripted(place, "exit 3"), "compiler` does not compile the loops: it ended with status 3");
  check_refused(scripted(place, ":"), "compiler` has written no `");
}

TEST_CASE("a time that is no positive number is refused before the compiler starts") {
  const own_directory place;
  auto o = scripted(place, "exit 3");
  for (const auto& [seconds, text] :
       {std::pair{0.0, "0"}, std::pair{-0.5, "-0.5"}, std::pair{std::numeric_limits<double>::quiet_NaN(), "nan"}}) {
    o.most_seconds = seconds;
    check_refused(o, std::string("native_options::most_seconds is ") + text + "; write a positive number, or leave it out");
  }
}

TEST_CASE("a compiler that does not end is ended with all its processes; other processes do not wait for it longer") {
  const own_directory place;
  auto o = scripted(place, "trap '' TERM; sleep 1000 & echo $! >" + place.path + "/child; wait");
  o.most_seconds = 0.5;
  const auto begin = std::chrono::steady_clock::now();
  check_refused(o, "compiler` does not compile the loops: it was ended because it took too long (native_options::most_seconds)");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(500));       // the child sleeps for 1000
  for (int k = 0; k < 3000 && is_alive(place.path + "/child"); ++k) usleep(10'000);  // a killed process may need time to end
  CHECK(!is_alive(place.path + "/child"));

  o = scripted(place, "exit 3");
  o.most_seconds = 0.1;
  const int lock = open((place.path + "/cache/" + place.only_file_like(".lock")).c_str(), O_RDWR);
  REQUIRE(flock(lock, LOCK_EX) == 0);
  check_refused(o, "another process still compiles the same loops");
  close(lock);
  check_refused(scripted(place, "sleep 1000 & echo $! >" + place.path + "/child; exit 3"), "it ended with status 3");
  CHECK(is_alive(place.path + "/child", true));  // for example a server that keeps the compiler's output open
}

TEST_CASE("a long output of the compiler is cut between characters, and control characters are not shown") {
  const own_directory place;
  auto o = scripted(place, "for k in 1 2 3 4 5; do printf '\\033[2Jx%.0s' $(seq 10000); done; exit 1");
  const dynamic::native_code code(few_on(2), o);
  CHECK(code.why_not().find("\\x1B[2Jx\\x1B[2J") != std::string::npos);
  CHECK(code.why_not().find('\033') == std::string::npos);
  CHECK(code.why_not().size() < 3500);  // 2,000 bytes of output; a fifth are control characters, written as 4 bytes
  CHECK(detail::shown_output(std::string(1999, 'a') + "\xe2\x80\x98z") == std::string(1999, 'a'));
  CHECK(detail::shown_output("a\tb\n\x7f\xc2\x9b") == "a b\n\\x7F\\x9B");
}

TEST_CASE("an object of the cache that is cut, changed, of another key, a link or a FIFO is compiled again and never loaded") {
  const own_directory place;
  // Compiles once, and counts.
  const auto o =
      scripted(place, "for word; do [ \"$before\" = -o ] && out=$word; before=$word; done; echo >>" + place.path +
                          "/calls; [ -e " + place.path + "/kept ] || { ${GSPMD_CXX:-${CXX:-c++}} \"$@\" && cp \"$out\" " +
                          place.path + "/kept; }; cp " + place.path + "/kept \"$out\"");
  const auto program = few_on(2);
  array<float> x({13, 3});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const auto right = program.run(simulated{}, x, x);
  const auto calls = [&] { return fs::file_size(place.path + "/calls"); };
  const auto check = [&](const dynamic::native_options& with, std::uintmax_t compilations) {
    const auto before = fs::exists(place.path + "/calls") ? calls() : 0;
    const dynamic::native_code code(program, with);
    INFO(code.why_not());
    REQUIRE(code.is_used());
    CHECK(code.was_cached() == (compilations == 0));
    CHECK(calls() - before == compilations);
    CHECK(equal(code.run(simulated{}, x, x), right));
  };
  check(o, 1);
  check(o, 0);
  const auto path = place.path + "/cache/" + place.only_file_like(".so");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const auto whole = text.str();
  const auto with_file = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::trunc) << bytes << std::flush;
    check(o, 1);
  };
  for (std::size_t k = 0; k < 8; ++k) with_file(whole.substr(0, whole.size() * k / 8));
  with_file(whole.substr(0, whole.size() - 1));
  with_file(whole + '\n');
  std::mt19937 random(5);
  for (int k = 0; k < 24; ++k) {
    auto changed = whole;
    const auto at = k == 0 ? whole.size() - 2 : random() % whole.size();
    changed[at] = static_cast<char>(changed[at] ^ 1 << random() % 8);
    with_file(changed);
  }
  auto other = o;
  other.flags += " -DOTHER";
  check(other, 1);
  for (const auto& entry : fs::directory_iterator(place.path + "/cache"))
    if (entry.path().extension() == ".so" && entry.path() != path)
      fs::copy_file(entry.path(), path, fs::copy_options::overwrite_existing);
  check(o, 1);
  check(o, 0);
  fs::rename(path, place.path + "/elsewhere");
  fs::create_symlink(place.path + "/elsewhere", path);
  check(o, 1);
  check(o, 0);
  for (const std::string end : {".so", ".lock"}) {
    const auto fifo = path.substr(0, path.size() - 3) + end;
    for (const auto& there : {path, fifo}) fs::remove(there);
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
    check(o, 1);
  }
  fs::remove(path);
  fs::create_directory(path);  // cannot be replaced: compiled each time
  check(o, 1);
  check(o, 1);
  CHECK(place.only_file_like(".cpp").empty());
}

TEST_CASE("old temporary files of writers that are dead are removed") {
  const own_directory place;
  const auto file = [&](const std::string& name, bool is_old) {
    const auto path = place.path + "/cache/" + name;
    std::ofstream(path) << "x" << std::flush;
    if (is_old) fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(2));
    return path;
  };
  const auto o = scripted(place, "exit 1");
  check_refused(o, "status 1");  // makes the directory
  const std::string dead(32, 'a'), alive(32, 'b'), own = place.only_file_like(".lock").substr(0, 32);
  const auto lock = file(alive + ".lock", true);
  file(dead + ".lock", true);
  const int held = open(lock.c_str(), O_RDWR);
  REQUIRE(flock(held, LOCK_EX) == 0);
  const std::vector<std::string> removed{file(dead + ".x1Y2z3.cpp", true), file(dead + ".x1Y2z3.so", true),
                                         file(own + ".x1Y2z3.so", true)},
      kept{file(dead + ".y1Y2z3.cpp", false), file(alive + ".x1Y2z3.cpp", true), file(dead + ".so", true),
           file("of_mine.x1Y2z3.cpp", true)};
  check_refused(o, "status 1");
  close(held);
  for (const auto& path : removed) CHECK(!fs::exists(path));
  for (const auto& path : kept) CHECK(fs::exists(path));
}

TEST_CASE("a program with more rights than its user has no native code") {
  if (getauxval(AT_SECURE) == 0) {                          // starts itself as a program with more rights
    if (geteuid() != 0 || reference::is_sanitized) return;  // sanitizers do not run with such rights
    const own_directory place;
    REQUIRE(chmod(place.path.c_str(), 0755) == 0);
    const auto path = place.path + "/program";
    fs::copy_file("/proc/self/exe", path);
    REQUIRE(chmod(path.c_str(), 04755) == 0);
    const pid_t child = fork();
    if (child == 0) {
      if (setgroups(0, nullptr) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0)
        execl(path.c_str(), path.c_str(), "-tc=a program with more rights than its user has no native code", nullptr);
      _exit(2);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    return;
  }
  const own_directory place;
  auto o = scripted(place, "exit 1");
  check_refused(o, "the program has more rights than its user");
  CHECK(!fs::exists(place.path + "/cache"));
}

TEST_CASE("another include path, or another Boost, is another key") {
  const own_directory place;
  fs::create_directory(place.path + "/boost");
  const auto key_of = [&](const std::string& words) {
    detail::native_key key;
    detail::add_other_headers("/nowhere", {words}, key);
    return key.text();
  };
  const auto with = [&](const char* name) {
    const char* const before = std::getenv(name);
    const std::string kept = before == nullptr ? "" : before;
    setenv(name, place.path.c_str(), 1);
    const auto key = key_of("c++");
    if (before == nullptr) unsetenv(name);
    else setenv(name, kept.c_str(), 1);
    return key;
  };
  const auto plain = key_of("c++"), by_path = with("CPATH"), by_other = with("CPLUS_INCLUDE_PATH"),
             by_flag = key_of("-I" + place.path);
  CHECK(by_path != plain);
  CHECK(by_other != plain);
  CHECK(by_path != by_other);
  CHECK(by_flag == plain);  // flags are in the key as they are
  std::ofstream(place.path + "/boost/version.hpp") << "#define BOOST_VERSION 1\n";
  CHECK(key_of("c++") == plain);
  CHECK(with("CPATH") != by_path);
  CHECK(with("CPLUS_INCLUDE_PATH") != by_other);
  CHECK(key_of("-I" + place.path) != by_flag);
}

TEST_CASE("loops that call functions of the user's are left out of native code") {
  const own_directory cache;
  const float limit = 2;
  const auto clamped = dynamic::compile([&](auto x) { return map([limit](float h) { return h < limit ? h : limit; }, x) + 1; },
                                        dynamic::mesh({{"x", 1}}), dynamic::input<float>({4}, {""}));
  const dynamic::native_code code(clamped, into(cache.path));
  CHECK(!code.is_used());
  CHECK(code.left_out_count() == 1);
  CHECK(code.why_not() == "the program has no loop that can be compiled");
  array<float> x({4});
  for (std::int64_t i = 0; i < 4; ++i) x[i] = static_cast<float>(i);
  CHECK(code.run(simulated{}, x)[0].data<float>()[3] == 3);
}

TEST_CASE("a session with native code takes views and arrays, and only the code of its own program") {
  const auto twice = [](value u, value k) { return u * 2 + k; };
  const auto in = dynamic::input<double>({4, 64}, {"", ""});
  const auto program = dynamic::compile(twice, dynamic::mesh({{"x", 1}}), in, in);
  const own_directory cache;
  const dynamic::native_code code(program, into(cache.path));
  REQUIRE(code.is_used());
  std::vector<double> u(4 * 66, 1.5), k(4 * 64, 0.25), next(4 * 66, -1.0);
  dynamic::session s(program, code);
  simulated_communicator comm(1);
  s(comm, strided_view(u.data(), {4, 66}).interior({0, 1}), k, strided_view(next.data(), {4, 66}).interior({0, 1}));
  CHECK_EQ(s.copied_bytes(), 2 * 4 * 64 * 8);
  CHECK((next[0] == -1.0 && next[1] == 3.25 && next[64] == 3.25 && next[65] == -1.0));
  const auto other = dynamic::compile([](value a, value b) { return a - b; }, dynamic::mesh({{"x", 1}}), in, in);
  CHECK_THROWS_WITH_AS(dynamic::session(other, code), doctest::Contains("the native code was made for another program"), error);
}

TEST_CASE("loops among the caller's ghost layers are compiled too") {
  constexpr auto program = [](value u, value k) {
    const auto next = u + 0.25 * (shift(u, -1, along(0)) + shift(u, 1, along(0)) + shift(u, -1, along(1)) +
                                  shift(u, 1, along(1), boundary::edge()) - 4.0 * u);
    return std::tuple{next + k, sum(u + k, 1)};
  };
  const dynamic::mesh m({{"x", 3}});
  const auto in = dynamic::input<double>({8, 70}, {"x", ""});
  const ghosted_program planned(dynamic::build(program, m, in, in), {{1, 1}, {}, {0, layers{2, 1}}});
  REQUIRE((planned.is_in_place(0) && planned.is_in_place(2)));
  const own_directory cache;
  const dynamic::native_code code(planned.program(), into(cache.path));
  CAPTURE(code.why_not());
  REQUIRE(code.is_used());
  CHECK_EQ(code.loop_count(), 2);
  launch(threads{}, 3, [&](auto& comm) {
    const auto& plan = planned.program().view();
    const auto& is = plan.value(plan.inputs[0]);
    const auto& listed = planned.facts().listed;
    ghosted::block_of<double> u(*plan.mesh, is, listed[0], comm.device(0), 0);
    std::vector<double> k(3 * 70, 0.5), sums(3), other_sums(3);
    u.each(is.global, [](double& element, std::int64_t i) { element = ghosted::number<double>(i); });
    ghosted::block_of<double> next(*plan.mesh, is, listed[2], comm.device(0), 7), other = next;
    dynamic::session compiled(planned, code), interpreted(planned);
    for (int again = 0; again < 2; ++again) {
      compiled(comm, exchange_ghosts(u.view()), k, next.view(), sums);
      interpreted(comm, u.view(), k, other.view(), other_sums);
      CHECK(next.memory == other.memory);
      CHECK(sums == other_sums);
      CHECK(next.memory[0] == 7);
    }
  });
}
