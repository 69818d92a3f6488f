// SPDX-License-Identifier: Apache-2.0
// group: compiled
// alone: yes
// Steps that read the caller's ghost layers in place, compared with the same steps on dense shards.
#include "gspmd/external/with_ghosts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/gspmd.hpp"
#include "support/error_of.hpp"
#include "support/ghosted_blocks.hpp"

using namespace gspmd;

namespace {

using caught::contains;
using caught::refusal;
using ghosted::block_of;
using ghosted::number;

/// Runs a step with a single input and result twice: on blocks whose layers it fills, and on blocks with valid layers.
/// The results must equal the step on whole arrays, to the bit.
template <class Step, class In, class Out>
void check_as_plain() {
  using step = with_ghosts<Step, In, Out>;
  using from = typename Step::template input_element<0>;
  using to = typename Step::template output_element<0>;
  static_assert(step::is_in_place(0) && step::is_in_place(1) == (Out::rank > 0));
  static_assert(step::traffic.bytes == 0);
  const auto &in = Step::view.value(Step::view.inputs[0]), &out = Step::view.value(Step::view.outputs[0]);
  array<from> x(in.global);
  for (std::int64_t i = 0; i < detail::elements(in.global); ++i) x[i] = number<from>(i);
  const auto wanted = run<Step>(threads{}, x);
  launch(threads{}, Step::device_count, [&](auto& comm) {
    const int me = comm.device(0);
    auto u = block_of<from>(*Step::view.mesh, in, In::given, me, from(77)), u_before = u;
    auto y = block_of<to>(*Step::view.mesh, out, Out::given, me, to(55)), y_before = y;
    u.each(in.global, [&](from& element, std::int64_t i) { element = x[i]; });
    step s;
    bool is_right = true;
    const auto look = [&] {
      y.each(out.global, [&](to& element, std::int64_t i) {
        is_right = is_right && element == wanted[i];
        element = to(55);
      });
    };
    s(comm, exchange_ghosts(u.view()), y.view());
    const bool is_dense = Out::rank > 0 || (y.held == out.local && y.view().block.is_in_place());
    CHECK_EQ(s.copied_bytes(), is_dense ? 0 : detail::elements(y.held) * static_cast<std::int64_t>(sizeof(to)));
    look();
    s(comm, u.view(), y.view());  // whose layers are valid now
    look();
    CHECK(is_right);
    CHECK(y.memory == y_before.memory);  // nothing else is written, neither layers nor gaps
    u.each(in.global, [&](from& element, std::int64_t i) {
      is_right = is_right && element == x[i];
      element = 77;
    });
    CHECK(is_right);
    std::int64_t gaps = 0;
    for (const from& element : u.memory) gaps += element == from(77) ? 1 : 0;
    CHECK(gaps >= static_cast<std::int64_t>(u.memory.size()) - detail::elements(u.shape));
  });
}

constexpr auto diffuse = [](auto u) {
  return u + 0.25 * (shift(u, -1, along(0)) + shift(u, 1, along(0)) + shift(u, -1, along(1)) + shift(u, 1, along(1)) - 4.0 * u);
};
constexpr auto corners = [](auto u) {
  return stencil<1, 1>([](auto at) { return at(0, 0) + 2 * at(-1, -1) + 3 * at(1, -1) + 5 * at(-1, 1) + 7 * at(1, 1); }, u);
};
using three = mesh<axis<"x", 3>>;
using grid = mesh<axis<"x", 2>, axis<"y", 2>>;

}  // namespace

TEST_CASE("layers around blocks of one dim split, of two, and of replicas") {
  check_as_plain<compile<diffuse, three, input<double, shape<8, 5>, split<"x", _>>>, ghosts<1, 1>, ghosts<1, 1>>();
  check_as_plain<compile<diffuse, three, input<float, shape<7, 5>, split<_, "x">>>, ghosts<1, 1>, ghosts<>>();
  check_as_plain<compile<diffuse, grid, input<double, shape<7, 5>, split<"x", "y">>>, ghosts<2, 1>, ghosts<0, 3>>();
  check_as_plain<compile<diffuse, grid, input<double, shape<7, 6>, split<"y", _>>>, ghosts<1, 1>, ghosts<0, 0>>();
  check_as_plain<compile<diffuse, mesh<axis<"x", 1>>, input<double, shape<1, 6>, split<"x", _>>>, ghosts<1, 1>, ghosts<1, 1>>();
}

