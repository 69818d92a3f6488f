// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
// Windows over split dims, compared with windows over single elements of the tensor: results and messages.
#include <doctest/doctest.h>
#include <span>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "support/layouts.hpp"
#include "support/run_random_on_threads.hpp"

using namespace layouts;

namespace {

using gspmd::dtype;

/// A window along a dim, in StableHLO's notation.
struct side {
  std::int64_t extent = 1, size = 1, stride = 1, low = 0, high = 0, base = 1, dilation = 1;

  [[nodiscard]] std::int64_t padded() const { return (extent == 0 ? 0 : (extent - 1) * base + 1) + low + high; }
  [[nodiscard]] std::int64_t span() const { return (size - 1) * dilation + 1; }
  [[nodiscard]] std::int64_t outputs() const { return padded() < span() ? 0 : (padded() - span()) / stride + 1; }
  /// Returns the element at a position of the padded operand, or -1.
  [[nodiscard]] std::int64_t element(std::int64_t place) const {
    const auto j = place - low;
    return j >= 0 && j % base == 0 && j / base < extent ? j / base : -1;
  }
};

/// The windows of one input, planned for a mesh.
template <class T>
struct windowed {
  mesh_shape mesh;
  std::vector<side> sides;
  monoid kind;
  sharding layout;
  extents in, out;
  plan planned;

  windowed(const mesh_shape& m, const std::vector<side>& s, monoid k, const sharding& l) : mesh(m), sides(s), kind(k), layout(l) {
    vec<std::int64_t> lists[6];
    for (const auto& d : sides) {
      in.push_back(d.extent);
      out.push_back(d.outputs());
      const std::int64_t numbers[] = {d.size, d.stride, d.low, d.high, d.base, d.dilation};
      for (int i = 0; i < 6; ++i) lists[i].push_back(numbers[i]);
    }
    graph g;
    const auto list = [&](int i) { return std::span<const std::int64_t>(lists[i].data(), lists[i].size()); };
    const int x = add_parameter(g, dtype_of<T>(), in, {});
    g.outputs.push_back(add_reduce_window(g, x, {list(0), list(1), list(2), list(3), list(4), list(5)}, kind, {}));
    REQUIRE_MESSAGE(!g.failed(), std::string(g.error.view()));
    for (auto& n : g.nodes) {
      n.annotated = true;
      n.annotation = layout;
    }
    planned = plan_at_run_time(g, mesh, {});
    REQUIRE(planned.error.empty());
  }
  [[nodiscard]] plan_view view() const { return plan_view(planned); }

  [[nodiscard]] T number(std::int64_t e) const {
    if constexpr (std::is_same_v<T, bool>) return e % 3 == 0;
    else if (kind == monoid::multiply) return static_cast<T>(e % 3 == 0 ? 2 : e % 3 == 1 ? -1 : 1);
    else return static_cast<T>((e * 37 + 11) % 101 - 50);
  }
  static T poison() {
    if constexpr (std::numeric_limits<T>::has_quiet_NaN) return std::numeric_limits<T>::quiet_NaN();
    else return static_cast<T>(77);
  }
  [[nodiscard]] T expected(const std::int64_t* output) const {
    T result = identity<T>(kind);
    std::vector<std::int64_t> w(sides.size(), 0);
    for (int d = 0; d >= 0;) {
      std::int64_t e = 0;
      bool is_there = true;
      for (std::size_t k = 0; k < sides.size(); ++k) {
        const auto element = sides[k].element(output[k] * sides[k].stride + w[k] * sides[k].dilation);
        is_there = is_there && element >= 0;
        e = e * sides[k].extent + element;
      }
      if (is_there) result = combine<T>(kind, result, number(e));
      for (d = static_cast<int>(sides.size()) - 1; d >= 0; --d) {
        const auto k = static_cast<std::size_t>(d);
        if (++w[k] < sides[k].size) break;
        w[k] = 0;
      }
    }
    return result;
  }

