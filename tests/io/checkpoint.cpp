// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: states
#include "gspmd/io/checkpoint.hpp"

#include <atomic>
#include <complex>
#include <cstring>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/own_numbers.hpp"
#include "support/sharding_pairs.hpp"
#include "support/stored_states.hpp"

namespace {

using namespace gspmd;
using namespace stored_states;
using caught::contains;
using caught::error_of;
namespace fs = std::filesystem;

TEST_CASE("CRC-32C is that of RFC 3720") {
  CHECK(detail::crc32c("123456789", 9) == 0xe3069283U);
  CHECK(detail::crc32c("", 0) == 0U);
  const std::string zeros(32, '\0'), ones(32, '\xff');
  CHECK(detail::crc32c(zeros.data(), 32) == 0x8a9136aaU);
  CHECK(detail::crc32c(ones.data(), 32) == 0x62a8ab43U);
  CHECK(detail::crc32c("56789", 5, detail::crc32c("1234", 4)) == 0xe3069283U);
  std::string text;
  for (int i = 0; i < 70; ++i, text += static_cast<char>(i * i)) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    CHECK(detail::crc32c(bytes, text.size()) == ~detail::crc32c_by_tables(bytes, text.size(), ~0U));
  }
}

// ---- a program continues on another mesh ----

constexpr auto diffuse = [](auto u) { return u + 0.125 * (shift(u, -1, along(0)) + shift(u, 1, along(0)) - 2.0 * u); };
using on_plane = compile<diffuse, mesh<axis<"x", 2>, axis<"y", 2>>, input<double, shape<7, 5>, split<"x", "y">>>;
using on_row = compile<diffuse, mesh<axis<"a", 3>>, input<double, shape<7, 5>, split<"a", _>>>;

template <class Step, class Comm>
array<double> diffused(Comm& comm, sharded_array<double>& u, int steps) {
  auto next = make_result<Step, 0>(comm);
  Step s;
  for (int t = 0; t < steps; ++t) {
    s(comm, u, next);
    std::swap(u, next);
  }
  return collect(comm, u);
}

TEST_CASE("a run that is saved on four threads goes on on three, and on simulated devices") {
  const test_directory directory("goes-on");
  array<double> start({7, 5}), straight;
  std::iota(start.begin(), start.end(), 1.0);
  launch(threads{}, 4, [&](auto& comm) {
    auto u = distribute<on_plane, 0>(comm, start);
    checkpoint state;
    state.add("u", u);
    diffused<on_plane>(comm, u, 5);
    state.save(comm, directory.path, 5);
    const auto whole = diffused<on_plane>(comm, u, 5);
    if (comm.device(0) == 0) straight = whole;
  });
  std::atomic<int> wrong = 0;
  const auto go_on = [&](auto& comm) {
    auto u = distribute<on_row, 0>(comm, array<double>({7, 5}));
    checkpoint state;
    state.add("u", u);
    const auto t = state.restore_latest(comm, directory.path);
    if (t != 5) ++wrong;
    const auto whole = diffused<on_row>(comm, u, 5);
    for (std::int64_t i = 0; i < 35; ++i) wrong += whole[i] != straight[i] ? 1 : 0;
  };
  launch(threads{}, 3, go_on);
  launch(simulated{}, 3, go_on);
  CHECK(wrong == 0);
}

// ---- every type, every sharding ----

template <class T>
void check_type() {
  const test_directory directory("type");
  const laid_out<T> from(layouts::mesh_of({2, 3}), layouts::shape_of({5, 7}), layouts::split({{0}, {1}}));
  const laid_out<T> to(layouts::mesh_of({4}), layouts::shape_of({5, 7}), layouts::split({{}, {0}}));
  simulated_communicator six(6), four(4);
  auto saved = from.array(six);
  from.fill(six, saved);
  checkpoint out, in;
  out.add("x", saved);
  out.save(six, directory.path, 0, {.block_bytes = 24});
  auto restored = to.array(four);
  to.fill(four, restored, 77);
  in.add("x", restored);
  in.restore(four, directory.path, 0);
  CHECK(to.wrong(four, restored) == 0);
}