TEST_CASE("corners, and parts that are empty or shorter than the layers") {
  check_as_plain<compile<corners, grid, input<std::int32_t, shape<7, 5>, split<"x", "y">>>, ghosts<1, 1>, ghosts<1, 1>>();
  check_as_plain<compile<corners, three, input<double, shape<4, 5>, split<"x", _>>>, ghosts<1, 1>,
                 ghosts<1, 1>>();  // 2, 2, 0 rows
  check_as_plain<compile<corners, mesh<axis<"x", 4>>, input<double, shape<2, 5>, split<"x", _>>>, ghosts<1, 1>, ghosts<>>();
}

/// Random stencils: five points within a radius of 3, a boundary for each dim, extents, parts, and at least the layers
/// that are read.
namespace {

struct drawn_stencil {
  int offset[5][2]{}, factor[5]{}, beyond[2]{}, extent[2]{}, low[2]{}, high[2]{};

  constexpr explicit drawn_stencil(unsigned seed) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
    const auto next = [&state](int least, int most) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      return least + static_cast<int>((state >> 33) % static_cast<std::uint64_t>(most - least + 1));
    };
    for (int d = 0; d < 2; ++d) {
      beyond[d] = static_cast<int>(seed + static_cast<unsigned>(d) * (seed / 6 + 1)) % 6;
      extent[d] = next(4, 9);
      low[d] = next(0, 1);
      high[d] = next(0, 1);
    }
    for (int p = 0; p < 5; ++p) {
      factor[p] = next(1, 9);
      for (int d = 0; d < 2; ++d) offset[p][d] = next(-3, 3);
    }
    for (int d = 0; d < 2; ++d) {
      int least = 0, most = 0;
      for (const auto& o : offset) {
        least = o[d] < least ? o[d] : least;
        most = o[d] > most ? o[d] : most;
      }
      // Mirrors on a short part read the layers of the other side.
      const int wide = -least > most ? -least : most;
      low[d] += beyond[d] == 2 || beyond[d] == 3 ? wide + 1 : -least;
      high[d] += beyond[d] == 2 || beyond[d] == 3 ? wide + 1 : most;
    }
  }
  static constexpr boundary boundary_of(int number) {
    switch (number) {
      case 1: return boundary::edge();
      case 2: return boundary::reflect();
      case 3: return boundary::symmetric();
      case 4: return boundary::wrap();
      case 5: return boundary::constant(4);
      default: return boundary::zero();
    }
  }
};
template <unsigned Seed>
inline constexpr drawn_stencil drawn{Seed};
template <unsigned Seed>
constexpr auto drawn_program = [](value u) {
  constexpr auto& s = drawn<Seed>;
  return stencil<3, 3>(
      [&](auto at) {
        value sum = s.factor[0] * at(s.offset[0][0], s.offset[0][1]);
        for (int p = 1; p < 5; ++p) sum = sum + s.factor[p] * at(s.offset[p][0], s.offset[p][1]);
        return sum;
      },
      stencil_field(u, {drawn_stencil::boundary_of(s.beyond[0]), drawn_stencil::boundary_of(s.beyond[1])}));
};
template <unsigned Seed, class Mesh, class Split>
void check_drawn() {
  CAPTURE(Seed);
  constexpr auto& s = drawn<Seed>;
  check_as_plain<compile<drawn_program<Seed>, Mesh, input<double, shape<s.extent[0], s.extent[1]>, Split>>,
                 ghosts<layers{s.low[0], s.high[0]}, layers{s.low[1], s.high[1]}>, ghosts<Seed % 2, 1>>();
}

}  // namespace

TEST_CASE("stencils that are drawn: all boundaries, farther than the smallest part, other numbers of layers on each side") {
  check_drawn<1, three, split<"x", _>>();
  check_drawn<2, grid, split<"x", "y">>();
  check_drawn<3, three, split<_, "x">>();
  check_drawn<4, grid, split<"y", "x">>();
  check_drawn<9, grid, split<"x,y", _>>();
  check_drawn<17, three, split<"x", _>>();
}