  template <class Comm>
  [[nodiscard]] std::string run(Comm& comm) const {
    const auto p = view();
    const auto& v = p.value(p.inputs[0]);
    const auto& r = p.value(p.outputs[0]);
    const auto count = static_cast<std::size_t>(comm.local_count());
    const auto elems = static_cast<std::size_t>(elements(v.local)), results = static_cast<std::size_t>(elements(r.local));
    std::vector<std::vector<std::byte>> memory;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    std::vector<aligned_bytes> arenas;
    const auto shard_of = [&](std::size_t size, T value) {
      memory.emplace_back((size + 1) * sizeof(T) + 64);
      auto* const begin = reinterpret_cast<T*>(memory.back().data());
      std::fill_n(begin, size + 1, value);
      return begin;
    };
    std::vector<T*> in_of, out_of;
    for (std::size_t d = 0; d < count; ++d) {
      const auto at = mesh.coordinates_of(comm.device(static_cast<int>(d)));
      in_of.push_back(shard_of(elems, poison()));
      out_of.push_back(shard_of(results, poison()));
      arenas.emplace_back(p.arena_bytes);
      for (std::int64_t b = 0; b < p.arena_bytes / static_cast<std::int64_t>(sizeof(T)); ++b)
        reinterpret_cast<T*>(arenas.back().get())[b] = poison();
      each_element(v, at, [&](const std::int64_t* i, std::size_t here) { in_of[d][here] = number(flat(in, i)); });
    }
    for (auto* shard : in_of) inputs.push_back(shard);
    for (auto* shard : out_of) outputs.push_back(shard);
    std::vector<device_memory> devices;
    for (std::size_t d = 0; d < count; ++d)
      devices.push_back({&inputs[d], &outputs[d], arenas[d].get(), mesh.coordinates_of(comm.device(static_cast<int>(d)))});
    std::vector<const void*> from(count);
    std::vector<void*> to(count);
    interpreter steps(p);
    steps.run(comm, devices.data(), from.data(), to.data());
    std::string wrong;
    for (std::size_t d = 0; d < count; ++d)
      each_element(r, devices[d].at, [&](const std::int64_t* i, std::size_t here) {
        if (!(out_of[d][here] == expected(i)))
          wrong = "device " + std::to_string(d) + ", element " + std::to_string(here) + " is " + std::to_string(out_of[d][here]) +
                  " and not " + std::to_string(expected(i));
      });
    return wrong;
  }

  /// Returns the elements that devices must exchange: in the range that the windows of a device cover, all elements of
  /// other devices.
  [[nodiscard]] std::int64_t most_exchanged() const {
    const auto devices = static_cast<int>(mesh.device_count());
    std::vector<std::int64_t> sent(static_cast<std::size_t>(devices)), received = sent;
    const auto p = view();
    const auto& v = p.value(p.inputs[0]);
    const auto& r = p.value(p.outputs[0]);
    for (int d = 0; d < devices; ++d) {
      const auto at = mesh.coordinates_of(d);
      for (int e = 0; e < devices; ++e) {
        const auto other = mesh.coordinates_of(e);
        bool is_in_group = e != d;
        for (int a = 0; a < mesh.axis_count(); ++a)
          is_in_group = is_in_group && ((layout.split_axes() & axis_bit(a)) != 0 || at[a] == other[a]);
        if (!is_in_group) continue;
        std::int64_t elems = 1;
        for (std::size_t k = 0; k < sides.size(); ++k) {
          const auto& s = sides[k];
          const int dim = static_cast<int>(k);
          const auto outputs = dim_range(mesh, r.global, r.layout, dim, at),
                     held = dim_range(mesh, v.global, v.layout, dim, other);
          std::set<std::int64_t> needed;
          const auto first = outputs.begin * s.stride, last = (outputs.end - 1) * s.stride + s.span() - 1;
          const auto apart = std::gcd(s.stride, s.size == 1 ? std::int64_t{0} : s.dilation);
          for (auto place = first; outputs.size() > 0 && place <= last; place += apart)
            if (const auto element = s.element(place); element >= held.begin && element < held.end) needed.insert(element);
          elems *= static_cast<std::int64_t>(needed.size());
        }
        sent[static_cast<std::size_t>(e)] += elems;
        received[static_cast<std::size_t>(d)] += elems;
      }
    }
    std::int64_t most = 0;
    for (std::size_t d = 0; d < sent.size(); ++d) most = std::max({most, sent[d], received[d]});
    return most;
  }

