// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Chains of collectives in manual regions over two and three axes, from every layout. The value and its gradient are
// unchanged, or the chain is refused because the parts of a dim would be in another order.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/written_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/error_of.hpp"

using namespace gspmd;

namespace manual_moves {

using dynamic::value_states;
using axes_of_mesh = std::vector<dynamic::mesh::axis>;
using places = std::vector<std::int64_t>;  // of a device, on each axis

std::vector<places> all_devices(const axes_of_mesh& mesh) {
  std::vector<places> all{{}};
  for (const auto& axis : mesh) {
    std::vector<places> more;
    for (const auto& p : all)
      for (std::int64_t i = 0; i < axis.size; ++i) {
        more.push_back(p);
        more.back().push_back(i);
      }
    all = std::move(more);
  }
  return all;
}
/// Returns the first index and the number of indices of a device, for a dim of `extent` elements that these axes split,
/// major first.
std::pair<std::int64_t, std::int64_t> block(const axes_of_mesh& mesh, const std::vector<int>& axes, std::int64_t extent,
                                            const places& device) {
  std::int64_t first = 0;
  for (const int a : axes) {
    extent /= mesh[static_cast<std::size_t>(a)].size;
    first += extent * device[static_cast<std::size_t>(a)];
  }
  return {first, extent};
}
/// Returns the indices of a dim, split by `axes`, that a device has after it joins the parts of all devices along
/// `moved`. The first axis of the mesh is major.
std::vector<std::int64_t> joined(const axes_of_mesh& mesh, const std::vector<int>& axes, const std::vector<int>& moved,
                                 std::int64_t extent, const places& device) {
  std::vector<std::int64_t> all;
  for (const auto& other : all_devices(mesh)) {
    bool is_along = true;
    for (std::size_t a = 0; a < mesh.size(); ++a)
      is_along = is_along && (other[a] == device[a] || std::count(moved.begin(), moved.end(), static_cast<int>(a)) > 0);
    if (!is_along) continue;
    const auto [first, count] = block(mesh, axes, extent, other);
    for (std::int64_t i = 0; i < count; ++i) all.push_back(first + i);
  }
  return all;
}
/// Returns true if the parts joined along `moved` equal the parts of a split by the other axes.
bool lies_right(const axes_of_mesh& mesh, const std::vector<int>& axes, const std::vector<int>& moved, std::int64_t extent) {
  std::vector<int> rest;
  for (const int a : axes)
    if (std::count(moved.begin(), moved.end(), a) == 0) rest.push_back(a);
  for (const auto& device : all_devices(mesh)) {
    const auto all = joined(mesh, axes, moved, extent, device);
    const auto [first, count] = block(mesh, rest, extent, device);
    if (static_cast<std::int64_t>(all.size()) != count) return false;
    for (std::int64_t i = 0; i < count; ++i)
      if (all[static_cast<std::size_t>(i)] != first + i) return false;
  }
  return true;
}
/// Returns true if a dim split by the axes `a` is equal to a dim split by the axes `b`.
bool is_same_cut(const axes_of_mesh& mesh, const std::vector<int>& a, const std::vector<int>& b, std::int64_t extent) {
  for (const auto& device : all_devices(mesh))
    if (block(mesh, a, extent, device) != block(mesh, b, extent, device)) return false;
  return true;
}

/// One chain, which is drawn, built and then run.
class chain {
 public:
  chain(const axes_of_mesh& mesh, std::mt19937& random) : mesh_(mesh), judged_(mesh), random_(random) {
    for (auto& a : judged_) a.size = a.size == 1 ? 2 : a.size;
    for (const auto& a : judged_) extent_ *= a.size;
    const int others = is_one_in(3) ? 1 : 0;  // the last axis may be in the global view, inside the region too
    for (int a = 0; a < axis_count() - others; ++a) local_.push_back(a);
    std::vector<int> axes = local_;
    std::shuffle(axes.begin(), axes.end(), random_);
    now_.on.resize(mesh.size());
    for (const int a : axes) put(a, any_state());
    if (others > 0) put(axis_count() - 1, any_state());
    log_ = others > 0 ? " of all but the last axis" : "";
  }

