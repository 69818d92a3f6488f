// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: states
#include "gspmd/io/safetensors.hpp"

#include <atomic>
#include <complex>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/io/checkpoint.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/own_numbers.hpp"
#include "support/sanitized.hpp"
#include "support/sharding_pairs.hpp"
#include "support/stored_states.hpp"

namespace {

using namespace gspmd;
using namespace stored_states;
using caught::contains;
using caught::error_of;

template <class T>
std::string bytes_of(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}
/// Returns the content of a hand-written file: the length of the header as digits of base 256, the header, the
/// elements.
std::string file_of(const std::string& header, const std::string& elements) {
  std::string text;
  std::uint64_t length = header.size();
  for (int i = 0; i < 8; ++i, length /= 256) text += static_cast<char>(length % 256);
  return text + header + elements;
}

// ---- the bytes of the format ----

TEST_CASE("a file is byte for byte what the format's own writer makes") {
  // The example of safetensors/src/tensor.rs: padded with spaces to a multiple of 8.
  const test_files files("bytes");
  simulated_communicator two(2);
  array<float> whole({1, 2, 3});
  std::iota(whole.begin(), whole.end(), 0.0F);
  const auto elements = bytes_of<float>({0, 1, 2, 3, 4, 5});
  named_arrays model, padded;
  model.add("attn.0", whole);
  save_safetensors(two, files.file("model"), model);
  CHECK(text_of_file(files.file("model")) ==
        file_of(R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})", elements));
  array<float> longer({1, 1, 2, 3});
  std::iota(longer.begin(), longer.end(), 0.0F);
  padded.add("attn0", longer);
  save_safetensors(two, files.file("model"), padded);
  CHECK(text_of_file(files.file("model")) ==
        file_of(R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       )", elements));
  CHECK(files_of(files.path) == std::vector<std::string>{"model"});
}

TEST_CASE("the widest elements come first, and the metadata before them") {
  const test_files files("order");
  simulated_communicator one(1);
  bool flag = true;
  double wide = 2.5;
  std::int16_t b = 3, a = 4;
  const array<float> none({0, 7});
  named_arrays model;
  model.add("flag", flag);
  model.add("b", b);
  model.add("wide", wide);
  model.add("a\"\\", a);
  model.add("none", none);
  save_safetensors(one, files.file("model"), model, {.metadata = {{"format", "pt"}, {"by", "a\n\x1f\"b\" \xc3\xa9"}}});
  const std::string header =
      R"({"__metadata__":{"by":"a\u000a\u001f\"b\" )"
      "\xc3\xa9"
      R"(","format":"pt"},"wide":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
      R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]},"a\"\\":{"dtype":"I16","shape":[],"data_offsets":[8,10]},)"
      R"("b":{"dtype":"I16","shape":[],"data_offsets":[10,12]},"flag":{"dtype":"BOOL","shape":[],"data_offsets":[12,13]}})";
  const auto spaces = std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(text_of_file(files.file("model")) ==
        file_of(header + spaces, bytes_of<double>({2.5}) + bytes_of<std::int16_t>({4, 3}) + '\1'));
  const auto found = read_safetensors_header(files.file("model"));
  CHECK(found.metadata == std::map<std::string, std::string>{{"by", "a\n\x1f\"b\" \xc3\xa9"}, {"format", "pt"}});
  REQUIRE(found.tensors.size() == 5);
  CHECK(found.tensors[1].name == "none");
  CHECK(found.tensors[1].shape == std::vector<std::int64_t>{0, 7});
  CHECK(found.tensors[2].name == "a\"\\");
  CHECK(found.tensors[2].type == "I16");
}

// ---- every type, every sharding ----

