// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "build.hpp"
#include "strict_on_one.hpp"
#include "strict_opaque.hpp"

namespace plan_tool {

/// Builds an explicit or manual document that was checked and has no mistake. `How` implements the states: on_mesh,
/// on_one_device.
///
/// A manual document is one region over all axes. Its inputs and outputs are whole arrays. The parts of a dim with S(d)
/// are concatenated. Values that vary, and the partial values of an input, are stacked along a new dim 0, by device,
/// row-major over these axes. A partial output is reduced.
template <class How>
class strict_builder {
 public:
  strict_builder(const json& document, strict_document& checked, const gspmd::dynamic::mesh& mesh, error_list& errors)
      : document_(document), checked_(checked), mesh_(mesh), errors_(errors) {}

  std::optional<built_program> build(const gspmd::dynamic::mesh& on) {
    const auto count = errors_.count();
    built_.program.emplace(on);
    if constexpr (std::is_same_v<How, on_one_device>) built_.program->allow_replication();
    how_.emplace(*built_.program, mesh_);
    const path at_ops(root_, "ops");
    const auto* ops = document_.contains("ops") && document_["ops"].is_array() ? &document_["ops"] : nullptr;
    for (const auto& j : document_["inputs"]) read_input(j);
    if (!checked_.answer.is_manual) {
      for (std::size_t k = 0; k < inputs_.size(); ++k)
        define(inputs_[k].name, without_gradient(k, {inputs_[k].is}), static_cast<int>(k));
      if (ops != nullptr) read_ops(*ops, at_ops);
    } else if (errors_.count() == count) {
      read_manual_document(ops, at_ops);
    }
    if (errors_.count() != count) return {};
    read_outputs();
    if (bytes_ > 0x1p61L) errors_.add("", "the values of the program are too large to count what moving them takes in 64 bits");
    if (errors_.count() != count) return {};
    return std::move(built_);
  }

 private:
  struct document_input {
    std::string name;
    value is;
    value_states states;
    bool is_constant = false;
    bool is_stacked = false;
    integer_list shape{};  // in the document
  };
  struct named {
    copies is;
    int number = -1;
  };

  // ---- inputs and outputs ----

