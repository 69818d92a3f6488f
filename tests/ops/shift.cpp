// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive native
// group: random
// The shift of a split dim: halos go to the neighbours, and nothing else moves.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/plan/budget.hpp"
#include "support/layouts.hpp"
#include "support/sanitized.hpp"

using namespace layouts;

namespace {

using gspmd::dtype;

/// A shift with a single input, planned for a mesh.
struct shifted {
  mesh_shape mesh;
  extents shape;
  int dim;
  std::int64_t by;
  plan planned;

  shifted(const mesh_shape& m, const extents& e, const sharding& s, int d, std::int64_t offset, dtype type = dtype::s32)
      : mesh(m), shape(e), dim(d), by(offset) {
    graph g;
    const int x = add_parameter(g, type, e, {});
    g.outputs.push_back(add_shift(g, x, d, offset, {}));
    for (auto& n : g.nodes) {  // both: completion by itself splits no dim in more parts than it has elements
      n.annotated = true;
      n.annotation = s;
    }
    planned = plan_at_run_time(g, mesh, {});
  }
  [[nodiscard]] plan_view view() const { return plan_view(planned); }

  /// Runs it on the devices of `comm`; element e of the input is e + 1, padding is 99.
  template <class T, class Comm>
  [[nodiscard]] std::string run(Comm& comm) const {
    const auto p = view();
    const auto& v = p.value(p.inputs[0]);
    const auto count = static_cast<std::size_t>(comm.local_count());
    const auto elems = static_cast<std::size_t>(elements(v.local));
    std::vector<std::vector<T>> in, out;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    std::vector<aligned_bytes> arenas;
    for (std::size_t d = 0; d < count; ++d) {
      const auto at = mesh.coordinates_of(comm.device(static_cast<int>(d)));
      in.emplace_back(elems + 1, T{99});
      out.emplace_back(elems + 1, T{77});
      arenas.emplace_back(p.arena_bytes);
      each_element(v.layout, at, [&](const std::int64_t* i, std::size_t here) { in[d][here] = number<T>(i); });
    }
    for (auto& shard : in) inputs.push_back(shard.data());
    for (auto& shard : out) outputs.push_back(shard.data());
    std::vector<device_memory> devices;
    for (std::size_t d = 0; d < count; ++d)
      devices.push_back({&inputs[d], &outputs[d], arenas[d].get(), mesh.coordinates_of(comm.device(static_cast<int>(d)))});
    std::vector<const void*> from(count);
    std::vector<void*> to(count);
    interpreter steps(p);
    steps.run(comm, devices.data(), from.data(), to.data());
    std::string wrong;
    for (std::size_t d = 0; d < count; ++d)
      each_element(v.layout, devices[d].at, [&](const std::int64_t* i, std::size_t here) {
        std::int64_t source[max_rank];
        std::copy_n(i, shape.count, source);
        source[dim] += by;
        const T want = source[dim] >= 0 && source[dim] < shape[dim] ? number<T>(source) : T{0};
        if (out[d][here] != want) wrong = "device " + std::to_string(d) + ", element " + std::to_string(here);
      });
    for (const auto& shard : out)
      if (shard[elems] != T{77}) wrong = "written past the end";
    return wrong;
  }

  /// The bytes that devices must exchange, counted element by element.
  struct traffic {
    std::int64_t most = 0, messages = 0;
  };
  [[nodiscard]] traffic counted() const {
    const auto& layout = view().value(view().inputs[0]).layout;
    std::int64_t total = 1;
    for (const auto e : shape) total *= e;
    std::vector<int> owner(static_cast<std::size_t>(total), -1);
    const auto devices = static_cast<int>(mesh.device_count());
    std::vector<std::vector<std::set<std::int64_t>>> needs(static_cast<std::size_t>(devices));
    // Only devices at place 0 of all axes that split nothing: the others do the same.
    const auto counts = [&](const coordinates& at) {
      for (int a = 0; a < mesh.axis_count(); ++a)
        if ((layout.split_axes() & axis_bit(a)) == 0 && at[a] != 0) return false;
      return true;
    };
    for (int d = 0; d < devices; ++d)
      if (const auto at = mesh.coordinates_of(d); counts(at))
        each_element(layout, at, [&](const std::int64_t* i, std::size_t) { owner[static_cast<std::size_t>(flat(i))] = d; });
    std::vector<std::int64_t> sent(static_cast<std::size_t>(devices)), received = sent;
    std::vector<std::set<int>> sources(sent.size()), targets(sent.size());
    for (int d = 0; d < devices; ++d)
      if (const auto at = mesh.coordinates_of(d); counts(at))
        each_element(layout, at, [&](const std::int64_t* i, std::size_t) {
          std::int64_t source[max_rank];
          std::copy_n(i, shape.count, source);
          source[dim] += by;
          if (source[dim] < 0 || source[dim] >= shape[dim]) return;
          const int from = owner[static_cast<std::size_t>(flat(source))];
          if (from == d) return;
          ++sent[static_cast<std::size_t>(from)], ++received[static_cast<std::size_t>(d)];
          sources[static_cast<std::size_t>(d)].insert(from), targets[static_cast<std::size_t>(from)].insert(d);
        });
    traffic t;
    for (std::size_t d = 0; d < sent.size(); ++d) {
      t.most = std::max({t.most, sent[d], received[d]});
      t.messages =
          std::max({t.messages, static_cast<std::int64_t>(sources[d].size()), static_cast<std::int64_t>(targets[d].size())});
    }
    return t;
  }