TEST_CASE("elements of every type") {
  boost::mp11::mp_for_each<boost::mp11::mp_transform<boost::mp11::mp_identity, detail::element_types>>([](auto type) {
    using T = typename decltype(type)::type;
    CAPTURE(detail::name_of(detail::dtype_of<T>()));
    check_type<T>();
  });
  check_type<std::complex<float>>();
  check_type<own_numbers::residue>();
  check_type<own_numbers::dual>();
}

TEST_CASE("every sharding of shapes of rank 0 to 3 on meshes to 6 devices") {
  const test_directory directory("every");
  std::int64_t step = 0;
  layouts::for_all_pairs([&](const auto& from, const auto& to, const detail::extents& shape, std::uint64_t round) {
    step = static_cast<std::int64_t>(round);
    const laid_out<float> a(from.mesh, shape, from.layout), b(to.mesh, shape, to.layout);
    simulated_communicator ours(static_cast<int>(from.mesh.device_count())), theirs(static_cast<int>(to.mesh.device_count()));
    auto saved = a.array(ours);
    a.fill(ours, saved, round);
    checkpoint out, in;
    out.add("x", saved);
    out.save(ours, directory.path, step, {.keep = 1, .block_bytes = 1 + step % 23});
    auto restored = b.array(theirs);
    b.fill(theirs, restored, 5);
    in.add("x", restored);
    REQUIRE(in.restore_latest(theirs, directory.path) == step);
    REQUIRE(b.wrong(theirs, restored, round) == 0);
  });
  CHECK(checkpoint_steps(directory.path) == std::vector<std::int64_t>{step});
}

TEST_CASE("devices in another order") {
  const test_directory directory("order");
  static constexpr std::int32_t order[] = {2, 0, 3, 1}, position[] = {1, 3, 0, 2};
  auto turned = layouts::mesh_of({2, 2});
  turned.order = order;
  turned.position = position;
  const laid_out<int> from(turned, layouts::shape_of({5, 3}), layouts::split({{1}, {0}}));
  const laid_out<int> to(layouts::mesh_of({2}), layouts::shape_of({5, 3}), layouts::split({{0}, {}}));
  simulated_communicator four(4), two(2);
  auto saved = from.array(four), again = from.array(four);
  auto restored = to.array(two);
  from.fill(four, saved);
  checkpoint out, same, in;
  out.add("x", saved);
  same.add("x", again);
  in.add("x", restored);
  out.save(four, directory.path, 3);
  same.restore(four, directory.path, 3);
  in.restore(two, directory.path, 3);
  CHECK(from.wrong(four, again) == 0);
  CHECK(to.wrong(two, restored) == 0);
}

// ---- files ----

/// A .npy file as its description says, read by a few lines that share nothing with those that write it.
struct plain_npy {
  std::string facts, elements;
  bool is_right = false;
  explicit plain_npy(const std::string& file) {
    if (file.substr(0, 8) != std::string("\x93NUMPY\x01\x00", 8) || file.size() < 10) return;
    const auto length = static_cast<unsigned char>(file[8]) + 256U * static_cast<unsigned char>(file[9]);
    is_right = (10 + length) % 64 == 0 && file.size() >= 10 + length && file[9 + length] == '\n';
    facts = file.substr(10, length - 1);
    facts.resize(facts.find_last_not_of(' ') + 1);
    elements = file.substr(10 + length);
  }
};