  /// Returns true if the chain must be accepted. Then it was accepted.
  bool run() {
    const std::vector<std::int64_t> shape{extent(0), extent(1)};
    dynamic::builder b{dynamic::mesh(mesh_)};
    dynamic::written_program p(b);
    const value x = b.input(dynamic::input<double>(shape));
    p.input(x, now_);
    std::vector<value_states> leaves(1);  // known after the body has been called
    const value y = p.region(names(local_), {now_}, leaves, {x}, [&](const std::vector<value>& in) {
      value v = in[0];
      for (int left = 1 + draw(4); left > 0 && is_right_; --left) v = is_one_in(4) ? local_operator(p, v) : moved(p, v);
      leaves[0] = way_out();
      return std::vector<value>{v};
    })[0];
    b.output(y);
    const bool has_loss = is_right_ && std::none_of(now_.on.begin(), now_.on.end(), [](const axis_state& s) {
                            return s.is == state::replica || s.is == state::partial;
                          });
    if (has_loss) b.output(grad(sum(y * y), x));
    CAPTURE(log_);
    std::vector<double> data;
    for (std::int64_t k = 0; k < shape[0] * shape[1]; ++k) data.push_back(static_cast<double>(k % 1009) - 17);
    std::vector<dynamic::any_array> found;
    const std::string words = caught::error_of([&] { found = b.compile().run(simulated{}, data); });
    if (!is_right_) {
      const bool is_refused = caught::contains(words, "are not adjacent") || caught::contains(words, "another order");
      CHECK_MESSAGE(is_refused, words);
      return false;
    }
    // A region cannot insert parts among zeros along dims that other axes split. It reports that.
    if (local_.size() < mesh_.size() && caught::contains(words, "a dim that no other axis splits")) return false;
    REQUIRE_MESSAGE(words == "no error", words);
    const auto rows = extent(0), columns = extent(1);
    std::int64_t wrong = 0, wrong_slopes = 0;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        wrong += found[0].data<double>()[i * columns + j] !=
                 data[static_cast<std::size_t>(is_turned_ ? j * rows + i : i * columns + j)];
    CHECK(wrong == 0);
    for (std::size_t k = 0; has_loss && k < data.size(); ++k) wrong_slopes += found[1].data<double>()[k] != 2 * data[k];
    CHECK(wrong_slopes == 0);
    return true;
  }