 private:
  [[nodiscard]] std::int64_t flat(const std::int64_t* i) const {
    std::int64_t e = 0;
    for (int d = 0; d < shape.count; ++d) e = e * shape[d] + i[d];
    return e;
  }
  template <class T>
  [[nodiscard]] T number(const std::int64_t* i) const {
    if constexpr (std::is_same_v<T, bool_byte>) return bool_byte{static_cast<std::uint8_t>(flat(i) % 3 != 0)};
    else return static_cast<T>(flat(i) + 1);
  }
  /// Calls `visit(global index, local offset)`.
  template <class Visit>
  void each_element(const sharding& s, const coordinates& at, Visit visit) const {
    const auto local = local_extents(mesh, shape, s);
    std::int64_t begin[max_rank], i[max_rank];
    for (int d = 0; d < shape.count; ++d) {
      const auto range = dim_range(mesh, shape, s, d, at);
      if (range.size() <= 0) return;
      begin[d] = i[d] = range.begin;
    }
    while (true) {
      std::size_t here = 0;
      for (int d = 0; d < shape.count; ++d)
        here = here * static_cast<std::size_t>(local[d]) + static_cast<std::size_t>(i[d] - begin[d]);
      visit(i, here);
      int d = shape.count - 1;
      for (; d >= 0; --d) {
        if (++i[d] < dim_range(mesh, shape, s, d, at).end) break;
        i[d] = begin[d];
      }
      if (d < 0) return;
    }
  }

 public:
  struct bool_byte {
    std::uint8_t value;
    friend bool operator==(bool_byte, bool_byte) = default;
  };
};

/// The mistake in the plan; empty if it moves the halo and nothing else.
std::string wrong_plan(const shifted& s) {
  const auto p = s.view();
  if (!s.planned.error.empty()) return std::string(s.planned.error.view());
  if (p.steps.size() != 1 || !is<kernels::move>(p.steps[0])) return "not one step";
  if (p.value(p.inputs[0]).layout != p.value(p.outputs[0]).layout) return "the sharding changes";
  if (communicates(p.steps[0]) != (count_traffic(p).bytes > 0)) return "a collective that sends nothing";
  if (count_traffic(p).bytes > 0 && p.steps[0].collective != gspmd::collective_kind::collective_permute)
    return "another collective";
  if (p.arena_bytes != 0 || gspmd::detail::total_flops(p) != 0) return "an arena, or flops";
  return {};
}

void give_an_order(mesh_shape& mesh, std::vector<std::int32_t>& order, std::vector<std::int32_t>& position) {
  const auto n = static_cast<std::size_t>(mesh.device_count());
  order.resize(n);
  position.resize(n);
  for (std::size_t d = 0; d < n; ++d) order[d] = static_cast<std::int32_t>((d * 5 + 3) % n);  // n is no multiple of 5, or:
  if (n % 5 == 0)
    for (std::size_t d = 0; d < n; ++d) order[d] = static_cast<std::int32_t>(n - 1 - d);
  for (std::size_t p = 0; p < n; ++p) position[static_cast<std::size_t>(order[p])] = static_cast<std::int32_t>(p);
  mesh.order = order.data();
  mesh.position = position.data();
}

}  // namespace