  [[nodiscard]] std::string text() const {
    std::string t = std::string(name_of(kind)) + " on";
    for (const auto size : mesh.sizes) t += ' ' + std::to_string(size);
    for (const auto& use : layout.splits) t += " axis " + std::to_string(use.axis) + " dim " + std::to_string(use.dim);
    for (const auto& s : sides)
      t += "; " + std::to_string(s.extent) + ": size " + std::to_string(s.size) + " stride " + std::to_string(s.stride) +
           " low " + std::to_string(s.low) + " high " + std::to_string(s.high) + " base " + std::to_string(s.base) +
           " dilation " + std::to_string(s.dilation);
    return t;
  }

 private:
  static std::int64_t flat(const extents& shape, const std::int64_t* i) {
    std::int64_t e = 0;
    for (int d = 0; d < shape.count; ++d) e = e * shape[d] + i[d];
    return e;
  }
  /// Calls `visit(global index, local offset)`.
  template <class Visit>
  void each_element(const planned_value& v, const coordinates& at, Visit visit) const {
    std::int64_t begin[max_rank], i[max_rank];
    for (int d = 0; d < v.global.count; ++d) {
      const auto range = dim_range(mesh, v.global, v.layout, d, at);
      if (range.size() <= 0) return;
      begin[d] = i[d] = range.begin;
    }
    for (int d = 0; d >= 0;) {
      std::size_t here = 0;
      for (int k = 0; k < v.global.count; ++k)
        here = here * static_cast<std::size_t>(v.local[k]) + static_cast<std::size_t>(i[k] - begin[k]);
      visit(i, here);
      for (d = v.global.count - 1; d >= 0; --d) {
        if (++i[d] < dim_range(mesh, v.global, v.layout, d, at).end) break;
        i[d] = begin[d];
      }
    }
  }
};

struct totals {
  int cases = 0, exchanged = 0, wrong = 0;
};
template <class T, class Comm>
void verify(const windowed<T>& w, Comm& comm, totals& t) {
  ++t.cases;
  std::string wrong = w.run(comm);
  std::int64_t sent = 0;
  for (const auto& s : w.view().steps) {
    if (s.bytes_sent > 0 && s.collective != collective_kind::collective_permute) wrong += " a gather";
    sent += s.bytes_sent;
  }
  t.exchanged += sent > 0 ? 1 : 0;
  const bool is_one_operator = w.sides.size() <= max_mapped_dims;
  if (const auto most = w.most_exchanged() * static_cast<std::int64_t>(sizeof(T)); is_one_operator && sent != most)
    wrong += " sends " + std::to_string(sent) + " bytes of " + std::to_string(most);
  if (wrong.empty()) return;
  if (++t.wrong <= 10) FAIL_CHECK(w.text() << ": " << wrong);
}

template <class T>
void random_windows(unsigned seed, int count, const std::vector<monoid>& kinds, totals& t) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int made = 0; made < count;) {
    std::vector<side> sides;
    const int rank = pick(0, 19) == 0 ? pick(5, 6) : pick(1, 3);
    for (int d = 0; d < rank; ++d) {
      side s;
      s.extent = rank > 3 ? pick(1, 3) : pick(0, 13);
      if (rank > 3) s = {s.extent, pick(1, 2), pick(1, 2), pick(0, 1), pick(0, 1), 1, pick(1, 2)};
      else if (pick(0, 3) > 0) s = {s.extent, pick(1, 5), pick(1, 3), pick(-2, 3), pick(-2, 3), pick(1, 3), pick(1, 3)};
      sides.push_back(s);
    }
    bool fits = true, is_any = false;
    for (const auto& s : sides) is_any = is_any || s.size + s.stride + s.base > 3 || s.low != 0 || s.high != 0;
    for (const auto& s : sides) fits = fits && (s.padded() >= s.span() || (s.extent == 0 && s.padded() == 0));
    if (!fits || !is_any) continue;
    ++made;
    const auto mesh = mesh_of({pick(1, 5), pick(1, 3)});
    sharding layout;
    for (int axis = 0; axis < 2; ++axis)
      if (const int dim = pick(-1, rank - 1); dim >= 0) layout.add_split(axis, dim);
    const windowed<T> w(mesh, sides, kinds[static_cast<std::size_t>(pick(0, static_cast<int>(kinds.size()) - 1))], layout);
    gspmd::simulated_communicator comm(static_cast<int>(mesh.device_count()));
    verify(w, comm, t);
  }
}

}  // namespace