 private:
  [[nodiscard]] int axis_count() const { return static_cast<int>(mesh_.size()); }
  [[nodiscard]] std::int64_t extent(int dim) const { return (dim == 1) == is_turned_ ? extent_ : 2 * extent_; }
  int draw(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool is_one_in(int n) { return draw(n) == 0; }
  [[nodiscard]] std::string names(const std::vector<int>& axes) const {
    std::string all;
    for (const int a : axes) all += (all.empty() ? "" : ",") + std::string(mesh_[static_cast<std::size_t>(a)].name);
    return all;
  }
  static axis_state shard(int dim) { return {state::shard, static_cast<std::int8_t>(dim), monoid::add}; }
  axis_state any_state() {
    constexpr state others[] = {state::replica, state::invariant, state::partial};
    return is_one_in(3) ? axis_state{others[draw(3)]} : shard(draw(2));
  }
  /// Changes the state of an axis. Among the region's axes that split its dim, the axis becomes the last one.
  void put(int axis, axis_state s) {
    now_.on[static_cast<std::size_t>(axis)] = s;
    std::erase_if(now_.order, [&](const auto& use) { return use.first == axis; });
    const bool is_before = is_local(axis) && !now_.order.empty() && !is_local(now_.order.back().first);
    if (s.is == state::shard) now_.order.insert(now_.order.end() - (is_before ? 1 : 0), {axis, s.dim});
  }
  /// Returns the region's axes that split a dim, major first. Splits by other axes are invisible in the region.
  [[nodiscard]] std::vector<int> axes_of(const value_states& s, int dim) const {
    std::vector<int> axes;
    for (const auto& [axis, d] : s.order)
      if (d == dim && is_local(axis)) axes.push_back(axis);
    return axes;
  }
  [[nodiscard]] bool is_local(int axis) const { return axis < static_cast<int>(local_.size()); }

  /// Adds an operator without communication, or a gradient inside the region. The value stays the same, up to its sign
  /// and a transposition.
  value local_operator(dynamic::written_program& p, value v) {
    if (is_one_in(3)) {
      log_ += " transpose";
      is_turned_ = !is_turned_;
      for (auto& s : now_.on)
        if (s.is == state::shard) s.dim = static_cast<std::int8_t>(1 - s.dim);
      for (auto& use : now_.order) use.second = 1 - use.second;
      return transpose(v, {1, 0});
    }
    bool varies = true;
    for (int a = 0; a < axis_count(); ++a) {
      const state is = now_.on[static_cast<std::size_t>(a)].is;
      varies = varies && (is == state::shard || (is == state::invariant && !is_local(a)));
    }
    if (!varies) return -(-v);
    log_ += " grad";
    const value half =
        p.transition(sum(0.5 * v * v), transition_kind::reinterpret, names(local_), {state::varying}, {state::partial});
    return grad(half, v);
  }
  /// Moves some axes with the state of a random axis to a state that a row of the table permits.
  value moved(dynamic::written_program& p, value v) {
    const axis_state from = now_.on[static_cast<std::size_t>(draw(static_cast<int>(local_.size())))];
    std::vector<int> axes;
    for (const int a : local_)
      if (now_.on[static_cast<std::size_t>(a)] == from && !is_one_in(3)) axes.push_back(a);
    if (axes.empty()) return v;
    const axis_state to = any_state();
    constexpr transition_kind kinds[] = {transition_kind::convert, transition_kind::all_gather, transition_kind::all_to_all,
                                         transition_kind::all_reduce, transition_kind::reduce_scatter};
    for (const auto by : kinds) {
      if (detail::row_of(by, from.is, to.is) < 0 || (by == transition_kind::all_to_all && from.dim == to.dim)) continue;
      log_ += ' ' + std::string(name_of(by)) + ' ' + names(axes) + ' ' + words(from) + words(to);
      if (from.is == state::shard) is_right_ = lies_right(judged_, axes_of(now_, from.dim), axes, extent(from.dim));
      for (const int a : axes) put(a, to);
      return p.transition(v, by, names(axes), from, to);
    }
    return v;
  }
  /// Returns the states of the value as a result: unchanged, or sometimes with another order of a dim's axes.
  value_states way_out() {
    value_states out = now_;
    if (!is_right_ || !is_one_in(3)) return out;
    const bool has_other = !out.order.empty() && !is_local(out.order.back().first);
    std::shuffle(out.order.begin(), out.order.end() - (has_other ? 1 : 0), random_);
    for (int d = 0; d < 2; ++d) is_right_ = is_right_ && is_same_cut(judged_, axes_of(now_, d), axes_of(out, d), extent(d));
    log_ += is_right_ ? " leaves" : " leaves otherwise";
    return out;
  }
  static std::string words(const axis_state& s) {
    constexpr const char* letters[] = {"C", "R", "I", "V", "S", "P"};
    return letters[static_cast<int>(s.is)] + (s.is == state::shard ? std::to_string(s.dim) : "");
  }

  const axes_of_mesh& mesh_;
  axes_of_mesh judged_;  // an axis of one device is judged like an axis of two, so that the verdict is the same on every mesh
  std::mt19937& random_;
  std::int64_t extent_ = 1;
  std::vector<int> local_;  // the axes of the region
  value_states now_;
  bool is_right_ = true, is_turned_ = false;
  std::string log_;
};

TEST_CASE("chains of collectives in a manual region keep the value and its gradient, or are refused for the order of axes") {
  const axes_of_mesh meshes[] = {
      {{"x", 2}, {"y", 3}}, {{"x", 3}, {"y", 1}}, {{"x", 2}, {"y", 2}, {"z", 2}}, {{"x", 2}, {"y", 1}, {"z", 3}}};
  const char* const more = std::getenv("GSPMD_SEEDS");
  const int count = more != nullptr ? std::atoi(more) : 400;
  for (const auto& mesh : meshes) {
    std::mt19937 random(11);
    int right = 0;
    for (int k = 0; k < count; ++k) {
      CAPTURE(k);
      right += chain(mesh, random).run() ? 1 : 0;
    }
    CHECK(right > count / 2);
    CHECK(right < count);
  }
}

}  // namespace manual_moves
