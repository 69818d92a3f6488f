// SPDX-License-Identifier: Apache-2.0
// group: transports
#include "gspmd/detail/transport/node_boxes.hpp"

#include <doctest/doctest.h>

#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/collective_oracle.hpp"

using namespace oracle;

namespace {

/// A device, here a thread. The memory that processes would share is a vector with two halves for each device.
struct member {
  std::vector<std::vector<std::byte>>& memories;
  std::barrier<>& meeting;
  int device_, devices, room;

  [[nodiscard]] int device_count() const { return devices; }
  [[nodiscard]] int local_count() const { return 1; }
  [[nodiscard]] int device(int) const { return device_; }

  template <class T>
  void move(const mesh_shape& mesh, const movement& m, const T* const* in, T* const* out) {
    const auto me = mesh.coordinates_of(device_);
    if (mesh.size_of(m.axes) != devices || m.map != nullptr) {  // smaller groups are for the tests under MPI
      for_each_held(mesh, m.to_global, m.to, me,
                    [&](std::int64_t local, std::int64_t index) { out[0][local] = element_at<T>(index, 0); });
      return;
    }
    const node_boxes boxes(mesh, m, me);
    const auto half_bytes = static_cast<std::size_t>(room) * sizeof(T);
    std::size_t half = 0;
    move_through_node(boxes, room, sizeof(T), in[0], out[0], [&](auto fill) {
      half = half_bytes - half;
      fill(memories[static_cast<std::size_t>(boxes.self)].data() + half);
      meeting.arrive_and_wait();
      return [this, half](std::int64_t j) -> const std::byte* { return memories[static_cast<std::size_t>(j)].data() + half; };
    });
    meeting.arrive_and_wait();
  }
};

template <class T>
int wrong_in(const mesh_shape& mesh, const extents& shape, int room) {
  const auto devices = static_cast<int>(mesh.device_count());
  const auto shardings = all_shardings(mesh, shape.count);
  std::vector<std::vector<std::byte>> memories(static_cast<std::size_t>(devices));
  for (auto& memory : memories) memory.resize(2 * static_cast<std::size_t>(room) * sizeof(T));
  std::barrier<> meeting(devices);
  std::vector<int> wrong(static_cast<std::size_t>(devices));
  std::vector<std::thread> threads;
  for (int d = 0; d < devices; ++d)
    threads.emplace_back([&, d] {
      member comm{memories, meeting, d, devices, room};
      for (const auto& from : shardings)
        for (const auto& to : shardings)
          wrong[static_cast<std::size_t>(d)] += wrong_after_move<T>(comm, mesh, movement_between(mesh, shape, from, to));
    });
  for (auto& thread : threads) thread.join();
  int sum = 0;
  for (const int w : wrong) sum += w;
  return sum;
}

}  // namespace

TEST_CASE("the pieces of a box cover it once") {
  for (std::int64_t a = 1; a <= 5; ++a)
    for (std::int64_t b = 1; b <= 4; ++b)
      for (std::int64_t c = 1; c <= 7; ++c)
        for (std::int64_t most = 1; most <= 40; ++most) {
          buffer_layout largest;
          largest.held.rank = 3;
          largest.local[0] = a;
          largest.local[1] = b;
          largest.local[2] = c;
          const box_cut cut(largest, most);
          for (const std::int64_t less : {0, 1, 2, 9}) {  // a box that is smaller than the largest one
            held_ranges box;
            box.rank = 3;
            for (int d = 0; d < 3; ++d) {
              box.begin[d] = 10 * d;
              box.end[d] = 10 * d + largest.local[d] - (d == less % 3 ? less : 0);
            }
            std::vector<int> counts(static_cast<std::size_t>(a * b * c));
            bool fits = true;
            for (std::int64_t k = 0; k < cut.pieces; ++k) {
              const auto piece = cut.piece(box, k);
              if (!piece.any()) continue;
              fits = fits && piece.elems() <= most;
              for (auto i = piece.begin[0]; i < piece.end[0]; ++i)
                for (auto j = piece.begin[1]; j < piece.end[1]; ++j)
                  for (auto l = piece.begin[2]; l < piece.end[2]; ++l)
                    ++counts[static_cast<std::size_t>((i * b + j - 10) * c + l - 20)];
            }
            std::int64_t total = 0;
            for (const int times : counts) {
              fits = fits && times <= 1;
              total += times;
            }
            CHECK(fits);
            CHECK(total == box.elems());
          }
          CHECK(cut.pieces <= 4 * ((a * b * c + most - 1) / most));
        }
}

TEST_CASE("movements through shared memory, in pieces of all sizes") {
  for (const auto& mesh : {mesh_of({2}), mesh_of({3}), mesh_of({4}), mesh_of({2, 2}), mesh_of({1, 3})})
    for (const auto& shape : {shape_of({7, 9}), shape_of({8, 3, 5}), shape_of({1, 40}), shape_of({61}), shape_of({5, 1, 6})}) {
      const int lines = static_cast<int>(mesh.device_count());
      CHECK(wrong_in<std::int64_t>(mesh, shape, 8 * lines) == 0);
      CHECK(wrong_in<float>(mesh, shape, 16 * lines + 3) == 0);
      CHECK(wrong_in<std::int64_t>(mesh, shape, 1000) == 0);
    }
}