TEST_CASE("three dims, and one") {
  constexpr auto seven = [](auto u) {
    return 6.0 * u - shift(u, -1, along(0)) - shift(u, 1, along(0)) - shift(u, -1, along(1)) - shift(u, 1, along(1)) -
           shift(u, -1, along(2)) - shift(u, 1, along(2));
  };
  check_as_plain<compile<seven, grid, input<double, shape<5, 4, 6>, split<"x", "y", _>>>, ghosts<1, 1, 1>, ghosts<1, 1, 1>>();
  check_as_plain<compile<seven, grid, input<double, shape<3, 4, 5>, split<_, "x", "y">>>, ghosts<1, 1, 1>, ghosts<>>();
  constexpr auto upwind = [](auto u) { return u - shift(u, -2, along(0)); };
  check_as_plain<compile<upwind, three, input<float, shape<11>, split<"x">>>, ghosts<layers{2, 0}>, ghosts<layers{0, 1}>>();
}

TEST_CASE("fields of which some have layers, results of which some are copied, and sums of what is computed") {
  constexpr auto program = [](auto u, auto k, auto v) {
    auto flow = k * (shift(u, 1, along(0)) - u) + shift(v, -1, along(1));
    return std::tuple{u + 0.5 * flow, sum(flow * flow, 1), flow};
  };
  using plain = compile<program, three, input<double, shape<8, 6>, split<"x", _>>, input<double, shape<8, 6>, split<"x", _>>,
                        input<double, shape<8, 6>, split<"x", _>>>;
  using step = with_ghosts<plain, ghosts<layers{0, 1}, 0>, ghosts<>, ghosts<1, 1>, ghosts<1, 1>, ghosts<0>>;
  static_assert(step::is_in_place(0) && !step::is_in_place(1) && step::is_in_place(2) && step::is_in_place(3));
  static_assert(!step::is_in_place(4));  // no loop stores sums
  static_assert(step::traffic.bytes == 0 && plain::traffic.bytes > 0);
  array<double> u({8, 6}), k({8, 6}), v({8, 6});
  for (std::int64_t i = 0; i < 48; ++i) {
    u[i] = number<double>(i);
    k[i] = number<double>(i + 5);
    v[i] = number<double>(i + 11);
  }
  const auto wanted = run<plain>(threads{}, u, k, v);
  launch(threads{}, 3, [&](auto& comm) {
    const int me = comm.device(0);
    const auto& in = plain::view.value(plain::view.inputs[0]);
    auto mine = block_of<double>(*plain::view.mesh, in, ghosts<layers{0, 1}, 0>::given, me, 0);
    auto speed = block_of<double>(*plain::view.mesh, in, ghosts<1, 1>::given, me, 0);
    auto next = block_of<double>(*plain::view.mesh, in, ghosts<1, 1>::given, me, 0);
    mine.each(in.global, [&](double& element, std::int64_t i) { element = u[i]; });
    speed.each(in.global, [&](double& element, std::int64_t i) { element = v[i]; });
    const auto factor = distribute<plain, 1>(comm, k);
    std::vector<double> sums(3), flow(3 * 6);
    step s;
    const auto run_with = [&](const auto& factors) {
      s(comm, exchange_ghosts(mine.view()), factors, exchange_ghosts(speed.view()), next.view(),
        strided_view(sums.data(), {next.held[0]}), flow);
    };
    run_with(factor);
    // the factors are also in a block with a layout of its own
    next = block_of<double>(*plain::view.mesh, in, ghosts<1, 1>::given, me, 0);
    std::fill(flow.begin(), flow.end(), 0.0);
    const auto theirs = layout_of_input<plain, 1>(ragged_list{{1, 5, 2}});
    std::vector<double> own_rows;
    for (const auto row : theirs.held(me, along(0)))
      for (std::int64_t j = 0; j < 6; ++j) own_rows.push_back(k[row * 6 + j]);
    run_with(placed_view(theirs, strided_view(own_rows.data(), {static_cast<std::int64_t>(own_rows.size()) / 6, 6})));
    CHECK_EQ(s.bytes_sent(), bytes_sent_to_redistribute(theirs, layout_of_input<plain, 1>(), me, 8));
    bool is_right = true;
    next.each(in.global, [&](double& element, std::int64_t i) { is_right = is_right && element == std::get<0>(wanted)[i]; });
    for (std::int64_t r = 0; r < next.held[0]; ++r) {
      const auto row = next.begin[0] + r;
      const auto own = static_cast<std::size_t>(r);
      is_right = is_right && sums[own] == std::get<1>(wanted)[row];
      for (std::int64_t j = 0; j < 6; ++j)
        is_right = is_right && flow[static_cast<std::size_t>(r * 6 + j)] == std::get<2>(wanted)[row * 6 + j];
    }
    CHECK(is_right);
  });
  CHECK_EQ(step::bytes_exchanged(0, 1), 6 * 8);
  CHECK_EQ(step::bytes_exchanged(2, 1), 2 * 6 * 8);
  CHECK_EQ(step::bytes_exchanged(2, 2), 6 * 8);
}