TEST_CASE("parts are .npy files, and replicas are written once") {
  const test_directory directory("npy");
  const laid_out<double> rows(layouts::mesh_of({2, 3}), layouts::shape_of({5, 2}), layouts::split({{0}, {}}));
  const laid_out<std::int16_t> whole(layouts::mesh_of({6}), layouts::shape_of({3}), {});
  const laid_out<bf16> number(layouts::mesh_of({6}), layouts::shape_of({}), {});
  const laid_out<float> nothing(layouts::mesh_of({6}), layouts::shape_of({0, 4}), layouts::split({{}, {0}}));
  simulated_communicator six(6);
  auto a = rows.array(six);
  auto b = whole.array(six);
  auto c = number.array(six);
  auto d = nothing.array(six);
  rows.fill(six, a);
  whole.fill(six, b);
  checkpoint state;
  state.add("rows", a);
  state.add("a/b \"c\\", b);
  state.add("c", c);
  state.add("d", d);
  state.save(six, directory.path, 7);
  const auto step = directory.path + "/step-000000000007";
  CHECK(files_of(step) ==
        std::vector<std::string>{"0.rows.0.npy", "0.rows.1.npy", "1.a_b__c_.0.npy", "2.c.0.npy", "manifest.json"});
  const plain_npy first(text_of_file(step + "/0.rows.0.npy")), second(text_of_file(step + "/0.rows.1.npy"));
  const plain_npy third(text_of_file(step + "/1.a_b__c_.0.npy")), fourth(text_of_file(step + "/2.c.0.npy"));
  for (const auto* file : {&first, &second, &third, &fourth}) CHECK(file->is_right);
  CHECK(first.facts == "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }");
  CHECK(second.facts == "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }");
  CHECK(third.facts == "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }");
  CHECK(fourth.facts == "{'descr': '|V2', 'fortran_order': False, 'shape': (), }");
  REQUIRE(first.elements.size() == 48);
  REQUIRE(second.elements.size() == 32);
  for (std::int64_t i = 0; i < 10; ++i) {
    const auto x = element_at<double>(i);
    CHECK(std::memcmp((i < 6 ? first.elements.data() + 8 * i : second.elements.data() + 8 * (i - 6)), &x, 8) == 0);
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto x = element_at<std::int16_t>(i);
    CHECK(std::memcmp(third.elements.data() + 2 * i, &x, 2) == 0);
  }
  state.restore(six, directory.path, 7);
  CHECK(rows.wrong(six, a) == 0);
}

TEST_CASE("a device reads the blocks that it needs, and no others") {
  const test_directory directory("needs");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({8, 4}), layouts::split({{0}, {}}));
  simulated_communicator two(2);
  auto x = rows.array(two);
  rows.fill(two, x);
  checkpoint state;
  state.add("x", x);
  state.save(two, directory.path, 0, {.block_bytes = 16});  // a row
  const auto step = directory.path + "/step-000000000000";
  auto first = text_of_file(step + "/0.x.0.npy");
  first[128 + 3 * 16] ^= 1;  // row 3
  write_file(step + "/0.x.0.npy", first);
  fs::remove(step + "/0.x.1.npy");
  const auto m = detail::manifest_reader(text_of_file(step + "/manifest.json"), "manifest").read();
  const auto read_by = [&](int device) {
    detail::stored_array a = detail::as_stored(dtype::f32, layouts::shape_of({8, 4}), layouts::mesh_of({8}), {}, nullptr);
    a.box_of = [](std::int64_t d) { return detail::stored_box{{d, 0}, {1, 4}}; };
    a.local = {1, 4};
    float row[4] = {};
    detail::read_shard(step, m, m.arrays[0], a, device, reinterpret_cast<std::byte*>(row));
    for (std::int64_t i = 0; i < 4; ++i) {
      const auto expected = element_at<float>(4 * device + i);
      CHECK(std::memcmp(&row[i], &expected, 4) == 0);
    }
  };
  for (const int device : {0, 1, 2}) read_by(device);
  CHECK(contains(error_of([&] { read_by(3); }), "bytes 176 to 191 have another checksum"));
  CHECK(contains(error_of([&] { read_by(4); }), "0.x.1.npy` cannot be opened: No such file"));
}

// ---- arrays and groups that can be added ----

template <class T>
struct layer {
  T w, b;
};