  [[nodiscard]] std::int64_t size_of(std::size_t a) const { return mesh_.axes()[a].size; }
  /// Returns the whole array for values with these states: the splits of its dims, and its shape.
  value_states whole(const value_states& s, integer_list& shape, bool stacks_terms, bool& is_stacked) const {
    value_states w{s.on, {}};
    std::int64_t stacked = 1;
    is_stacked = false;
    const auto stacks = [&](const axis_state& on) {
      return on.is == state::varying || (stacks_terms && on.is == state::partial);
    };
    for (std::size_t a = 0; a < s.on.size(); ++a) {
      if (!stacks(s.on[a])) continue;
      is_stacked = true;
      stacked = std::min<std::int64_t>(stacked * size_of(a), std::int64_t{1} << 40);
      w.on[a] = {state::shard, 0, monoid::add};
      w.order.emplace_back(static_cast<int>(a), 0);
    }
    if (is_stacked) shape.insert(shape.begin(), stacked);
    const int behind = is_stacked ? 1 : 0;
    for (std::size_t a = 0; a < s.on.size(); ++a) {
      if (s.on[a].is != state::shard) continue;
      const int dim = s.on[a].dim + behind;
      w.on[a] = {state::shard, static_cast<std::int8_t>(dim), monoid::add};
      w.order.emplace_back(static_cast<int>(a), dim);
      auto& extent = shape[static_cast<std::size_t>(dim)];
      constexpr auto most = std::int64_t{1} << 61;  // a larger shape is refused
      extent = extent > most / size_of(a) ? most : extent * size_of(a);
    }
    return w;
  }
  bool is_countable(const std::string& name, dtype type, const integer_list& shape) {
    auto bytes = static_cast<long double>(gspmd::bytes_of(type));
    for (const auto e : shape) bytes *= static_cast<long double>(e == 0 ? 1 : e);
    if (bytes > 0x1p60L)
      errors_.add("", "the whole of " + in_quotes(name) + ' ' + shape_text(shape) + " has more than 2^60 bytes");
    else if (shape.size() > static_cast<std::size_t>(gspmd::max_rank))
      errors_.add(
          "", "the whole of " + in_quotes(name) + " has more than 32 dims, because varying data is stacked along one more dim");
    else return true;
    return false;
  }
  bool is_partial_by_one(const std::string& name, const value_states& s) {
    std::optional<monoid> kind;
    for (const auto& on : s.on) {
      if (on.is == state::partial && kind && *kind != on.reduced_by)
        return errors_.add("", in_quotes(name) +
                                   " is partial by two functions, and plans reduce by one at a time: reduce it over one of "
                                   "the axes before"),
               false;
      if (on.is == state::partial) kind = on.reduced_by;
    }
    return true;
  }
  void read_input(const json& j) {
    const auto& v = checked_.names.at(j["name"].get<std::string>());
    document_input g{j["name"].get<std::string>(), {}, *checked_.program->states(v.is)};
    const dtype type = v.is.type();
    g.shape = shape_of(v.is);
    const bool has_no_gradient = j.contains("grad") && j["grad"] == false;
    for (const auto& on : g.states.on) g.is_constant = g.is_constant || on.is == state::constant || has_no_gradient;
    auto shape = g.shape;
    if (checked_.answer.is_manual) g.states = whole(g.states, shape, true, g.is_stacked);
    if (!is_countable(g.name, type, shape) || !is_partial_by_one(g.name, g.states)) return;
    g.is = built_.program->input({type, shape, {}, false, {}, monoid::add});
    how_->input(g.is, g.states);
    if (checked_.answer.is_manual) g.states = *checked_.program->states(v.is);
    const int number = add_value(g.name, "input", "", type, shape);
    built_.values.back().is_input = true;
    built_.inputs.push_back(number);
    built_.program->label(number);
    inputs_.push_back(std::move(g));
  }
  copies without_gradient(std::size_t k, copies x) {
    if (!inputs_[k].is_constant || !gspmd::is_floating(x[how_->active()[0]].type())) return x;
    return each([&](std::size_t d) { return gspmd::elementwise("stop_gradient", copies{x[d]}, at(inputs_[k].name)); });
  }
  /// Returns the axes along which a value is in a state, as "x,y".
  [[nodiscard]] std::string axes_in(const value_states& s, const axis_state& is) const {
    std::string axes;
    for (std::size_t a = 0; a < s.on.size(); ++a)
      if (s.on[a] == is) axes += (axes.empty() ? "" : ",") + mesh_.axes()[a].name;
    return axes;
  }
  void read_manual_document(const json* ops, const path& at_ops) {
    op_note note;
    for (const auto& a : checked_.answer.axes) note.axes += (note.axes.empty() ? "" : ",") + a;
    std::vector<copies> wholes;
    bool stacked = false;
    for (const auto& g : inputs_) {
      auto shape = g.shape;
      note.takes.push_back(whole(g.states, shape, true, stacked));
      wholes.push_back({g.is});
    }
    std::vector<std::string> outputs;
    std::vector<integer_list> shapes;
    for (const auto& word : document_["outputs"]) {
      const auto name = word.template get<std::string>();
      if (std::find(outputs.begin(), outputs.end(), name) != outputs.end()) continue;
      outputs.push_back(name);
      const auto v = checked_.names.at(name).is;
      shapes.push_back(shape_of(v));
      note.gives.push_back(whole(*checked_.program->states(v), shapes.back(), false, stacked));
      if (!is_countable(name, v.type(), shapes.back())) return;
      if (!is_partial_by_one(name, note.gives.back())) return;
    }
    const auto results = how_->region(
        note, wholes,
        [&](const std::vector<copies>& inside) {
          for (std::size_t k = 0; k < inside.size(); ++k) {
            const auto& g = inputs_[k];
            auto x = inside[k];
            if (g.is_stacked) x = each([&](std::size_t d) { return gspmd::reshape(x[d], g.shape, at(g.name)); });
            if (const auto axes = axes_in(g.states, {state::varying}); !axes.empty())  // a varying value is no part of any dim
              x = how_->transition(x, {gspmd::transition_kind::reinterpret, axes, {state::varying}, {state::varying}, {}},
                                   at(g.name));
            for (const auto kind : {monoid::add, monoid::multiply, monoid::max, monoid::min, monoid::and_, monoid::or_}) {
              if (const auto axes = axes_in(g.states, {state::partial, 0, kind}); !axes.empty())
                x = how_->transition(
                    x, {gspmd::transition_kind::reinterpret, axes, {state::varying}, {state::partial, 0, kind}, {}}, at(g.name));
            }
            define(g.name, without_gradient(k, std::move(x)), static_cast<int>(k));
          }
          if (ops != nullptr) read_ops(*ops, at_ops);
          std::vector<copies> out;
          for (std::size_t k = 0; k < outputs.size() && errors_.empty(); ++k) {
            const auto& x = names_.at(outputs[k]).is;
            const bool is_stacked = shapes[k].size() != static_cast<std::size_t>(x[how_->active()[0]].rank());
            if (!is_stacked) out.push_back(how_->same(x, at(outputs[k])));
            else
              out.push_back(each([&](std::size_t d) {
                auto shape = shape_of(x[d]);
                shape.insert(shape.begin(), 1);
                return gspmd::reshape(x[d], shape, at(outputs[k]));
              }));
            built_.program->label(names_.at(outputs[k]).number);
          }
          return out;
        },
        at("outputs"));
    if (!errors_.empty() || !take_mistake({root_, "outputs"})) return;
    built_.program->label(0);  // all nodes without a label; each result now has its own label
    for (std::size_t k = 0; k < results.size(); ++k) {
      auto& n = names_.at(outputs[k]);
      if (built_.values[static_cast<std::size_t>(n.number)].is_input)
        n.number = add_value(outputs[k] + ".out", "output", "", results[k][0].type(), {});
      n.is = results[k];
      built_.values[static_cast<std::size_t>(n.number)].shape = shape_of(results[k][0]);
      built_.program->label(results[k][0], n.number);
    }
  }
  void read_outputs() {
    const path at_outputs(root_, "outputs");
    for (const auto& word : document_["outputs"]) {
      const auto& n = names_.at(word.template get<std::string>());
      if (std::find(built_.outputs.begin(), built_.outputs.end(), n.number) != built_.outputs.end()) continue;
      built_.outputs.push_back(n.number);
      how_->output(n.is[0], at(word.template get_ref<const std::string&>()));
      built_.program->label(n.number);
    }
    if (built_.outputs.empty()) errors_.add("outputs", "is empty; nothing would be computed");
    take_mistake(at_outputs);
  }