TEST_CASE("a shift that reads an input through a reshard, or as another one is split") {
  constexpr auto resharded = [](auto u) { return shift(reshard(u, split<"x", _>{}), 1, along(0), boundary::edge()) + 0.5 * u; };
  check_as_plain<compile<resharded, three, input<double, shape<8, 3>, split<"x", _>>>, ghosts<layers{0, 2}, 0>, ghosts<0, 0>>();
  constexpr auto alike = [](auto u) { return shift(shard_alike(u, u), -1, along(0), boundary::constant(3)) + 0.5 * u; };
  check_as_plain<compile<alike, three, input<double, shape<8, 3>, split<"x", _>>>, ghosts<1, 0>, ghosts<0, 0>>();
}

TEST_CASE("a read beyond an end that nothing was found of is known to be one") {
  using plain = compile<diffuse, three, input<double, shape<6, 4>, split<"x", _>>>;
  using step = with_ghosts<plain, ghosts<1, 1>>;
  static_assert(!detail::are_reads_known(step::view, detail::input_ends(), 0));
  static_assert(detail::are_reads_known(step::view, detail::input_ends(), 1));  // without an input
}

TEST_CASE("boundary values of the caller's take the place of the program's") {
  using plain = compile<diffuse, three, input<double, shape<6, 4>, split<"x", _>>>;
  launch(threads{}, 3, [&](auto& comm) {
    std::vector<double> u(4 * 6, 1.0), next(2 * 4);
    with_ghosts<plain, ghosts<1, 1>, ghosts<0, 0>> s;
    s(comm, ghosted_view(u.data(), {4, 6}), strided_view(next.data(), {2, 4}));
    CHECK(next == std::vector<double>(8, 1.0));
  });
}

TEST_CASE("arguments that a step with ghost layers refuses") {
  using plain = compile<diffuse, three, input<double, shape<6, 4>, split<"x", _>>>;
  using step = with_ghosts<plain, ghosts<1, 1>, ghosts<1, 1>>;
  simulated_communicator all(3);
  std::vector<double> u(4 * 6), next(4 * 6), more(48);
  step s;
  const ghosted_view from(u.data(), {4, 6}), to(next.data(), {4, 6});
  CHECK(contains(refusal([&] { s(all, from, to); }), "holds 3 devices"));
  launch(threads{}, 3, [&](auto& comm) {
    step mine;
    const auto says = [&](const char* text, auto&&... shards) { CHECK(contains(refusal([&] { mine(comm, shards...); }), text)); };
    says("input 0 with its ghost layers is [4,6] on device", ghosted_view(from.block.interior({1, 1})), to);
    says("the last dim of the view is not dense", ghosted_view(more.data(), {4, 6}, {12, 2}), to);
    says("several indices of the view given have the same element", from, ghosted_view(more.data(), {4, 6}, {0, 1}));
    says("output 0 is given memory that overlaps input 0", from, from);
    says("input 0 has ghost layers or strides; pass a ghosted_view or a strided_view", u.data(), to);
    says("input 0 has ghost layers; pass a ghosted_view, with the layers, or exchange_ghosts(view)", from.block, to);
    says("several indices of the view given have the same element", exchange_ghosts(strided_view(more.data(), {4, 6}, {0, 1})),
         to);
  });
}