TEST_CASE("structs, tuples and vectors name their members; a checkpoint may hold more than is restored") {
  const test_directory directory("tree");
  const laid_out<float> matrix(layouts::mesh_of({2}), layouts::shape_of({3, 4}), layouts::split({{0}, {}}));
  const laid_out<float> vector(layouts::mesh_of({2}), layouts::shape_of({4}), {});
  simulated_communicator two(2);
  const auto filled = [&](const laid_out<float>& of, std::uint64_t seed) {
    auto a = of.array(two);
    of.fill(two, a, seed);
    return a;
  };
  std::vector<layer<sharded_array<float>>> net;
  net.push_back({filled(matrix, 1), filled(vector, 2)});
  net.push_back({filled(matrix, 3), filled(vector, 4)});
  const auto moments = std::make_tuple(layer<sharded_array<float>>{filled(matrix, 5), filled(vector, 6)}, filled(matrix, 7));
  checkpoint state;
  state.add("net", net);
  state.add("moments", moments);
  state.save(two, directory.path, 1);
  const auto text = text_of_file(directory.path + "/step-000000000001/manifest.json");
  for (const auto* name : {"net.0.w", "net.0.b", "net.1.w", "net.1.b", "moments.0.w", "moments.0.b", "moments.1"})
    CHECK(contains(text, "{\"name\": \"" + std::string(name) + "\", \"type\": \"f32\""));

  layer<sharded_array<float>> second{matrix.array(two), vector.array(two)};
  checkpoint part;
  part.add("net.1", second);
  part.restore(two, directory.path, 1);
  CHECK(matrix.wrong(two, second.w, 3) == 0);
  CHECK(vector.wrong(two, second.b, 4) == 0);
  CHECK(contains(error_of([&] { state.restore(two, directory.path, 1); }),
                 "`moments.0.w` was added as a const object, and is to be restored"));
}

TEST_CASE("numbers and whole arrays, of which each device has its own") {
  const test_directory directory("numbers");
  std::atomic<int> wrong = 0;
  launch(threads{}, 3, [&](auto& comm) {
    double time = 2.5;
    std::uint64_t key = 7;
    const bool is_warm = true;
    array<float> history({2, 2}), none({0, 3});
    history.fill(3);
    checkpoint state;
    state.add("time", time);
    state.add("key", key);
    state.add("is_warm", is_warm);
    state.add("history", history);
    state.add("none", none);
    state.save(comm, directory.path, 1);
  });
  const auto restore = [&](auto& comm) {
    double time = 0;
    std::uint64_t key = 0;
    bool is_warm = false;
    array<float> history({2, 2}), none({0, 3});
    checkpoint state;
    state.add("time", time);
    state.add("key", key);
    state.add("is_warm", is_warm);
    state.add("history", history);
    state.add("none", none);
    state.restore(comm, directory.path, 1);
    wrong += time == 2.5 && key == 7 && is_warm && history[0] == 3 && history[3] == 3 ? 0 : 1;
  };
  launch(threads{}, 2, restore);
  launch(simulated{}, 5, restore);
  CHECK(wrong == 0);
  CHECK(files_of(directory.path + "/step-000000000001").size() == 5);
}

TEST_CASE("arrays may be swapped between two saves") {
  const test_directory directory("swapped");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({3, 4}), layouts::split({{0}, {}}));
  simulated_communicator two(2);
  auto now = rows.array(two), then = rows.array(two);
  rows.fill(two, now, 1);
  rows.fill(two, then, 2);
  checkpoint state;
  state.add("u", now);
  std::swap(now, then);
  state.save(two, directory.path, 1);
  std::swap(now, then);
  state.restore(two, directory.path, 1);
  CHECK(rows.wrong(two, now, 2) == 0);
}

TEST_CASE("memory of your own, and a program that is planned at run time") {
  const test_directory directory("own");
  using rows = on_row::input_shard<0>;
  array<double> start({7, 5});
  std::iota(start.begin(), start.end(), 0.5);
  launch(threads{}, 3, [&](auto& comm) {
    std::vector<double> mine(static_cast<std::size_t>(rows::local_elems));
    const auto range = rows::valid_range(comm.device(0), along(0));
    std::copy(start.begin() + range.begin * 5, start.begin() + range.end * 5, mine.begin());
    const auto* reader = mine.data();
    checkpoint state;
    state.add("u", rows(mine));
    state.add("again", shard_view<const double, mesh<axis<"a", 3>>, shape<7, 5>, split<"a", _>>(reader));
    state.save(comm, directory.path, 1);
  });
  CHECK(contains(text_of_file(directory.path + "/step-000000000001/manifest.json"), "\"sharding\": [\"a\", \"\"]"));

  const auto program = dynamic::compile([](auto u) { return u * 2.0; }, dynamic::mesh({{"p", 2}, {"q", 2}}),
                                        dynamic::input<double>({7, 5}, {"q", "p"}));
  std::atomic<int> wrong = 0;
  launch(threads{}, 4, [&](auto& comm) {
    const auto where = program.input(0);
    std::vector<double> u(static_cast<std::size_t>(where.local_elems()), -1);
    checkpoint state;
    state.add("u", where, {u.data()});
    state.restore(comm, directory.path, 1);
    const auto r = where.valid_range(comm.device(0), along(0)), c = where.valid_range(comm.device(0), along(1));
    const auto columns = where.local_shape()[1];
    for (auto i = r.begin; i < r.end; ++i)
      for (auto k = c.begin; k < c.end; ++k)
        wrong += u[static_cast<std::size_t>((i - r.begin) * columns + k - c.begin)] != start[i * 5 + k] ? 1 : 0;
  });
  CHECK(wrong == 0);
}