  // ---- values ----

  [[nodiscard]] gspmd::location at(const std::string& name) {
    built_.names.push_back(name);
    return {built_.names.back().c_str(), 0};
  }
  template <class F>
  copies each(F f) {
    copies made(how_->count());
    for (const auto k : how_->active()) made[k] = f(k);
    return made;
  }
  [[nodiscard]] value first(const copies& x) const { return x[how_->active()[0]]; }
  int add_value(const std::string& name, std::string op, std::string kind, dtype type, integer_list shape) {
    built_.values.push_back({region_ + name, std::move(op), std::move(kind), type, {}, false});
    count_value(static_cast<int>(built_.values.size()) - 1, type, std::move(shape));
    if (built_.program->graph().nodes.size() > most_values * 4)
      errors_.add("", "the program is longer than " + std::to_string(most_values) + " values");
    return static_cast<int>(built_.values.size()) - 1;
  }
  void count_value(int number, dtype type, integer_list shape) {
    auto size = 64 * static_cast<long double>(gspmd::bytes_of(type)) * static_cast<long double>(mesh_.device_count());
    for (const auto e : shape) size *= static_cast<long double>(e == 0 ? 1 : e);
    bytes_ += size * times_;
    built_.values[static_cast<std::size_t>(number)].type = type;
    built_.values[static_cast<std::size_t>(number)].shape = std::move(shape);
  }
  /// Adds another name for an existing value: the name of a region's input, or of an input of the document.
  void define(const std::string& name, copies is, int number = -1) {
    if (number < 0) number = std::max(first(is).node().tag, 0);
    built_.program->label(number);
    names_[name] = {std::move(is), number};
  }
  /// Adds a value that was built last. `number`: its number, if it was numbered before it was built.
  void keep(const std::string& name, copies is, const std::string& op, const std::string& kind, int number = -1) {
    const value v = first(is);
    if (number < 0) number = add_value(name, op, kind, v.type(), shape_of(v));
    else count_value(number, v.type(), shape_of(v));
    built_.program->label(number);
    for (const auto k : how_->active()) built_.program->label(is[k], number);
    names_[name] = {std::move(is), number};
  }
  bool take_mistake(const path& where) {
    const auto mistake = built_.program->take_mistake();
    if (!mistake.empty()) errors_.add(where.str(), mistake);
    return mistake.empty();
  }

