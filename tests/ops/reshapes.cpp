// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include <gspmd/comm/simulated.hpp>
#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/explain.hpp>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "support/equal_plans.hpp"
#include "support/reshaped_movements.hpp"

// Reshapes of uneven splits in programs: only elements that cross the boundaries of shards are sent.

using namespace gspmd;

namespace {

using two = mesh<axis<"x", 2>>;
using four = mesh<axis<"x", 4>>;

// Fig. 5c: one element moves, and completion finds the split of the result.
constexpr auto flat = [](auto x) { return reshape(x, {6}); };
using fig_5c = compile<flat, two, input<float, shape<3, 2>, split<"x", _>>>;
static_assert(fig_5c::collectives == collectives{collective_permute<"x">});
static_assert(fig_5c::traffic.bytes == 4 && fig_5c::traffic.messages == 1);

// The gradient is the reverse reshape, and sends the same bytes.
constexpr auto slope = [](auto x, auto w) { return grad(sum(reshape(x, {6}) * w), x); };
using slope_5c = compile<slope, two, input<float, shape<3, 2>, split<"x", _>>, input<float, shape<6>, split<"x">>>;
static_assert(slope_5c::collectives == collectives{collective_permute<"x">} && slope_5c::traffic.bytes == 4);

// Rows in 2,2,2,0 are pairs of rows in 1,1,1,0.
constexpr auto pairs = [](auto x) { return reshape(x, {3, 2, 2}); };
using paired = compile<pairs, four, input<float, shape<6, 2>, split<"x", _>>>;
static_assert(paired::traffic.bytes == 0 && paired::output_shard<0>::local_extents == shape<1, 2, 2>::value);

constexpr auto merge = [](auto x) { return reshape(x, {600}); };
using merged = compile<merge, four, input<float, shape<30, 20>, split<"x", _>>>;
static_assert(merged::traffic.bytes == 120 && merged::output_shard<0>::local_extents == shape<150>::value);

std::vector<float> counted(std::size_t n) {
  std::vector<float> data(n);
  std::iota(data.begin(), data.end(), 1.0F);
  return data;
}

/// Returns the bytes that a reshape between these shardings sends, after checking its result.
std::int64_t bytes_of_reshape(const dynamic::mesh& m, const std::vector<std::int64_t>& from,
                              const std::vector<std::string>& split, const std::vector<std::int64_t>& to,
                              const std::vector<std::string>& wanted = {}, bool may_gather = false) {
  dynamic::builder b(m);
  if (may_gather) b.allow_replication();
  const auto x = b.input(dynamic::input<float>(from, split));
  const value y{x.graph(), detail::add_reshape(b.graph(), x.id(), detail::extents_of(to), {"reshape", 1})};
  b.output(wanted.empty() ? y : b.reshard(y, wanted));
  const auto p = b.compile();
  const auto data = counted(static_cast<std::size_t>(detail::elements(detail::extents_of(from))));
  const auto found = p.run(simulated{}, data)[0];
  for (std::size_t i = 0; i < data.size(); ++i) REQUIRE(found.data<float>()[i] == data[i]);
  return p.traffic().bytes;
}

/// A reshape between fixed shardings.
class reshape_program {
 public:
  explicit reshape_program(const oracle::reshaped_movement& r) : r_(r) {
    detail::graph g;
    g.allow_replication = true;
    const int x = detail::add_parameter(g, dtype::s32, r.from, {});
    g.outputs.push_back(detail::add_reshape(g, x, r.to, {}));
    for (auto& n : g.nodes) {
      n.annotated = true;
      n.annotation.layout = &n == g.nodes.data() ? r.s : r.t;
    }
    planned_ = detail::plan_at_run_time(g, r.mesh, {});
  }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t all = 0;
    for (const auto& s : planned_.steps) all += s.bytes_sent;
    return all;
  }
  /// Returns the number of wrong elements.
  template <class Comm>
  [[nodiscard]] int run(Comm& comm) const {
    const detail::plan_view p(planned_);
    const auto& from = p.value(p.inputs[0]);
    const auto& to = p.value(p.outputs[0]);
    oracle::buffers<std::int32_t> in(comm.local_count(), elements(from.local), 0x55);
    oracle::buffers<std::int32_t> out(comm.local_count(), elements(to.local), 0x33);
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (std::size_t d = 0; d < in.pointers.size(); ++d) {
      oracle::for_each_held(
          r_.mesh, r_.from, from.layout, r_.mesh.coordinates_of(comm.device(static_cast<int>(d))),
          [&](std::int64_t local, std::int64_t index) { in.pointers[d][local] = static_cast<std::int32_t>(index); });
      inputs.push_back(in.pointers[d]);
      outputs.push_back(out.pointers[d]);
    }
    detail::bound_devices bound;
    bound.bind(comm, p, inputs.data(), outputs.data());
    detail::interpreter steps(p);
    steps.run(comm, bound.devices.data(), bound.from.data(), bound.to.data());
    int wrong = out.damaged(0x33);
    for (std::size_t d = 0; d < out.pointers.size(); ++d)
      oracle::for_each_held(r_.mesh, r_.to, to.layout, r_.mesh.coordinates_of(comm.device(static_cast<int>(d))),
                            [&](std::int64_t local, std::int64_t index) { wrong += out.pointers[d][local] != index ? 1 : 0; });
    return wrong;
  }