/// `type`: the format's word; none where it has no such type.
template <class T>
void check_type(const std::string& type) {
  const test_files files("type");
  const laid_out<T> from(layouts::mesh_of({2, 3}), layouts::shape_of({5, 7}), layouts::split({{0}, {1}}));
  const laid_out<T> to(layouts::mesh_of({4}), layouts::shape_of({5, 7}), layouts::split({{}, {0}}));
  simulated_communicator six(6), four(4);
  auto saved = from.array(six);
  from.fill(six, saved);
  named_arrays out, in;
  out.add("x", saved);
  const auto text = error_of([&] { save_safetensors(six, files.file("model"), out); });
  if (type.empty()) {
    CHECK(contains(text, "and the format has no such type"));
    CHECK(files_of(files.path).empty());
    return;
  }
  REQUIRE(text == "no error");
  CHECK(read_safetensors_header(files.file("model")).tensors[0].type == type);
  std::string elements;
  for (std::int64_t i = 0; i < 35; ++i) {
    const auto x = element_at<T>(i);
    elements.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  CHECK(text_of_file(files.file("model")).ends_with(elements));
  auto loaded = to.array(four);
  to.fill(four, loaded, 77);
  in.add("x", loaded);
  load_safetensors(four, files.file("model"), in);
  CHECK(to.wrong(four, loaded) == 0);
}

TEST_CASE("elements of every type") {
  check_type<float>("F32");
  check_type<double>("F64");
  check_type<std::int32_t>("I32");
  check_type<std::int64_t>("I64");
  check_type<bool>("BOOL");
  check_type<bf16>("BF16");
  check_type<f16>("F16");
  check_type<std::int8_t>("I8");
  check_type<std::uint8_t>("U8");
  check_type<std::int16_t>("I16");
  check_type<std::uint32_t>("U32");
  check_type<std::uint64_t>("U64");
  check_type<std::complex<float>>("C64");
  check_type<std::complex<double>>("");
  check_type<own_numbers::residue>("");
}

TEST_CASE("every sharding of shapes of rank 0 to 3 on meshes to 6 devices, two arrays in a file") {
  const test_files files("every");
  const auto file = files.file("model");
  layouts::for_all_pairs([&](const auto& from, const auto& to, const detail::extents& shape, std::uint64_t round) {
    const laid_out<float> a(from.mesh, shape, from.layout), b(to.mesh, shape, to.layout);
    const laid_out<std::int8_t> c(from.mesh, shape, from.layout), d(to.mesh, shape, to.layout);
    simulated_communicator ours(static_cast<int>(from.mesh.device_count())), theirs(static_cast<int>(to.mesh.device_count()));
    auto x = a.array(ours);
    auto bytes = c.array(ours);
    a.fill(ours, x, round);
    c.fill(ours, bytes, round + 1);
    named_arrays out, in;
    out.add("bytes", bytes);
    out.add("x", x);
    save_safetensors(ours, file, out);
    auto y = b.array(theirs);
    auto others = d.array(theirs);
    b.fill(theirs, y, 5);
    d.fill(theirs, others, 5);
    in.add("x", y);
    in.add("bytes", others);
    load_safetensors(theirs, file, in);
    REQUIRE(b.wrong(theirs, y, round) == 0);
    REQUIRE(d.wrong(theirs, others, round + 1) == 0);
  });
}

constexpr auto doubled = [](auto x) { return x * 2.0; };
using on_four = compile<doubled, mesh<axis<"x", 2>, axis<"y", 2>>, input<double, shape<7, 5>, split<"x", "y">>>;

TEST_CASE("from threads to threads, to memory of one's own and to a program that is planned at run time") {
  const test_files files("threads");
  const auto file = files.file("model");
  array<double> whole({7, 5});
  std::iota(whole.begin(), whole.end(), 0.5);
  launch(threads{}, 4, [&](auto& comm) {
    const auto x = distribute<on_four, 0>(comm, whole);
    checkpoint state;  // is a list, too
    state.add("x", x);
    save_safetensors(comm, file, state);
  });
  CHECK(text_of_file(file).ends_with(std::string(reinterpret_cast<const char*>(whole.data()), 35 * sizeof(double))));
  const auto program = dynamic::compile(doubled, dynamic::mesh({{"ranks", 3}}), dynamic::input<double>({7, 5}, {"", "ranks"}));
  std::atomic<int> wrong = 0;
  launch(threads{}, 3, [&](auto& comm) {
    const auto where = program.input(0);
    std::vector<double> mine(static_cast<std::size_t>(where.local_elems()), -1);
    using rows = shard_view<double, mesh<axis<"a", 3>>, shape<7, 5>, split<"a", _>>;
    std::vector<double> own(static_cast<std::size_t>(rows::local_elems), -1);
    named_arrays model, view;
    model.add("x", where, {mine.data()});
    load_safetensors(comm, file, model);
    view.add("x", rows(own));
    load_safetensors(comm, file, view);
    const auto columns = where.valid_range(comm.device(0), along(1));
    for (int i = 0; i < 7; ++i)
      for (auto k = columns.begin; k < columns.end; ++k)
        wrong += mine[static_cast<std::size_t>(i * where.local_shape()[1] + k - columns.begin)] != whole[i * 5 + k] ? 1 : 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto index = rows::valid_range(comm.device(0), along(0)).begin * 5 + static_cast<std::int64_t>(i);
      wrong += own[i] != (index < 35 ? whole[index] : 0) ? 1 : 0;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("runs with small and with large gaps between them, and long ones") {
  const test_files files("gaps");
  const auto file = files.file("model");
  for (const std::int64_t columns : {8, 1500, 3000, 300000}) {
    const laid_out<float> rows(layouts::mesh_of({3}), layouts::shape_of({5, columns}), layouts::split({{0}, {}}));
    const laid_out<float> cut(layouts::mesh_of({3}), layouts::shape_of({5, columns}), layouts::split({{}, {0}}));
    simulated_communicator three(3);
    auto x = rows.array(three), y = cut.array(three);
    rows.fill(three, x);
    named_arrays out, in;
    out.add("x", x);
    in.add("x", y);
    save_safetensors(three, file, out);
    load_safetensors(three, file, in);
    CHECK(cut.wrong(three, y) == 0);
    cut.fill(three, y, 3);
    save_safetensors(three, file, in);
    load_safetensors(three, file, out);
    CHECK(rows.wrong(three, x, 3) == 0);
  }
}

// ---- files of others ----

TEST_CASE("files that others wrote: keys in any order, spaces, escapes, types that the library does not have") {
  const test_files files("others");
  const auto file = files.file("model");
  const std::string header =
      R"({ "late" : {"data_offsets":[14, 22], "shape":[2], "dtype":"F32", "note":{"a":[1,-2.5e3,null,"]"]}},
    "\u00e9\ud83d\ude00\/":{"dtype":"BOOL","shape":[2,2],"data_offsets":[10,14]},
    "half":{"dtype":"F4","shape":[4],"data_offsets":[8,10]}, "short":{"dtype":"U16","shape":[1,4],"data_offsets":[0,8]},
    "empty":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[8,8]},
    "__metadata__":{"format":"pt"}}    )";
  write_file(file, file_of(header, "uuuuuuuu44" + std::string("\0\1\2\xff", 4) + bytes_of<float>({1.5F, -2})));
  simulated_communicator two(2);
  const laid_out<bool> flags_on(layouts::mesh_of({2}), layouts::shape_of({2, 2}), layouts::split({{}, {0}}));
  const laid_out<float> late_on(layouts::mesh_of({2}), layouts::shape_of({2}), layouts::split({{0}}));
  const laid_out<std::int16_t> shorts_on(layouts::mesh_of({2}), layouts::shape_of({1, 4}), {});
  auto flags = flags_on.array(two);
  auto late = late_on.array(two);
  auto shorts = shorts_on.array(two);
  named_arrays model, other;
  model.add("late", late);
  model.add("\xc3\xa9\xf0\x9f\x98\x80/", flags);
  load_safetensors(two, file, model);
  CHECK(late.shard(0)[0] == 1.5F);
  CHECK(late.shard(1)[0] == -2);
  // Each byte that is not 0 is true, and 1 in memory. Columns: 0 2, 1 255.
  unsigned char bytes[4];
  for (int d = 0; d < 2; ++d) std::memcpy(bytes + 2 * d, flags.data(d), 2);
  CHECK(std::vector<int>(bytes, bytes + 4) == std::vector<int>{0, 1, 1, 1});
  const auto found = read_safetensors_header(file);
  REQUIRE(found.tensors.size() == 5);
  CHECK(found.tensors[0].name == "short");
  CHECK(found.tensors[1].name == "empty");
  CHECK(found.tensors[2].name == "half");
  CHECK(found.tensors[4].name == "late");
  other.add("short", shorts);
  CHECK(contains(error_of([&] { load_safetensors(two, file, other); }),
                 "`short` is U16 in `" + file + "` and the array given is I16"));
}