TEST_CASE("every offset, extents 0 to 9, every sharding of one dim on up to 8 devices") {
  constexpr std::int64_t largest = reference::is_sanitized ? 5 : 9;
  std::int64_t runs = 0, sending = 0, twice = 0;
  for (const bool ordered : {false, true})
    for (const auto& sizes : all_meshes(8, 3)) {
      if (sizes.empty()) continue;
      auto mesh = mesh_of(sizes);
      std::vector<std::int32_t> order, position;
      if (ordered) give_an_order(mesh, order, position);
      gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
      for (const auto& s : all_shardings(mesh, 1))
        for (std::int64_t size = 0; size <= largest; ++size)
          for (std::int64_t by = -size - 1; by <= size + 1; ++by) {
            const shifted one(mesh, shape_of({size}), s, 0, by);
            auto wrong = wrong_plan(one);
            if (wrong.empty()) wrong = one.run<std::int32_t>(comm);
            const auto expected = one.counted();
            if (wrong.empty() && gspmd::detail::count_traffic(one.view()).bytes != 4 * expected.most) wrong = "the bytes";
            if (wrong.empty() && gspmd::detail::count_traffic(one.view()).messages != expected.messages) wrong = "the messages";
            ++runs;
            sending += expected.most > 0 ? 1 : 0;
            twice += expected.messages > 1 ? 1 : 0;
            if (wrong.empty()) continue;
            CAPTURE(text_of(s, 1));
            CAPTURE(size);
            CAPTURE(by);
            FAIL_CHECK(wrong);
          }
    }
  MESSAGE(runs << " shifts, " << sending << " of them send, " << twice << " in two messages");
  CHECK(sending > runs / 4);
  CHECK(twice > runs / 200);
}

TEST_CASE("two dims, both perhaps split") {
  std::int64_t runs = 0;
  for (const auto& sizes : all_meshes(8, 2)) {
    if (sizes.empty()) continue;
    auto mesh = mesh_of(sizes);
    std::vector<std::int32_t> order, position;
    if (runs % 2 == 1) give_an_order(mesh, order, position);
    gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
    for (const auto& s : all_shardings(mesh, 2))
      for (const std::int64_t rows : {1, 2, 5, 8})
        for (const std::int64_t columns : {1, 3, 4, 9})
          for (const int dim : {0, 1}) {
            if (reference::is_sanitized && rows + columns > 9) continue;
            const auto size = dim == 0 ? rows : columns;
            for (std::int64_t by = -size; by <= size; ++by) {
              const shifted two(mesh, shape_of({rows, columns}), s, dim, by);
              auto wrong = wrong_plan(two);
              if (wrong.empty()) wrong = two.run<std::int32_t>(comm);
              const auto expected = two.counted();
              if (wrong.empty() && gspmd::detail::count_traffic(two.view()).bytes != 4 * expected.most) wrong = "the bytes";
              if (wrong.empty() && gspmd::detail::count_traffic(two.view()).messages != expected.messages) wrong = "the messages";
              ++runs;
              if (wrong.empty()) continue;
              CAPTURE(text_of(s, 2));
              CAPTURE(rows);
              CAPTURE(columns);
              CAPTURE(dim);
              CAPTURE(by);
              FAIL_CHECK(wrong);
            }
          }
  }
  MESSAGE(runs << " shifts");
}

TEST_CASE("every type, far offsets, on threads") {
  auto mesh = mesh_of({2, 3});
  const auto s = split({{1, 0}, {}});
  for (const std::int64_t by : {std::int64_t{-3}, std::int64_t{1}, std::int64_t{4}, std::int64_t{17}, INT64_MAX, INT64_MIN}) {
    const auto check = [&](auto element, dtype type) {
      using T = decltype(element);
      const shifted x(mesh, shape_of({17, 3}), s, 0, std::clamp<std::int64_t>(by, -17, 17), type);
      const shifted far(mesh, shape_of({17, 3}), s, 0, by, type);
      CHECK(x.planned.steps == far.planned.steps);
      CHECK(x.planned.values == far.planned.values);
      std::vector<std::string> wrong(6);
      gspmd::launch(gspmd::threads{}, 6,
                    [&](auto& comm) { wrong[static_cast<std::size_t>(comm.device(0))] = x.template run<T>(comm); });
      CHECK(wrong == std::vector<std::string>(6));
    };
    check(float{}, dtype::f32);
    check(double{}, dtype::f64);
    check(std::int32_t{}, dtype::s32);
    check(std::int64_t{}, dtype::s64);
    check(shifted::bool_byte{}, dtype::pred);
  }
}