  // ---- ops ----

  void read_ops(const json& ops, const path& where) {
    for (std::size_t i = 0; i < ops.size() && errors_.empty(); ++i) read_op(ops[i], path(where, i));
  }
  void read_op(const json& j, const path& where) {
    const auto name = j["name"].get<std::string>(), op = j["op"].get<std::string>();
    std::vector<copies> operands;
    if (j.contains("operands") && j["operands"].is_array())
      for (const auto& word : j["operands"]) operands.push_back(names_.at(word.template get<std::string>()).is);
    static const json nothing = json::object();
    const auto& given = j.contains("attrs") && j["attrs"].is_object() ? j["attrs"] : nothing;
    if (op == "loop" || op == "cond" || op == "manual") {
      if (depth_ == most_depth)
        return errors_.add(where.str(), "is in " + std::to_string(most_depth) + " bodies, and no deeper one is planned");
      const auto count = op == "loop" ? operands.size() : (op == "cond" ? j["branches"][0] : j["body"])["outputs"].size();
      std::vector<int> numbers;
      for (std::size_t k = 0; k < count; ++k)
        numbers.push_back(add_value(result_name(name, k, count), op, "", first(operands[0]).type(), {}));
      if (count == 0) return errors_.add(where.str(), "gives nothing");
      built_.program->label(numbers[0]);
      const auto outside = std::exchange(region_number_, numbers[0]);
      const auto results = op == "loop"   ? read_loop(name, j, given, operands, where)
                           : op == "cond" ? read_cond(name, j, operands, where)
                                          : read_manual(name, j, operands, where);
      region_number_ = outside;
      if (!take_mistake(where) || !errors_.empty()) return;
      for (std::size_t k = 0; k < results.size(); ++k) keep(result_name(name, k, count), results[k], op, "", numbers[k]);
      return;
    }
    const auto found = checked_.notes.find(&j);
    static const op_note no_note;
    const op_note& note = found == checked_.notes.end() ? no_note : found->second;
    std::vector<std::vector<std::pair<std::string, value>>> further(how_->count());
    copies made;
    how_->exchanging(note.exchange, operands,
                     [&](const std::vector<copies>& of) { made = build(op, name, of, given, note, further, where); });
    if (!take_mistake(where) || !errors_.empty()) return;
    if (!note.varies.empty())
      made = how_->transition(made, {gspmd::transition_kind::reinterpret, note.varies, {state::replica}, {state::varying}, {}},
                              at(name));
    if (note.out) made = how_->bring(made, *note.out, at(name));
    if (!take_mistake(where)) return;
    const auto text = [&](const char* key) {
      const auto word = given.find(key);
      return word != given.end() && word->is_string() ? word->template get<std::string>() : std::string();
    };
    keep(name, made, op, op == "compare" ? text("direction") : op == "reduce" ? text("kind") : text("verb"));
    const auto& also = further[how_->active()[0]];
    for (std::size_t k = 0; k < also.size(); ++k)
      keep(name + also[k].first, each([&](std::size_t d) { return further[d][k].second; }), op, "");
  }
  copies build(const std::string& op, const std::string& name, const std::vector<copies>& operands, const json& given,
               const op_note& note, std::vector<std::vector<std::pair<std::string, value>>>& further, const path& where) {
    const auto here = at(name);
    const path at_attrs(where, "attrs");
    if (op == "transition") return how_->transition(operands[0], note.transition, here);
    if (op == "axis_index") return how_->axis_index(given["axis"].template get<std::string>(), here);
    if (op == "reshard") return how_->same(operands[0], here);
    return each([&](std::size_t k) {
      std::vector<value> of;
      for (const auto& o : operands) of.push_back(o[k]);
      object_reader attrs(given, at_attrs, errors_);
      if (op == "detach") return gspmd::elementwise("stop_gradient", of, here);
      if (op == "opaque") return build_opaque(*built_.program, attrs, of, here);
      operation o{*built_.program, of, attrs, here, op};
      o.further = &further[k];
      return build_operator(o, where);
    });
  }