TEST_CASE("each file that is wrong is a sentence, and nothing is loaded") {
  const test_files files("wrong");
  const auto file = files.file("model");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({3}), layouts::split({{0}}));
  simulated_communicator two(2);
  auto x = rows.array(two), y = rows.array(two);
  rows.fill(two, x);
  rows.fill(two, y);
  named_arrays model;
  model.add("x", x);
  model.add("y", y);
  std::string text;
  /// Returns true if the error of a file contains `words`.
  const auto refused = [&](const std::string& content, const std::string& words) {
    write_file(file, content);
    text = error_of([&] { load_safetensors(two, file, model); });
    return contains(text, "gspmd: safetensors: `") && contains(text, words);
  };
  const auto tensor = [](const std::string& name, int begin, int end, const std::string& type = "F32",
                         const std::string& shape = "[3]") {
    return '"' + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[)" + std::to_string(begin) +
           ',' + std::to_string(end) + "]}";
  };
  const auto with = [&](const std::string& body, const std::string& words, std::size_t bytes = 24) {
    const bool found = refused(file_of('{' + body + '}', std::string(bytes, 'z')), words);
    if (!found) MESSAGE(text);
    return found;
  };
  const auto name = '`' + file + "` ";
  CHECK(refused("", name + "is no safetensors file: it has 0 bytes"));
  CHECK(refused("{}", name + "is no safetensors file: it has 2 bytes"));
  CHECK(refused("PK\x03\x04 and so on", name + "is no safetensors file: its header would have "));
  CHECK(refused(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), "would have 100000001 bytes, and at most 100000000 are allowed"));
  CHECK(refused(std::string(8, '\xff'), "would have 18446744073709551615 bytes"));
  CHECK(refused(std::string("\x08\0\0\0\0\0\0\0{}", 10), name + "is cut off: its header has 8 bytes and the file 10"));
  for (const auto* const start : {"", "[]", " {}"}) CHECK(refused(file_of(start, ""), "its header does not begin with `{`"));
  for (const auto* const bad :
       {"\xff", "\x80", "\xc0\x80", "\xe2\x82", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80"})
    CHECK(with(std::string("\"") + bad + "\":{}", name + "has a header that is no UTF-8"));
  const auto both = tensor("x", 0, 12) + ',' + tensor("y", 12, 24);
  const std::string odd = "has an unexpected character at byte ";
  for (const auto* const rubbish : {R"("x")", R"("x":1)", "x:{}", R"("x":{},)", R"("x)", R"("\x":{})", R"("\ud83d":{})",
                                    R"("\udc00":{})", R"("\ud83dA":{})", "\"a\tb\":{}", R"("\u00g0":{})"})
    CHECK(with(rubbish, rubbish == std::string(R"("x":{},)") ? "has no dtype" : odd));
  for (const std::string number : {"-3", "3.0", "3e0", "03", "\"3\"", "99999999999999999999", "null"})
    CHECK(with(tensor("x", 0, 12, "F32", '[' + number + ']'), odd));
  CHECK(with(R"("x":{"more":)" + std::string(200, '['), odd));
  CHECK(with(both + ',', odd));
  CHECK(refused(file_of('{' + both + "} {}", std::string(24, 'z')), odd));
  CHECK(refused(file_of('{' + both + '}' + std::string(3, '\0'), std::string(24, 'z')), odd));
  CHECK(with(both + R"(,"__metadata__":{"a":1})", odd));
  CHECK(with(both + R"(,"__metadata__":{"a":"1","a":"2"})", "has `a` twice in its metadata"));
  CHECK(with(both + ',' + tensor("x", 24, 36), "has two tensors of the name `x`", 36));
  CHECK(with(both + R"(,"__metadata__":{},"__metadata__":{})", "has two tensors of the name `__metadata__`"));
  CHECK(with(R"("x":{"dtype":"F32","dtype":"F64","shape":[3],"data_offsets":[0,12]})", "has `dtype` twice in `x`"));
  for (const auto* const lacking : {R"("shape":[3],"data_offsets":[0,12])", R"("dtype":"F32","data_offsets":[0,12])",
                                    R"("dtype":"F32","shape":[3])", R"("dtype":"F32","shape":[3],"data_offsets":[0,12,24])"})
    CHECK(with(R"("x":{)" + std::string(lacking) + '}', "has no dtype, shape and two data_offsets of `x`"));
  CHECK(with(tensor("x", 0, 12) + ',' + tensor("y", 8, 20), "has bytes of `y` that are another tensor's too"));
  CHECK(with(tensor("x", 0, 12) + ',' + tensor("y", 0, 12), "that are another tensor's too"));
  CHECK(with(tensor("x", 12, 0), "has bytes of `x` that are another tensor's too, or end before they begin"));
  CHECK(with(tensor("x", 0, 12) + ',' + tensor("y", 12, 4),
             "has bytes of `y` that are another tensor's too, or end before they begin"));
  CHECK(with(tensor("x", 0, 12) + ',' + tensor("y", 16, 28), "has bytes that are no tensor's, before `y`", 28));
  CHECK(with(tensor("x", 4, 16), "has bytes that are no tensor's, before `x`", 16));
  CHECK(with(tensor("x", 0, 16), "has 16 bytes of `x`, and F32 [3] has 12"));
  CHECK(with(tensor("x", 0, 12, "U16"), "has 12 bytes of `x`, and U16 [3] has 6"));
  CHECK(with(tensor("x", 0, 12, "F64", "[1073741824,1073741824]"), "has a tensor of more than 2^60 bytes, `x`"));
  CHECK(with(both, name + "is cut off: it has 23 bytes after its header, which speaks of 24", 23));
  CHECK(with(both, name + "is too long: it has 25 bytes after its header, which speaks of 24", 25));
  CHECK(with(tensor("x", 0, 12), name + "has no array `y`; it has `x`", 12));
  CHECK(with("", name + "has no array `x`; it has none", 0));
  CHECK(with(tensor("x", 0, 12, "I32") + ',' + tensor("y", 12, 24), "`x` is I32 in " + name + "and the array given is F32"));
  CHECK(with(tensor("x", 0, 12, "F32", "[3,1]") + ',' + tensor("y", 12, 24),
             "`x` is [3,1] in " + name + "and the array given is [3]"));
  CHECK(rows.wrong(two, x) == 1);  // the padding, which a load would have set to zero
  CHECK(rows.wrong(two, y) == 1);
  CHECK(!refused(file_of('{' + both + '}', std::string(24, 'z')), ""));
  CHECK(text == "no error");
}