TEST_CASE("reduce_window: random windows") {
  totals t;
  using enum monoid;
  random_windows<float>(1, 1200, {add, max, min, multiply}, t);
  random_windows<std::int32_t>(2, 200, {add, max, min, multiply, and_, or_}, t);
  random_windows<std::int64_t>(3, 200, {add, max, and_}, t);
  random_windows<double>(4, 200, {add, min}, t);
  random_windows<bool>(5, 200, {max, and_, or_}, t);
  std::printf("random windows: %d, %d of them send\n", t.cases, t.exchanged);
  CHECK(t.exchanged > t.cases / 4);
}

TEST_CASE("reduce_window: a window much wider than a shard, on more devices than elements") {
  totals t;
  for (int devices = 1; devices <= 12; ++devices)
    for (std::int64_t extent = 1; extent <= 9; extent += 2)
      for (const auto& s :
           {side{extent, 9, 1, 4, 4}, side{extent, 1, 3}, side{extent, 3, 2, 5, 0, 3, 2}, side{extent, 5, 1, 0, 9}}) {
        sharding layout;
        layout.add_split(0, 1);
        gspmd::simulated_communicator comm(devices);
        verify(windowed<float>(mesh_of({devices}), {{2}, s}, monoid::max, layout), comm, t);
      }
}

TEST_CASE("random programs with windows equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::setting("GSPMD_PROGRAMS", 1000);
  reference::random_options options;
  options.windows = true;
  std::uint64_t windows = 0, sending = 0, in_bodies = 0, partial = 0, convolutions = 0, scattered = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed, options);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    const plan_view view(plan);
    for (const auto& n : plan.nodes) {
      convolutions += n.op == code_of<convolution_op> ? 1 : 0;
      scattered += n.op == code_of<select_and_scatter_op> ? 1 : 0;
      const bool is_window =
          n.op == code_of<convolution_op> || n.op == code_of<select_and_scatter_op> || n.op == code_of<reduce_window_op>;
      in_bodies += is_window && n.region >= 0 ? 1 : 0;
    }
    for (const auto& s : plan.steps) {
      if (!is<kernels::reduce_window>(s)) continue;
      ++windows;
      partial += view.result(s).layout.partial != 0 ? 1 : 0;
      const auto& tile = view.operand(s, 0);
      sending += tile.step >= 0 && is_mapped(plan.steps[static_cast<std::size_t>(tile.step)]) &&
                         plan.steps[static_cast<std::size_t>(tile.step)].bytes_sent > 0
                     ? 1
                     : 0;
    }
    gspmd::simulated_communicator comm(program.device_count());
    const auto wrong = reference::run_and_check(comm, program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    if (seed % 20 != 0) continue;
    const auto on_threads = reference::run_and_check_on_threads(program, view);
    if (!on_threads.empty()) FAIL_CHECK(on_threads);
  }
  std::printf(
      "random programs with windows: %llu windows, %llu of them send, %llu in loops, %llu of partial values, %llu "
      "convolutions, %llu gradients of maxima\n",
      static_cast<unsigned long long>(windows), static_cast<unsigned long long>(sending),
      static_cast<unsigned long long>(in_bodies), static_cast<unsigned long long>(partial),
      static_cast<unsigned long long>(convolutions), static_cast<unsigned long long>(scattered));
  CHECK(convolutions > count / 2);
  CHECK(scattered > count / 20);
  CHECK(windows > count / 2);
  CHECK(sending > count / 6);
  CHECK(in_bodies > 0);
  CHECK(partial > 0);
}