  // ---- regions ----

  /// Returns the results of a region for these arguments. The region can read only these. Its own values are called
  /// NAME/own.
  std::vector<copies> read_region(const json& region, const std::vector<copies>& arguments, const std::string& called,
                                  const path& where) {
    auto outside = std::exchange(names_, {});
    const auto outer_region = std::exchange(region_, region_ + called);
    ++depth_;
    built_.program->label(region_number_);
    for (std::size_t k = 0; k < arguments.size(); ++k) define(region["inputs"][k].template get<std::string>(), arguments[k]);
    if (region.contains("ops") && region["ops"].is_array()) read_ops(region["ops"], path(where, "ops"));
    std::vector<copies> results;
    if (errors_.empty())
      for (const auto& word : region["outputs"]) results.push_back(names_.at(word.template get<std::string>()).is);
    --depth_;
    built_.program->label(region_number_);
    region_ = outer_region;
    names_ = std::move(outside);
    return results;
  }
  /// Returns all values of the active devices in one list.
  [[nodiscard]] std::vector<value> flat(const std::vector<copies>& list) const {
    std::vector<value> values;
    for (const auto& x : list)
      for (const auto k : how_->active()) values.push_back(x[k]);
    return values;
  }
  [[nodiscard]] std::vector<copies> unflat(const std::vector<value>& values) const {
    std::vector<copies> list;
    const auto& devices = how_->active();
    for (std::size_t i = 0; i < values.size(); i += devices.size()) {
      list.emplace_back(how_->count());
      for (std::size_t k = 0; k < devices.size(); ++k) list.back()[devices[k]] = values[i + k];
    }
    return list;
  }
  /// Calls f for each group of devices that take the same branches, one group after another, and combines the results.
  template <class F>
  std::vector<copies> by_groups(const std::string& parting, F f) {
    const auto all = how_->active();
    for (const auto& axis : names_in(parting)) built_.devices_part = built_.devices_part || mesh_.size_of(axis) > 1;
    std::vector<copies> results;
    for (const auto& group : how_->groups(parting)) {
      how_->go(group);
      const auto own = unflat(f());
      if (!errors_.empty()) break;
      if (results.empty()) results = own;
      for (std::size_t r = 0; r < own.size(); ++r)
        for (const auto k : group) results[r][k] = own[r][k];
    }
    how_->go(all);
    return results;
  }