 private:
  const oracle::reshaped_movement& r_;
  detail::plan planned_;
};

}  // namespace

TEST_CASE("uneven reshapes send what lies across boundaries, on both paths") {
  const dynamic::mesh m2({{"x", 2}}), m4({{"x", 4}}), grid({{"x", 2}, {"y", 3}});
  CHECK(bytes_of_reshape(m2, {3, 2}, {"x", ""}, {6}) == 4);
  CHECK(bytes_of_reshape(m2, {6}, {"x"}, {3, 2}) == 4);
  CHECK(bytes_of_reshape(m4, {6, 2}, {"x", ""}, {3, 2, 2}) == 0);
  CHECK(bytes_of_reshape(m4, {3, 2, 2}, {"x", "", ""}, {6, 2}) == 0);
  CHECK(bytes_of_reshape(m4, {1, 4}, {"x", ""}, {4, 1}, {"", "x"}) == 0);
  CHECK(bytes_of_reshape(m4, {1, 4}, {"", "x"}, {4, 1}) == 0);
  CHECK(bytes_of_reshape(m4, {30, 20}, {"x", ""}, {600}) == 120);
  CHECK(bytes_of_reshape(m4, {600}, {"x"}, {30, 20}) == 120);
  CHECK(bytes_of_reshape(m2, {2, 3}, {"x", ""}, {3, 2}, {"x", ""}) == 4);      // no common factor
  CHECK(bytes_of_reshape(grid, {1, 1}, {"x", "y"}, {1, 1}, {"x", "y"}) == 0);  // the identity, for any split
  CHECK(bytes_of_reshape(grid, {5, 1, 3}, {"x", "y", ""}, {5, 1, 3}, {"x", "y", ""}) == 0);
  CHECK(bytes_of_reshape(grid, {6, 4, 2}, {"x", "y", ""}, {6, 8}) == 3 * 2 * 4);  // 2,2,0 pairs and 3,3,2, in three rows
  // Parts are sliced first, which sends nothing, or gathered first. Directly it would be 16, 24, 36 and 96.
  const dynamic::mesh square({{"x", 2}, {"y", 2}});
  CHECK(bytes_of_reshape(square, {12}, {"x"}, {3, 4}, {"", "x,y"}) == 8);
  CHECK(bytes_of_reshape(square, {12}, {"x"}, {3, 4}, {"y", "x"}) == 8);
  CHECK(bytes_of_reshape(square, {12}, {"x,y"}, {3, 4}, {"x", ""}, true) == 20);
  // An axis that splits nothing after the reshape is gathered first, not moved first: 72. An axis begins at another
  // dim: 40 and 32.
  CHECK(bytes_of_reshape(square, {12, 2}, {"", "y"}, {6, 4}, {"", ""}) == 48);
  const dynamic::mesh both({{"x", 2}, {"y", 4}});
  CHECK(bytes_of_reshape(both, {2, 2, 6}, {"y,x", "", ""}, {4, 3, 2}, {"", "y", "x"}) == 16);
  CHECK(bytes_of_reshape(both, {3, 4, 2}, {"y,x", "", ""}, {12, 2}, {"y,x", ""}) == 16);
  CHECK(bytes_of_reshape(square, {3, 8}, {"x", "y"}, {24}, {"x"}, true) == 48);
  // Splits of the operand are moved to the result's splits after the reshape. Directly 56, 96, 116, 212 and 288.
  CHECK(bytes_of_reshape(square, {18}, {"y,x"}, {2, 9}, {"", "x"}) == 24);
  CHECK(bytes_of_reshape(square, {2, 15}, {"y", "x"}, {15, 2}, {"y", "x"}) == 20);
  CHECK(bytes_of_reshape(square, {2, 5, 3}, {"x", "y", ""}, {15, 2}, {"x", "y"}) == 24);
  CHECK(bytes_of_reshape(both, {2, 30}, {"x", "y"}, {15, 4}, {"", "y"}) == 64);
  CHECK(bytes_of_reshape(grid, {5, 3, 8}, {"x", "", ""}, {2, 60}, {"", "y"}) == 128);

  array<float> x({3, 2});
  for (std::int64_t i = 0; i < 6; ++i) x[i] = static_cast<float>(i);
  const auto y = run<fig_5c>(threads{}, x);
  for (std::int64_t i = 0; i < 6; ++i) CHECK(y[i] == static_cast<float>(i));
  CHECK(reference::difference(fig_5c::view, dynamic::compile(flat, m2, dynamic::input<float>({3, 2}, {"x", ""})).view()) == "");
}