TEST_CASE("memory that dense shards of a step with ghost layers may not have") {
  constexpr auto program = [](auto u, auto k) { return std::tuple{shift(u, -1, along(0)) + k, k + 1.0}; };
  using field = input<double, shape<8, 3>, split<"x", _>>;
  using plain = compile<program, mesh<axis<"x", 2>>, field, field>;
  launch(threads{}, 2, [](auto& comm) {
    std::vector<double> u(5 * 3, 1.0), k(4 * 3 + 6, 2.0), one(4 * 3), two(4 * 3);
    const ghosted_view block(u.data(), {5, 3}), next(one.data(), {4, 3});
    with_ghosts<plain, ghosts<layers{1, 0}, 0>, ghosts<>, ghosts<0, 0>> s;
    const auto says = [](auto& step, const char* text, auto& on, auto&&... shards) {
      CHECK(contains(refusal([&] { step(on, shards...); }), text));
    };
    says(s, "output 0 is given memory that overlaps input 1", comm, block, k.data(), strided_view(k.data() + 3, {4, 3}), two);
    says(s, "output 0 is given memory that overlaps input 1", comm, block, k.data(), strided_view(k.data(), {4, 3}), two);
    says(s, "output 1 is given memory that overlaps input 0", comm, block, k.data(), next, u.data() + 3);
    says(s, "output 1 is given memory that overlaps input 1", comm, block, k.data(), next, k.data() + 3);
    says(s, "output 1 is given memory that overlaps output 0", comm, block, k.data(), next, one.data());
    says(s, "input 1 is given no memory", comm, block, static_cast<const double*>(nullptr), next, two);
    says(s, "output 1 is given no memory", comm, block, k.data(), next, static_cast<double*>(nullptr));
    with_ghosts<plain, ghosts<layers{1, 0}, 0>> dense;
    says(dense, "output 1 is given memory that overlaps output 0", comm, block, k.data(), two, two);
    s(comm, exchange_ghosts(block), k.data(), next, two);
    CHECK_EQ(one.back(), 3.0);
    // An input that is copied is read before the step, and a result that is copied is written after the step.
    std::vector<double> wide(4 * 6, 2.0);
    const strided_view apart(wide.data(), {4, 3}, {6, 1});
    s(comm, exchange_ghosts(block), apart, next, apart);
    CHECK_EQ(wide[18], 3.0);
    s(comm, exchange_ghosts(block), apart, strided_view(wide.data(), {4, 3}), two);
    CHECK_EQ(two[11], 4.0);
  });
}

TEST_CASE("one block for two inputs whose layers are to be filled") {
  constexpr auto differ = [](auto a, auto b) { return shift(a, -1, along(0)) + 10.0 * shift(b, -1, along(0), boundary::edge()); };
  constexpr auto agree = [](auto a, auto b) { return shift(a, -1, along(0)) + 10.0 * shift(b, -1, along(0)); };
  using field = input<double, shape<8, 3>, split<"x", _>>;
  using two = mesh<axis<"x", 2>>;
  using differing = with_ghosts<compile<differ, two, field, field>, ghosts<layers{1, 0}, 0>, ghosts<layers{1, 0}, 0>>;
  using agreeing = with_ghosts<compile<agree, two, field, field>, ghosts<layers{1, 0}, 0>, ghosts<layers{1, 0}, 0>>;
  launch(threads{}, 2, [](auto& comm) {
    std::vector<double> u(5 * 3, 1.0), y(4 * 3);
    const ghosted_view block(u.data(), {5, 3}), next(y.data(), {4, 3});
    differing s;
    for (int again = 0; again < 2; ++again)
      CHECK(contains(refusal([&] { s(comm, exchange_ghosts(block), exchange_ghosts(block), next); }),
                     "inputs 0 and 1 are given blocks that overlap, and their layers are filled differently"));
    agreeing same;
    same(comm, exchange_ghosts(block), exchange_ghosts(block), next);
    CHECK_EQ(y[0], comm.device(0) == 0 ? 0.0 : 11.0);
    constexpr auto beside = [](auto a, auto b) { return shift(a, -1, along(0)) + 10.0 * b; };
    with_ghosts<compile<beside, two, field, field>, ghosts<layers{1, 0}, 0>, ghosts<0, 0>> inner;
    inner(comm, exchange_ghosts(block), block.block.part({1, 0}, {4, 3}), next);
    CHECK_EQ(y[0], comm.device(0) == 0 ? 10.0 : 11.0);
  });
  // The third device holds nothing, and its layers may be anywhere.
  using short_field = input<double, shape<4, 3>, split<"x", _>>;
  using short_step =
      with_ghosts<compile<differ, three, short_field, short_field>, ghosts<layers{1, 0}, 0>, ghosts<layers{1, 0}, 0>>;
  launch(threads{}, 3, [](auto& comm) {
    const int held = comm.device(0) == 2 ? 0 : 2;
    std::vector<double> u(3 * 3, 1.0), v(3 * 3, 2.0), y(2 * 3);
    const strided_view first(u.data(), {held + 1, 3}), second((held == 0 ? u : v).data(), {held + 1, 3});
    short_step s;
    s(comm, exchange_ghosts(first), exchange_ghosts(second), y.data());
    CHECK((held == 0 || y[0] == (comm.device(0) == 0 ? 20.0 : 21.0)));
  });
}