TEST_CASE("any bit that changes in a header, and any byte that is missing, is an error or another array, never anything else") {
  const test_files files("bits");
  const auto file = files.file("model");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({3, 2}), layouts::split({{0}, {}}));
  simulated_communicator two(2);
  auto x = rows.array(two), y = rows.array(two);
  rows.fill(two, x);
  named_arrays saved, loaded;
  saved.add("x", x);
  loaded.add("x", y);
  save_safetensors(two, file, saved, {.metadata = {{"by", "us"}}});
  const auto whole = text_of_file(file);
  const auto header = whole.size() - 24;
  int refused = 0, tried = 0;
  const auto attempt = [&](const std::string& content, bool is_cut) {
    write_file(file, content);
    rows.fill(two, y, 9);
    const auto text = error_of([&] { load_safetensors(two, file, loaded); });
    ++tried;
    if (text == "no error") {
      REQUIRE(!is_cut);
      REQUIRE(rows.wrong(two, y) == 0);  // a letter of the metadata, or a space: the array is the same
    } else {
      ++refused;
      REQUIRE(contains(text, "gspmd: safetensors: `"));
      REQUIRE(rows.wrong(two, y, 9) == 2);  // untouched, padding too
    }
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    attempt(whole.substr(0, i), true);
    for (int bit = 0; i < header && bit < 8; ++bit) {
      auto changed = whole;
      changed[i] = static_cast<char>(whole[i] ^ (1 << bit));
      attempt(changed, false);
    }
  }
  attempt(whole + 'z', true);
  CHECK(refused > tried * 4 / 5);
}