// ---- steps ----

TEST_CASE("steps are listed, restored by number, and the oldest ones removed") {
  const test_directory directory("steps");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({3}), layouts::split({{0}}));
  simulated_communicator two(2);
  auto x = rows.array(two);
  checkpoint state;
  state.add("x", x);
  CHECK(checkpoint_steps(directory.path + "/deep/er").empty());
  CHECK(!state.restore_latest(two, directory.path + "/deep/er"));
  for (const auto step : {std::int64_t{3}, std::int64_t{1}, std::int64_t{2000000000000}}) {
    rows.fill(two, x, static_cast<std::uint64_t>(step));
    state.save(two, directory.path + "/deep/er", step);
  }
  CHECK(checkpoint_steps(directory.path + "/deep/er") == std::vector<std::int64_t>{1, 3, 2000000000000});
  state.restore(two, directory.path + "/deep/er", 1);
  CHECK(rows.wrong(two, x, 1) == 0);
  CHECK(state.restore_latest(two, directory.path + "/deep/er/") == 2000000000000);
  state.save(two, directory.path + "/deep/er", 2000000000001, {.keep = 2});
  CHECK(checkpoint_steps(directory.path + "/deep/er") == std::vector<std::int64_t>{2000000000000, 2000000000001});
  state.save(two, directory.path + "/deep/er", 20, {.keep = 1});  // of a run that went back to an older state
  CHECK(checkpoint_steps(directory.path + "/deep/er") == std::vector<std::int64_t>{20, 2000000000000, 2000000000001});
  write_file(directory.path + "/deep/er/step-12", "");  // no name of ours
  fs::create_directory(directory.path + "/deep/er/step-999999999999999999.partial");
  CHECK(state.restore_latest(two, directory.path + "/deep/er") == 2000000000001);
}

// ---- mistakes ----