  std::vector<copies> read_loop(const std::string& name, const json& j, const json& given, const std::vector<copies>& operands,
                                const path& where) {
    const auto here = at(name);
    const auto* condition = j.contains("while") && !j["while"].is_null() ? &j["while"] : nullptr;
    if (operands.empty()) return errors_.add(where.str(), "carries nothing"), std::vector<copies>{};
    if (operands.size() > most_carried) return errors_.add(where.str(), "carries too many values"), std::vector<copies>{};
    using values = std::vector<value>;
    const auto run = [&](const values& now) {
      const auto next = read_region(j["body"], unflat(now), name + '/', path(where, "body"));
      return errors_.empty() ? flat(next) : now;
    };
    if (condition == nullptr) {
      const auto trips = given["trips"].template get<std::int64_t>();
      const auto outside = times_;
      times_ *= static_cast<long double>(std::max<std::int64_t>(trips, 1));
      auto results = by_groups("", [&] {
        return gspmd::fori_loop(
            {trips, here}, [&](value, const values& now) { return run(now); }, flat(operands));
      });
      times_ = outside;
      return results;
    }
    return by_groups(checked_.notes[condition].axes, [&] {
      return gspmd::while_loop(
          [&](const values& now) {
            const auto asked = read_region(*condition, unflat(now), name + "/while/", path(where, "while"));
            return errors_.empty() ? first(asked[0]) : now[0];
          },
          run, flat(operands), here);
    });
  }
  std::vector<copies> read_cond(const std::string& name, const json& j, const std::vector<copies>& operands, const path& where) {
    const auto here = at(name);
    const auto& branches = j["branches"];
    if (first(operands[0]).type() == dtype::pred && branches.size() != 2)
      return errors_.add(path(where, "branches").str(),
                         "has " + std::to_string(branches.size()) + " regions; a pred chooses one of 2"),
             std::vector<copies>{};
    const std::vector<copies> arguments(operands.begin() + 1, operands.end());
    using values = std::vector<value>;
    return by_groups(checked_.notes[&branches].axes, [&] {
      const value choice = first(operands[0]);
      const auto branch = [&](std::size_t b, const values& now) {
        const auto made =
            read_region(branches[b], unflat(now), name + '/' + std::to_string(b) + '/', path(path(where, "branches"), b));
        return errors_.empty() ? flat(made) : values{};
      };
      const auto one_of = [&](const auto& self, std::size_t b, const values& now) -> values {
        if (b + 1 == branches.size()) return branch(b, now);
        const value is_it =
            choice.type() == dtype::pred
                ? choice
                : gspmd::elementwise("compare_le",
                                     values{choice, built_.program->constant(choice.type(), {}, static_cast<double>(b), here)},
                                     here);
        return gspmd::cond(
            {is_it, here}, [&](const values& n) { return branch(b, n); }, [&](const values& n) { return self(self, b + 1, n); },
            now);
      };
      values results = one_of(one_of, 0, flat(arguments));
      if (branches.size() == 1 && errors_.empty())  // it may return its operand; the result must be a separate value
        results = flat([&] {
          auto own = unflat(results);
          for (auto& x : own) x = how_->same(x, here);
          return own;
        }());
      return results;
    });
  }
  std::vector<copies> read_manual(const std::string& name, const json& j, const std::vector<copies>& operands,
                                  const path& where) {
    const auto& note = checked_.notes[&j["body"]];
    if (operands.empty()) return errors_.add(where.str(), "takes no operand"), std::vector<copies>{};
    return how_->region(
        note, operands,
        [&](std::vector<copies> inside) {
          for (std::size_t k = 0; k < inside.size(); ++k) {  // at the border, a constant value becomes invariant
            bool is_constant = false;
            for (const auto& axis : names_in(note.axes))
              is_constant =
                  is_constant || note.takes[k].on[static_cast<std::size_t>(checked_.number_of(axis))].is == state::constant;
            if (!is_constant || !gspmd::is_floating(first(inside[k]).type())) continue;
            const int number = std::max(first(inside[k]).node().tag, 0);
            inside[k] = each([&](std::size_t d) { return gspmd::elementwise("stop_gradient", copies{inside[k][d]}, at(name)); });
            built_.program->label(number);
          }
          return read_region(j["body"], inside, name + '/', path(where, "body"));
        },
        at(name));
  }

  const json& document_;
  strict_document& checked_;
  const gspmd::dynamic::mesh mesh_;  // of the document
  error_list& errors_;
  const path root_;
  built_program built_;
  std::optional<How> how_;
  std::vector<document_input> inputs_;
  std::map<std::string, named> names_;
  std::string region_;  // the prefix of its values' names
  int depth_ = 0;
  int region_number_ = 0;  // of the first result of the enclosing region
  long double bytes_ = 0, times_ = 1;
};

}  // namespace plan_tool