TEST_CASE("each mistake of a call is a sentence, and the file is what it was") {
  const test_files files("mistakes");
  const auto file = files.file("model");
  const laid_out<float> rows(layouts::mesh_of({2}), layouts::shape_of({3}), layouts::split({{0}}));
  const laid_out<float> terms(layouts::mesh_of({2}), layouts::shape_of({3}), layouts::partial({}, 1));
  simulated_communicator two(2);
  auto x = rows.array(two), y = rows.array(two), sum = terms.array(two);
  rows.fill(two, x);
  const auto saving = [&](const std::string& name, auto& array, const std::string& path,
                          const safetensors_options& options = {}) {
    return error_of([&] {
      named_arrays model;
      model.add(name, array);
      save_safetensors(two, path, model, options);
    });
  };
  const auto loading = [&](auto& array, const std::string& path) {
    return error_of([&] {
      named_arrays model;
      model.add("x", array);
      load_safetensors(two, path, model);
    });
  };
  CHECK(saving("x", x, file) == "no error");
  const auto before = text_of_file(file);
  CHECK(contains(saving("x", sum, file), "safetensors: `x` is partial"));
  CHECK(contains(saving("__metadata__", x, file), "`__metadata__` is no name of an array there; give another one"));
  CHECK(contains(saving("a\xff", x, file), "is no UTF-8"));
  CHECK(contains(saving("x", x, file, {.metadata = {{"a", "\xff"}}}), "metadata is to be UTF-8, and `a` is not"));
  if (!reference::is_sanitized)  // 100 MB, letter by letter
    CHECK(contains(saving("x", x, file, {.metadata = {{"a", std::string(100'000'000, 'b')}}}),
                   "and at most 100000000 are allowed; save to several files"));
  CHECK(contains(saving("x", x, ""), "safetensors: the name of the file is empty"));
  CHECK(contains(saving("x", x, files.path), '`' + files.path + "` is there, and is no file"));
  CHECK(contains(saving("x", x, files.path + "/none/file"), "/none/file.partial` cannot be made: No such file or directory"));
  CHECK(contains(error_of([&] { save_safetensors(two, file, named_arrays()); }), "it has no arrays; add them first"));
  const auto& constant = x;
  CHECK(contains(loading(constant, file), "`x` was added as a const object, and is to be restored"));
  CHECK(contains(loading(y, files.file("none")), "safetensors: `" + files.file("none") + "` cannot be opened: No such file"));
  CHECK(contains(loading(y, files.path), '`' + files.path + "` is no file"));
  CHECK(contains(loading(y, ""), "the name of the file is empty"));
  CHECK(contains(error_of([&] { static_cast<void>(read_safetensors_header(files.file("none"))); }),
                 "safetensors: `" + files.file("none") + "` cannot be opened"));
  write_file(files.file("short"), "1234");
  CHECK(contains(error_of([&] { static_cast<void>(read_safetensors_header(files.file("short"))); }),
                 "short` is no safetensors file: it has 4 bytes"));
  CHECK(text_of_file(file) == before);
  CHECK(files_of(files.path) == std::vector<std::string>{"model", "short"});
  CHECK(loading(y, file) == "no error");
  CHECK(rows.wrong(two, y) == 0);
}

TEST_CASE("on threads every device gets the error of the one that is wrong") {
  const test_files files("alike");
  const laid_out<float> rows(layouts::mesh_of({3}), layouts::shape_of({5, 4}), layouts::split({{0}, {}}));
  std::string texts[3], others[3];
  launch(threads{}, 3, [&](auto& comm) {
    auto x = rows.array(comm);
    const auto me = static_cast<std::size_t>(comm.device(0));
    named_arrays wrong, different;
    wrong.add(me == 1 ? "a\tb" : "x", x);
    different.add("x", x);
    texts[me] = error_of([&] { save_safetensors(comm, files.file("model"), wrong); });
    others[me] = error_of([&] {
      save_safetensors(comm, files.file("model"), different, {.metadata = {{"me", std::to_string(me)}}});
    });
  });
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(texts[i] == "gspmd: on rank 1: safetensors: a name has 1 to 255 bytes, and no control characters");
    CHECK(others[i] == "gspmd: safetensors: processes come with different arrays, files or options; give all the same");
  }
  CHECK(files_of(files.path).empty());
}

}  // namespace