TEST_CASE("each mistake is a sentence, on every device, and changes nothing") {
  const test_directory directory("mistakes");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({3, 4}), layouts::split({{0}, {}}));
  const laid_out<double> wide(layouts::mesh_of({2}), layouts::shape_of({3, 4}), layouts::split({{0}, {}}));
  const laid_out<float> longer(layouts::mesh_of({2}), layouts::shape_of({4, 4}), layouts::split({{0}, {}}));
  const laid_out<float> terms(layouts::mesh_of({2}), layouts::shape_of({3}), layouts::partial({}, 1));
  const laid_out<float> three(layouts::mesh_of({3}), layouts::shape_of({3}), {});
  simulated_communicator two(2), of_three(3);
  auto x = rows.array(two);
  rows.fill(two, x);
  checkpoint state;
  state.add("x", x);
  state.save(two, directory.path, 4);
  const auto saving = [&](auto& array, const checkpoint_options& options = {}, std::int64_t step = 5) {
    return error_of([&] {
      checkpoint other;
      other.add("x", array);
      other.save(two, directory.path, step, options);
    });
  };
  const auto restoring = [&](const std::string& name, auto& array, std::int64_t step = 4) {
    return error_of([&] {
      checkpoint other;
      other.add(name, array);
      other.restore(two, directory.path, step);
    });
  };
  CHECK(contains(saving(x, {}, 4), "checkpoint: step 4 is in `" + directory.path + "` already"));
  CHECK(contains(saving(x, {}, -1), "step -1 is no number of a step; they count from 0"));
  CHECK(contains(saving(x, {.keep = -1}), "keep is the number of checkpoints to keep, or 0 for all"));
  CHECK(contains(saving(x, {.block_bytes = 0}), "block_bytes is 0; give 1 to 2^30"));
  auto sum = terms.array(two);
  CHECK(contains(saving(sum), "`x` is partial, so devices hold partial values of it; reshard it in a program first"));
  sharded_array<float> empty;
  CHECK(contains(saving(empty), "`x`: sharded_array: it is empty"));
  array<float> nowhere;
  CHECK(contains(saving(nowhere), "`x`: array: it is empty"));
  auto others = three.array(of_three);
  CHECK(contains(saving(others), "`x` is on a mesh of 3 devices and the communicator has 2"));
  CHECK(contains(error_of([&] { checkpoint{}.save(two, directory.path, 5); }), "it has no arrays; add them first"));
  CHECK(contains(error_of([&] { state.save(two, "", 5); }), "the name of the directory is empty"));
  CHECK(contains(error_of([&] { state.restore_latest(two, ""); }), "the name of the directory is empty"));
  CHECK(contains(error_of([&] {
                   checkpoint twice;
                   twice.add("x", x);
                   twice.add("x", x);
                   twice.save(two, directory.path, 5);
                 }),
                 "`x` is the name of two arrays"));
  for (const auto& name : {std::string(), std::string(256, 'a'), std::string("a\nb")})
    CHECK(contains(restoring(name, x), "a name has 1 to 255 bytes, and no control characters"));
  CHECK(contains(restoring("y", x), "/step-000000000004` has no array `y`; it has `x`"));
  auto doubles = wide.array(two);
  CHECK(contains(restoring("x", doubles), "`x` is f32 in `" + directory.path + "/step-000000000004` and the array given is f64"));
  auto more = longer.array(two);
  CHECK(contains(restoring("x", more),
                 "`x` is [3,4] in `" + directory.path + "/step-000000000004` and the array given is [4,4]; dim 0 differs"));
  CHECK(contains(restoring("x", x, 9), "has no step 9; the newest one is 4"));
  CHECK(contains(error_of([&] { state.restore(two, directory.path + "/none", 9); }), "has no step 9, nor any other"));
  const dynamic::placed_tensor where(dynamic::mesh({{"x", 2}}).shared_info(), dtype::f32, layouts::shape_of({3, 4}),
                                     layouts::split({{0}, {}}));
  CHECK(contains(error_of([&] {
                   checkpoint other;
                   other.add("x", where, {x.data(0)});
                   other.save(two, directory.path, 5);
                 }),
                 "`x` has shards for 1 and this process holds 2 devices"));
  write_file(directory.path + "/file", "");
  CHECK(contains(error_of([&] { state.save(two, directory.path + "/file/state", 5); }), "cannot be made: Not a directory"));
  CHECK(files_of(directory.path) == std::vector<std::string>{"file", "lock", "step-000000000004"});
  CHECK(rows.wrong(two, x) == 4);  // the row of padding, which a restore would have set to zero
}

TEST_CASE("on threads every device gets the error of the one that is wrong") {
  const test_directory directory("alike");
  const laid_out<float> rows(layouts::mesh_of({3}), layouts::shape_of({5, 4}), layouts::split({{0}, {}}));
  std::string texts[3], others[3];
  launch(threads{}, 3, [&](auto& comm) {
    auto x = rows.array(comm);
    const auto me = static_cast<std::size_t>(comm.device(0));
    const auto name = std::string(me == 1 ? "a\tb" : "x");
    checkpoint wrong, different, right;
    wrong.add(name, x);
    different.add(me == 2 ? "y" : "x", x);
    right.add("x", x);
    try {
      wrong.save(comm, directory.path, 1);
    } catch (const error& e) {
      texts[me] = e.what();
    }
    try {
      different.save(comm, directory.path, 1);
    } catch (const error& e) {
      others[me] = e.what();
    }
    right.save(comm, directory.path, 1);
  });
  for (const auto& text : texts)
    CHECK(text == "gspmd: on rank 1: checkpoint: a name has 1 to 255 bytes, and no control characters");
  for (const auto& text : others)
    CHECK(text == "gspmd: checkpoint: processes come with different arrays, directories, steps or options; give all the same");
  CHECK(checkpoint_steps(directory.path) == std::vector<std::int64_t>{1});
}

}  // namespace
