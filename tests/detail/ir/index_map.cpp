// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: transports
// Movements where elements go from index to index by an affine map, between tensors of other extents.
#include <doctest/doctest.h>

#include <cstdio>
#include <random>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "support/mapped_movements.hpp"
#include "support/reshaped_movements.hpp"
#include "support/sanitized.hpp"

using namespace oracle;

namespace {

/// Bits that are an element of every type, so that a bool stays one.
constexpr std::uint64_t number = 0x0100010101010101U;

int complain(int& complaints, const std::string& what) {
  if (++complaints <= 10) FAIL_CHECK(what);
  return complaints;
}

}  // namespace

TEST_CASE("an affine map as steps is the same map") {
  for (const std::int64_t a : {-6, -4, -3, -2, -1, 1, 2, 3, 4, 6, 9})
    for (std::int64_t b = -40; b <= 40; ++b)
      for (std::int64_t c = 1; c <= 9; ++c) {
        const auto map = dim_map::affine(0, a, b, c);
        REQUIRE(map.to_step >= 1);
        for (std::int64_t i = -30; i <= 30; ++i) {
          const bool has_step = map.from_step != 0 && (i - map.to_first) % map.to_step == 0;
          REQUIRE(has_step == ((a * i + b) % c == 0));
          if (has_step) REQUIRE(map.from_first + map.from_step * ((i - map.to_first) / map.to_step) == (a * i + b) / c);
        }
      }
}

TEST_CASE("every map of one dim: extents 0 to 9 on 1 to 5 parts") {
  constexpr std::int64_t largest = reference::is_sanitized ? 6 : 9;
  std::int64_t count = 0, sending = 0;
  int complaints = 0;
  for (int parts = 1; parts <= 5; ++parts) {
    gspmd::simulated_communicator comm(parts);
    mapped_movement m;
    m.mesh = mesh_of({parts});
    m.s = split({{0, 0}});
    for (std::int64_t from = 0; from <= largest; ++from)
      for (std::int64_t to = 0; to <= largest; ++to)
        for (const std::int64_t a : {-2, -1, 1, 2, 3})
          for (std::int64_t b = -13; b <= 18; ++b)
            for (std::int64_t c = 1; c <= 3; ++c)
              for (const auto beyond : {continuation::none, continuation::round, continuation::edge, continuation::reflect,
                                        continuation::symmetric}) {
                if (beyond != continuation::none && (b + from + to + static_cast<int>(beyond)) % 6 != 0) continue;
                m.from = shape_of({from});
                m.to = shape_of({to});
                m.dims = {{0, a, b, c, beyond}};
                m.outside = (a + b + c) % 3 == 0 ? outside_rule::keep : outside_rule::fill;
                m.fill = b % 2 == 0 ? 0 : number;
                ++count;
                if (m.wrong<std::int32_t>(comm) != 0) complain(complaints, m.text());
                if (const auto text = m.wrong_traffic(); !text.empty()) complain(complaints, text);
                sending += traffic_of(m.mesh, m.from, m.to, m.s, m.map()).sent > 0 ? 1 : 0;
              }
  }
  CHECK(complaints == 0);
  std::printf("maps of one dim: %lld, %lld of them send\n", static_cast<long long>(count), static_cast<long long>(sending));
  CHECK(sending > count / 5);
}

TEST_CASE("random maps of up to three dims on meshes of up to three axes, all element types") {
  std::mt19937_64 random(7);
  int complaints = 0;
  std::int64_t sending = 0, filling = 0;
  for (int k = 0; k < (reference::is_sanitized ? 10000 : 30000); ++k) {
    mesh_shape mesh;
    int devices = 1;
    for (int a = 0; a < 3; ++a) {
      const int size = static_cast<int>(random() % 4 + 1);
      if (devices * size > 12) break;
      devices *= size;
      mesh.sizes.push_back(size);
    }
    const auto m = random_mapped_movement(random, mesh);
    gspmd::simulated_communicator comm(devices);
    const int wrong = k % 5 == 0   ? m.wrong<bool>(comm)
                      : k % 5 == 1 ? m.wrong<float>(comm)
                      : k % 5 == 2 ? m.wrong<double>(comm)
                      : k % 5 == 3 ? m.wrong<std::int32_t>(comm)
                                   : m.wrong<std::int64_t>(comm);
    if (wrong != 0) complain(complaints, m.text());
    if (const auto text = m.wrong_traffic(); !text.empty()) complain(complaints, text);
    sending += traffic_of(m.mesh, m.from, m.to, m.s, m.map()).sent > 0 ? 1 : 0;
    filling += m.outside == outside_rule::fill ? 1 : 0;
  }
  CHECK(complaints == 0);
  CHECK(sending > 1000);
  CHECK(filling > 1000);
}