TEST_CASE("completion carries an uneven split through a reshape, forward and backward") {
  const dynamic::mesh m({{"x", 4}});
  const auto forward = dynamic::compile(
      [](auto x) {
        return reshape(relu(reshape(x, {600})), {60, 10});
      },
      m, dynamic::input<float>({30, 20}, {"x", ""}));
  CHECK(forward.traffic().collectives == 1);
  CHECK(explain(forward).find("[15,10]") != std::string::npos);
  const auto backward = dynamic::compile([](auto x) { return mesh_split(reshape(relu(x), {600}), {0}); }, m,
                                         dynamic::input<float>({30, 20}, {"", ""}));
  CHECK(explain(backward).find("[8,20]") != std::string::npos);
}

TEST_CASE("the movement is a line of its own in explain") {
  const std::string t(explain<fig_5c>());
  CHECK(t.find("collective_permute over x of the boundaries of #0: sends 4 bytes") != std::string::npos);
}

TEST_CASE(
    "reshapes of 1 to 12 elements as programs, between shardings that are given: right, and by a movement where it sends less") {
  std::int64_t count = 0, moved = 0;
  for (const auto& mesh : {oracle::mesh_of({3}), oracle::mesh_of({4}), oracle::mesh_of({2, 2})}) {
    simulated_communicator comm(static_cast<int>(mesh.device_count()));
    for (int elems = 1; elems <= 12; ++elems)
      oracle::for_each_reshape(mesh, elems, elems <= 4, [&](const oracle::reshaped_movement& r) {
        if (++count % (mesh.axis_count() == 1 ? 2 : 11) != 0) return;
        const reshape_program program(r);
        if (const auto wrong = program.run(comm); wrong != 0) FAIL_CHECK(r.text());
        if (!r.is_possible() || (r.s.split_axes() & ~r.t.split_axes()) != 0) return;
        const auto most = detail::reshape_exchange(r.mesh, r.from, r.s, r.to, r.t).traffic().elems() * 4;
        if (program.bytes() > most) FAIL_CHECK(r.text() << ": " << program.bytes() << " bytes");
        ++moved;
      });
  }
  CHECK(moved > 2500);
}