TEST_CASE("random maps on threads") {
  for (const auto& mesh : {mesh_of({2}), mesh_of({5}), mesh_of({2, 2}), mesh_of({3, 2}), mesh_of({2, 1, 3})}) {
    std::mt19937_64 random(static_cast<std::uint64_t>(mesh.device_count()) + 100);
    std::vector<mapped_movement> list;
    for (int k = 0; k < 400; ++k) list.push_back(random_mapped_movement(random, mesh, k % 40 == 0 ? 60 : 9));
    const auto devices = static_cast<int>(mesh.device_count());
    std::vector<std::string> wrong(static_cast<std::size_t>(devices));
    gspmd::launch(gspmd::threads{}, devices, [&](gspmd::threads_communicator& comm) {
      for (std::size_t k = 0; k < list.size(); ++k) {
        int bad = k % 2 == 0 ? list[k].wrong<float>(comm) : list[k].wrong<std::int64_t>(comm);
        bad +=
            k % 3 == 0 ? list[k].wrong<float>(comm) : list[k].wrong<std::int64_t>(comm);  // kept from before, where the size is
        if (bad != 0) wrong[static_cast<std::size_t>(comm.device(0))] += list[k].text() + "; ";
      }
    });
    for (const auto& text : wrong) CHECK(text == "");
  }
}

TEST_CASE("every reshape of up to 24 elements on 1 to 5 devices and on 2x2, between all shardings") {
  int complaints = 0;
  std::int64_t count = 0, possible = 0, sending = 0;
  for (const auto& mesh : {mesh_of({1}), mesh_of({2}), mesh_of({3}), mesh_of({4}), mesh_of({5}), mesh_of({2, 2})}) {
    gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
    for (int elems = 1; elems <= (reference::is_sanitized ? 12 : 24); ++elems)
      for_each_reshape(mesh, elems, elems <= (mesh.axis_count() == 1 ? 8 : 4), [&](const reshaped_movement& m) {
        ++count;
        if (!m.is_possible()) return;
        if (m.wrong<std::int32_t>(comm) != 0) complain(complaints, m.text());
        if (const auto text = m.wrong_traffic(); !text.empty()) complain(complaints, text);
        ++possible;
        sending += reshape_exchange(m.mesh, m.from, m.s, m.to, m.t).traffic().received > 0 ? 1 : 0;
      });
  }
  CHECK(complaints == 0);
  std::printf("reshapes: %lld, %lld of them by a movement, %lld of these send\n", static_cast<long long>(count),
              static_cast<long long>(possible), static_cast<long long>(sending));
  CHECK(possible > count * 8 / 10);
  CHECK(sending > count / 2);
}

TEST_CASE("random reshapes of up to 5000 elements on larger meshes, all element types") {
  std::mt19937_64 random(11);
  int complaints = 0;
  for (int k = 0; k < (reference::is_sanitized ? 1000 : 3000); ++k) {
    const auto mesh = k % 3 == 0 ? mesh_of({2, 3, 2}) : k % 3 == 1 ? mesh_of({3, 4}) : mesh_of({2, 1, 5});
    const auto m = random_reshape(random, mesh, k % 100 == 0 ? 5000 : 120);
    gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
    const int wrong = k % 4 == 0   ? m.wrong<bool>(comm)
                      : k % 4 == 1 ? m.wrong<float>(comm)
                      : k % 4 == 2 ? m.wrong<double>(comm)
                                   : m.wrong<std::int64_t>(comm);
    if (wrong != 0) complain(complaints, m.text());
    if (const auto text = m.wrong_traffic(); !text.empty()) complain(complaints, text);
  }
  CHECK(complaints == 0);
}

TEST_CASE("random reshapes on threads") {
  for (const auto& mesh : {mesh_of({2}), mesh_of({5}), mesh_of({2, 2}), mesh_of({3, 2})}) {
    std::mt19937_64 random(static_cast<std::uint64_t>(mesh.device_count()) + 200);
    std::vector<reshaped_movement> list;
    for (int k = 0; k < 400; ++k) list.push_back(random_reshape(random, mesh, k % 40 == 0 ? 1000 : 60));
    const auto devices = static_cast<int>(mesh.device_count());
    std::vector<std::string> wrong(static_cast<std::size_t>(devices));
    gspmd::launch(gspmd::threads{}, devices, [&](gspmd::threads_communicator& comm) {
      for (std::size_t k = 0; k < list.size(); ++k) {
        int bad = k % 2 == 0 ? list[k].wrong<float>(comm) : list[k].wrong<std::int64_t>(comm);
        bad +=
            k % 3 == 0 ? list[k].wrong<float>(comm) : list[k].wrong<std::int64_t>(comm);  // kept from before, where the size is
        if (bad != 0) wrong[static_cast<std::size_t>(comm.device(0))] += list[k].text() + "; ";
      }
    });
    for (const auto& text : wrong) CHECK(text == "");
  }
}
