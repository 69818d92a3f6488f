// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gspmd/xla_sharding.hpp"
#include "operators.hpp"

/// From a document to a graph, on its mesh or on one device.
namespace plan_tool {

/// What the document calls a value.
struct named_value {
  std::string name;
  std::string op;    // `input` for an input
  std::string kind;  // reduce: its monoid; compare: its direction
  int node = -1;     // in the canonical graph, of an op the last one that bears the name; -1: no output needs it
  dtype type = dtype::f32;
  ir::extents shape;
  bool is_input = false;
};

/// A document as the planner takes it. A value's number is the tag of its nodes.
struct built_program {
  std::optional<gspmd::dynamic::mesh> mesh;
  ir::graph graph;                 // canonical
  std::deque<named_value> values;  // a deque: nodes point to the names
  std::vector<int> inputs;         // values
  std::vector<int> outputs;        // values

  built_program() = default;
  built_program(built_program&&) = default;
  built_program& operator=(built_program&&) = default;
  [[nodiscard]] const ir::mesh_info& mesh_info() const { return mesh->info(); }
};

enum class devices { of_mesh, one };

/// Limits that keep the planner's numbers in their types (registers of a fused loop are counted in 16 bits) and its time short.
inline constexpr std::size_t most_values = 8000;

class program_builder {
 public:
  program_builder(const json& document, devices on, error_list& errors) : document_(document), on_(on), errors_(errors) {}

  /// Empty if anything is wrong; `errors` says what, all of it that can be found at once.
  std::optional<built_program> build() {
    object_reader top(document_, root_, errors_);
    if (!top.is_object()) return {};
    if (const auto* j = top.require("mesh", "an object with `axes`")) read_mesh(*j, path(root_, "mesh"));
    const auto* inputs = list(top, "inputs", true);
    const auto* ops = list(top, "ops", false);
    const auto* outputs = list(top, "outputs", true);
    top.refuse_unknown();
    if (!built_.mesh) return {};  // no annotation can be read without it
    traced_.mesh = &built_.mesh->info();
    const std::size_t count = (inputs != nullptr ? inputs->size() : 0) + (ops != nullptr ? ops->size() : 0);
    if (count > most_values) {
      errors_.add("", "the program has " + std::to_string(count) + " values; at most " + std::to_string(most_values));
      return {};
    }
    if (ops != nullptr) note_names(*ops);
    if (inputs != nullptr) {
      const path at(root_, "inputs");
      for (std::size_t i = 0; i < inputs->size(); ++i) read_input((*inputs)[i], path(at, i));
    }
    if (ops != nullptr) {
      const path at(root_, "ops");
      for (std::size_t i = 0; i < ops->size(); ++i) read_op((*ops)[i], path(at, i));
    }
    if (outputs != nullptr) read_outputs(*outputs, path(root_, "outputs"));
    if (errors_.empty()) share_annotations();
    if (errors_.empty() && counted_bytes_ > 0x1p61L)
      errors_.add("", "the values of the program are too large to count what moving them takes in 64 bits");
    if (!errors_.empty()) return {};
    built_.graph = ir::canonical_order(traced_);
    for (std::size_t i = 0; i < built_.graph.nodes.size(); ++i) {
      auto& v = built_.values[static_cast<std::size_t>(built_.graph.nodes[i].tag)];
      if (!v.is_input || v.node < 0) v.node = static_cast<int>(i);  // not what ties an input to others of its group
    }
    if (!groups_.empty()) check_shard_as();
    if (!errors_.empty()) return {};
    return std::move(built_);
  }

 private:
  const json* list(object_reader& top, std::string_view key, bool is_required) {
    const auto* j = is_required ? top.require(key, "a list") : top.find(key);
    if (j == nullptr || j->is_array()) return j;
    errors_.add(std::string(key), "is " + found(*j) + ", not a list");
    return nullptr;
  }

  // ---- the mesh ----

  void read_mesh(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    const auto before = errors_.count();
    std::vector<gspmd::dynamic::mesh::axis> axes;
    std::int64_t count = 1;
    if (const auto* list = reader.require("axes", "a list like [[\"x\", 2], [\"y\", 4]]")) {
      const path at_axes(at, "axes");
      if (!list->is_array()) errors_.add(at_axes.str(), "is " + found(*list) + ", not a list");
      else if (list->size() > static_cast<std::size_t>(ir::max_axes))
        errors_.add(at_axes.str(), "has " + std::to_string(list->size()) + " axes; at most 16");
      else
        for (std::size_t i = 0; i < list->size(); ++i) read_axis((*list)[i], path(at_axes, i), axes, count);
    }
    std::vector<std::int32_t> order;
    if (const auto* ids = reader.find("device_order"); ids != nullptr && errors_.count() == before)
      read_order(*ids, path(at, "device_order"), count, order);
    reader.refuse_unknown();
    if (errors_.count() != before) return;
    device_count_ = count;
    try {
      annotated_mesh_.emplace(axes, order);
      cut_axes();
      if (on_ == devices::one) built_.mesh = annotated_mesh_->with_one_device();
      else built_.mesh = annotated_mesh_;
    } catch (const gspmd::error& e) {
      errors_.add(at.str(), e.text());
    }
  }

  /// Sub-axes that annotations name become axes of the mesh. What is wrong with them is said where they stand.
  void cut_axes() {
    std::map<std::string, std::set<std::int64_t>> ends;  // by axis: where parts begin and end, from the major side
    const auto note = [&](const std::string& name) {
      const auto part = ir::sub_axis::of(name);
      const int axis = annotated_mesh_->info().find(part.base);
      if (part.size < 1 || axis < 0) return;
      const std::int64_t size = annotated_mesh_->info().shape.sizes[axis];
      if (part.before < 1 || part.before > size || part.size > size / part.before || size % (part.before * part.size) != 0)
        return;
      for (const auto end : {part.before, part.before * part.size})
        if (end > 1 && end < size) ends[std::string(part.base)].insert(end);
    };
    for (const char* list : {"inputs", "ops"}) {
      const auto found = document_.find(list);
      if (found == document_.end() || !found->is_array()) continue;
      for (const auto& item : *found) {
        if (!item.is_object()) continue;
        if (const auto s = item.find("sharding"); s != item.end() && s->is_array())
          for (const auto& dim : *s)
            if (dim.is_array())
              for (const auto& axis : dim)
                if (axis.is_string()) note(axis.get_ref<const std::string&>());
        if (const auto p = item.find("partial"); p != item.end() && p->is_object())
          for (const auto& [name, value] : p->items()) note(name);
      }
    }
    for (const auto& [name, list] : ends) {
      std::int64_t before = 1;
      int axis = annotated_mesh_->info().find(name);
      for (const auto end : list) {
        if (end % before != 0) break;  // overlaps the one before
        const ir::axis_cut cut{axis, static_cast<std::int32_t>(end / before)};
        if (!ir::can_cut(annotated_mesh_->info(), cut)) break;
        annotated_mesh_ = annotated_mesh_->with_cut(cut);
        before = end;
        ++axis;
      }
    }
  }

  void read_axis(const json& j, const path& at, std::vector<gspmd::dynamic::mesh::axis>& axes, std::int64_t& count) {
    constexpr std::int64_t most_devices = std::int64_t{1} << 30;
    if (!j.is_array() || j.size() != 2)
      return errors_.add(at.str(), "is " + found(j) + ", not a name and a size like [\"x\", 2]");
    if (!j[0].is_string()) return errors_.add(path(at, std::size_t{0}).str(), "is " + found(j[0]) + ", not a name");
    const auto& name = j[0].get_ref<const std::string&>();
    const auto size = read_integer(j[1], path(at, std::size_t{1}), errors_, 1, most_devices);
    if (name.size() > ir::max_name || !ir::is_axis_name(name))
      return errors_.add(path(at, std::size_t{0}).str(),
                         "the axis name " + in_quotes(name) + " must have 1 to 31 letters, digits and _");
    for (const auto& a : axes)
      if (a.name == name) return errors_.add(path(at, std::size_t{0}).str(), "a second axis is called " + in_quotes(name));
    if (!size) return;
    if (*size > most_devices / count) return errors_.add(path(at, std::size_t{1}).str(), "the mesh has more than 2^30 devices");
    count *= *size;
    axes.push_back({name, *size});
  }

  void read_order(const json& j, const path& at, std::int64_t count, std::vector<std::int32_t>& order) {
    const auto ids = read_integers(j, at, errors_, 0, count - 1, static_cast<std::size_t>(count));
    if (!ids) return;
    if (static_cast<std::int64_t>(ids->size()) != count)
      return errors_.add(at.str(),
                         "names " + std::to_string(ids->size()) + " devices and the axes have " + std::to_string(count));
    std::vector<bool> seen(ids->size(), false);
    for (std::size_t i = 0; i < ids->size(); ++i) {
      const auto id = static_cast<std::size_t>((*ids)[i]);
      if (seen[id]) return errors_.add(path(at, i).str(), "names device " + std::to_string(id) + " a second time");
      seen[id] = true;
      order.push_back(static_cast<std::int32_t>(id));
    }
  }

  // ---- annotations ----

  /// What stands under `sharding`, `open` and `partial`; nothing where there is no `sharding`.
  std::optional<ir::sharding> read_annotation(object_reader& from, int rank, bool is_input, dtype type) {
    const auto* given = from.find("sharding");
    const auto* open = from.find("open");
    const auto* partial = from.find("partial");
    const path at(from.at(), "sharding");
    ir::sharding s;
    ir::axis_mask used = 0;
    group_.reset();
    if (given != nullptr) {
      if (given->is_string()) {
        if (!read_xla(given->get_ref<const std::string&>(), at, rank, is_input, type, given, s)) return {};
        used = s.split_axes() | s.partial;
      } else if (!given->is_array()) return refuse(at, "is " + found(*given) + ", not a list with the axes of each dim");
      else if (rank >= 0 && given->size() != static_cast<std::size_t>(rank))
        return refuse(at, "names " + std::to_string(given->size()) + (given->size() == 1 ? " dim" : " dims") +
                              " and the tensor has " + std::to_string(rank) +
                              "; write one list for each dim, [] for a dim that is not split");
      else if (given->size() > static_cast<std::size_t>(ir::max_rank)) return refuse(at, "a tensor has at most 32 dims");
      for (std::size_t d = 0; given != nullptr && given->is_array() && d < given->size(); ++d) {
        const path at_dim(at, d);
        if (!(*given)[d].is_array()) return refuse(at_dim, "is " + found((*given)[d]) + ", not a list of axes; [] is not split");
        for (std::size_t i = 0; i < (*given)[d].size(); ++i) {
          const auto axes = read_axis_name((*given)[d][i], path(at_dim, i), used);
          if (axes.count == 0) return {};
          for (const auto a : axes) s.add_split(a, static_cast<int>(d));
        }
      }
    }
    if (open != nullptr) {
      const path at_open(from.at(), "open");
      if (!open->is_array() || (rank >= 0 && open->size() != static_cast<std::size_t>(rank)) ||
          open->size() > static_cast<std::size_t>(ir::max_rank))
        return refuse(at_open, "is no list with true or false for each of the " + std::to_string(rank) + " dims");
      for (std::size_t d = 0; d < open->size(); ++d) {
        if (!(*open)[d].is_boolean()) return refuse(path(at_open, d), "is " + found((*open)[d]) + ", not true or false");
        if ((*open)[d].get<bool>()) s.open |= ir::dim_bit(static_cast<int>(d));
        else if (given == nullptr) return refuse(path(at_open, d), "is false without a `sharding` that could be closed");
      }
    }
    if (partial != nullptr && !(partial->is_object() && partial->empty())) {
      const path at_partial(from.at(), "partial");
      if (!is_input)
        return refuse(
            at_partial,
            "`partial` stands on an input, and on nothing else yet; the planner makes other values partial where that pays");
      if (given == nullptr) return refuse(at_partial, "needs a `sharding` next to it; [] for every dim that is not split");
      if (!read_partial(*partial, at_partial, type, used, s)) return {};
    }
    if (given == nullptr) return {};
    return s;
  }

  std::optional<ir::sharding> refuse(const path& at, const std::string& what) {
    errors_.add(at.str(), what);
    return {};
  }

  /// XLA's textual sharding; `{unknown}` leaves nothing given.
  bool read_xla(const std::string& words, const path& at, int rank, bool is_input, dtype type, const json*& given,
                ir::sharding& s) {
    try {
      const auto parsed = gspmd::xla_sharding::parse(words);
      if (!count_listed(parsed.tiles(), at)) return false;
      const auto on = parsed.on(annotated_mesh_->info(), rank);
      if (on.manual != 0)
        refuse(at, "is manual along " + std::string(ir::axes_text(annotated_mesh_->info(), on.manual).view()) +
                       "; a value of a program in the global view is not");
      else if (on.value.partial != 0 && !is_input)
        refuse(at, "is unreduced; that stands on an input only, the planner makes other values partial where that pays");
      else if (on.value.partial != 0 && !ir::is_defined(gspmd::monoid::add, type))
        refuse(at, std::string("is unreduced, and add is not defined for ") + ir::name_of(type));
      else {
        s = on.value;
        if (!on.annotated) given = nullptr;
        if (parsed.tiles().shard_group >= 0) group_ = {parsed.tiles().is_shard_like, parsed.tiles().shard_group};
        return true;
      }
    } catch (const gspmd::error& e) {
      errors_.add(at.str(), e.text());
    }
    return false;
  }

  /// Adds up the devices of the lists that must be gone through one by one, which a short text can make long.
  bool count_listed(const ir::xla_tiles& x, const path& at) {
    constexpr std::int64_t most = std::int64_t{1} << 22;
    const auto& mesh = annotated_mesh_->info().shape;
    if (x.kind != ir::xla_kind::tiled || x.device_count() != mesh.device_count()) return true;
    if (mesh.position == nullptr && !x.iota.empty())
      if (auto factors = ir::factors_of_iota(x); ir::cut_at_dims(factors, x.dims)) return true;
    listed_devices_ += x.device_count();
    if (listed_devices_ <= most) return true;
    errors_.add(at.str(), "the device lists up to here name more than 2^22 devices, other than as a product of axes");
    return false;
  }

  // ---- shard groups ----

  /// `shard_as 1` and `shard_like 1` are two groups, as in XLA (ProcessShardingInstruction in xla/service/sharding_propagation.cc
  /// keeps a map of each). A group becomes shard_alikes between its first value and each of the others, so that completion gives
  /// what one of them gets to all. Values of shard_as end with one sharding, or the document is refused; values of shard_like
  /// keep what they say themselves, which is why their shard_alike says it once more.
  struct shard_group {
    bool is_like = false;
    std::int64_t id = -1;
    friend auto operator<=>(const shard_group&, const shard_group&) = default;
    [[nodiscard]] std::string text() const { return (is_like ? "shard_like " : "shard_as ") + std::to_string(id); }
  };
  struct group_member {
    std::string at;          // where its sharding stands
    int number = -1;         // its value
    int node = -1;           // as traced, of its own sharding
    bool annotated = false;  // false: it is `{unknown shard_as 1}`
  };

  /// Ties a value to the first one of its group. Returns the node that now bears the value.
  int join_group(const path& up, int number, int id, bool annotated) {
    if (!group_) return id;
    auto& members = groups_[*group_];
    group_member m{path(up, "sharding").str(), number, id, annotated};
    if (!members.empty()) {
      const auto& first = members.front();
      const auto& own = traced_.nodes[static_cast<std::size_t>(id)];
      const auto& other = traced_.nodes[static_cast<std::size_t>(first.node)];
      if (!(own.shape == other.shape)) {
        errors_.add(m.at, "is of " + group_->text() + " and the tensor is " + std::string(ir::shape_text(own.shape).view()) +
                              "; the first of the group, " +
                              in_quotes(built_.values[static_cast<std::size_t>(first.number)].name) + ", is " +
                              std::string(ir::shape_text(other.shape).view()) + ", and all of a group have one shape");
        return id;
      }
      const auto said = own.annotation;
      id = ir::add_shard_alike(traced_, id, first.node, own.at);
      auto& n = traced_.nodes[static_cast<std::size_t>(id)];
      n.tag = number;
      n.annotated = annotated;  // else it would have what the others have
      n.annotation = said;
      n.annotation.partial = 0;
      count_bytes(n, up);
    }
    members.push_back(std::move(m));
    return id;
  }
  /// What one value of shard_as says itself, those that say nothing say too: `{replicated}` is no split that completion could pass.
  void share_annotations() {
    for (const auto& [group, members] : groups_) {
      if (group.is_like) continue;
      const auto speaker = std::find_if(members.begin(), members.end(), [](const auto& m) { return m.annotated; });
      if (speaker == members.end()) continue;
      ir::sharding said = traced_.nodes[static_cast<std::size_t>(speaker->node)].annotation;
      said.partial = 0;
      const int first = members.front().node;
      const auto say = [&](ir::node& n) {
        n.annotated = true;
        n.annotation = said;
      };
      for (const auto& m : members)
        if (!m.annotated) say(traced_.nodes[static_cast<std::size_t>(m.node)]);
      for (auto& n : traced_.nodes)
        if (n.op == ir::code_of<ir::shard_alike_op> && n.operands[1] == first && !n.annotated) say(n);
    }
  }
  /// Refuses values of shard_as that say different things themselves. An input that no output needs gets what the others have.
  void check_shard_as() {
    auto& g = built_.graph;
    const auto completed = ir::complete_graph(g, built_.mesh->info().shape);
    for (const auto& [group, members] : groups_) {
      if (group.is_like) continue;
      const group_member* first = nullptr;
      for (const auto& m : members) {
        const int id = built_.values[static_cast<std::size_t>(m.number)].node;
        if (id < 0) continue;  // nothing needs it
        auto& n = g.nodes[static_cast<std::size_t>(id)];
        const auto& own = completed[static_cast<std::size_t>(n.op == ir::code_of<ir::shard_alike_op> ? n.operands[0] : id)];
        if (first == nullptr) {
          first = &m;
          continue;
        }
        const int other_id = built_.values[static_cast<std::size_t>(first->number)].node;
        const auto& other = completed[static_cast<std::size_t>(other_id)];
        if (own.splits == other.splits) continue;
        if (n.op == ir::opcode::parameter && !n.annotated) {
          n.annotated = true;
          n.annotation = other;
          continue;
        }
        const auto words = [&](const ir::sharding& s) {
          return std::string(ir::sharding_text(built_.mesh->info(), s, n.shape.count).view());
        };
        errors_.add(m.at, "is of " + group.text() + " and becomes " + words(own) + "; the first of the group, " +
                              in_quotes(built_.values[static_cast<std::size_t>(first->number)].name) + ", becomes " +
                              words(other) + ". All of shard_as have one sharding: write it at one of them and `{unknown " +
                              group.text() + "}` at the others, or use shard_like");
      }
    }
  }

  ir::axis_list read_axis_name(const json& j, const path& at, ir::axis_mask& used) {
    if (!j.is_string()) {
      errors_.add(at.str(), "is " + found(j) + ", not the name of an axis");
      return {};
    }
    return axis_named(j.get_ref<const std::string&>(), at, used);
  }
  /// The axes of the mesh that a name means: more than one where others name parts of it.
  ir::axis_list axis_named(const std::string& name, const path& at, ir::axis_mask& used) {
    const auto& mesh = annotated_mesh_->info();
    const auto axes = mesh.find_run(name);
    const auto part = ir::sub_axis::of(name);
    if (axes.count == 0 && part.size > 0 && mesh.find_run(part.base).count > 0) {
      std::int64_t size = 1;
      for (int a = 0; a < mesh.shape.axis_count(); ++a)
        if (mesh.base_name(a) == part.base) size *= mesh.shape.sizes[a];
      const bool divides =
          part.before >= 1 && part.before <= size && part.size <= size / part.before && size % (part.before * part.size) == 0;
      errors_.add(at.str(), divides
                                ? "the sub-axis " + in_quotes(name) +
                                      " overlaps another one of its axis, is one of too many, or "
                                      "its axis has too long a name"
                                : "the axis " + in_quotes(std::string(part.base)) + " has " + std::to_string(size) +
                                      " devices and no part " + in_quotes(name) + "; in NAME:(m)n, m times n divides the size");
    } else if (axes.count == 0) {
      errors_.add(at.str(),
                  in_quotes(name) + " is not an axis of the mesh; its axes are: " + std::string(ir::names_text(mesh).view()));
    } else {
      const auto mask = mesh.mask_of(name);
      if ((used & mask) == 0) {
        used |= mask;
        return axes;
      }
      errors_.add(at.str(), "the axis " + in_quotes(name) + " is used twice; a mesh axis splits one dim at most");
    }
    return {};
  }

  bool read_partial(const json& j, const path& at, dtype type, ir::axis_mask& used, ir::sharding& s) {
    if (!j.is_object()) {
      errors_.add(at.str(), "is " + found(j) + ", not an object from axis to monoid");
      return false;
    }
    for (const auto& [name, value] : j.items()) {
      const path at_axis(at, name);
      const auto axes = axis_named(name, at_axis, used);
      const auto kind = read_monoid(value, at_axis, errors_);
      if (axes.count == 0 || !kind) return false;
      if (s.partial != 0 && s.kind != *kind) {
        errors_.add(at_axis.str(), "all axes over which a value is partial have one monoid");
        return false;
      }
      if (!ir::is_defined(*kind, type)) {
        errors_.add(at_axis.str(), std::string(ir::name_of(*kind)) + " is not defined for " + ir::name_of(type));
        return false;
      }
      for (const auto a : axes) s.partial |= ir::axis_bit(a);
      s.kind = *kind;
    }
    return true;
  }

  // ---- values ----

  /// Where ops are defined, so that a use before the definition can be told from a name that is nowhere.
  void note_names(const json& ops) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (ops[i].is_object() && ops[i].contains("name") && ops[i]["name"].is_string())
        later_.emplace(ops[i]["name"].get<std::string>(), i);
  }

  /// The number of a new value, -1 if its name is none.
  int define(const std::optional<std::string>& name, const path& at) {
    if (!name) return -1;
    const path at_name(at, "name");
    if (name->empty() || name->size() > 255 || has_command(*name)) {
      errors_.add(at_name.str(), in_quotes(*name) + " cannot be a name: 1 to 255 bytes without control characters");
      return -1;
    }
    const auto number = static_cast<int>(built_.values.size());
    if (!numbers_.emplace(*name, number).second) {
      errors_.add(at_name.str(), "a second value is called " + in_quotes(*name));
      return -1;
    }
    built_.values.push_back({});
    built_.values.back().name = *name;
    nodes_.push_back(-1);
    return number;
  }

  /// Notes what a value is and that it was built without a mistake.
  void keep(int number, int id) {
    const auto& n = traced_.nodes[static_cast<std::size_t>(id)];
    auto& v = built_.values[static_cast<std::size_t>(number)];
    v.type = n.type;
    v.shape = n.shape;
    nodes_[static_cast<std::size_t>(number)] = id;
  }

  void read_input(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    if (!reader.is_object()) return;
    const auto name = reader.text("name", "the name of the input");
    const int number = define(name, at);
    const auto type = read_dtype(reader);
    const auto shape = read_shape(reader, type.value_or(dtype::f32));
    const auto before = errors_.count();
    const auto annotation = read_annotation(reader, shape ? shape->count : -1, true, type.value_or(dtype::f32));
    reader.refuse_unknown();
    if (number < 0 || !type || !shape || errors_.count() != before) return;
    auto& v = built_.values[static_cast<std::size_t>(number)];
    v.op = "input";
    v.is_input = true;
    int id = ir::add_parameter(traced_, *type, *shape, {v.name.c_str(), 0});
    auto& n = traced_.nodes[static_cast<std::size_t>(id)];
    n.tag = number;
    n.annotated = annotation.has_value();
    if (annotation) n.annotation = *annotation;
    built_.inputs.push_back(number);
    count_bytes(n, at);
    id = join_group(at, number, id, n.annotated);
    keep(number, id);
  }

  void read_op(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    if (!reader.is_object()) return;
    const auto before = errors_.count();
    const auto name = reader.text("name", "the name of the result");
    const int number = define(name, at);
    const auto op = reader.text("op", "the operator");
    static const json nothing = json::object();
    const auto* given = reader.find("attrs");
    const path at_attrs(at, "attrs");
    object_reader attrs(given != nullptr ? *given : nothing, at_attrs, errors_);
    const char* label = number >= 0 ? built_.values[static_cast<std::size_t>(number)].name.c_str() : "?";
    operation o{traced_, {}, attrs, {label, 0}, op.value_or(""), {}, false};
    const auto* operands = reader.find("operands");
    if (operands != nullptr && !read_operands(*operands, path(at, "operands"), number, o)) return;
    if (!op || !attrs.is_object()) return;

    const bool is_reshard = *op == "reshard";
    const int rank_known = is_reshard && o.operands.size() == 1 && o.is_sound() ? o.shape(0).count : -1;
    std::optional<ir::sharding> annotation;
    if (is_reshard) {
      const auto count = errors_.count();
      annotation = read_annotation(reader, rank_known, false, dtype::f32);
      o.has_annotation = annotation.has_value();
      if (annotation) o.annotation = *annotation;
      else if (errors_.count() == count) errors_.add(path(at, "sharding").str(), "is missing; it is what a reshard is for");
    }
    const auto first = traced_.nodes.size();
    int id = build_operator(o, at);
    for (auto i = first; i < traced_.nodes.size(); ++i) traced_.nodes[i].tag = number;  // a pad is several
    if (traced_.failed()) {
      errors_.add(at.str(), std::string(traced_.error.view()));
      traced_.error = ir::text();
      id = -1;
    }
    if (!is_reshard)
      annotation =
          read_annotation(reader, id >= 0 ? traced_.nodes[static_cast<std::size_t>(id)].shape.count : -1, false, dtype::f32);
    reader.refuse_unknown();
    if (number < 0 || id < 0 || errors_.count() != before) return;

    auto& v = built_.values[static_cast<std::size_t>(number)];
    v.op = *op;
    if (*op == "compare") v.kind = (*given)["direction"].get<std::string>();
    if (*op == "reduce") v.kind = (*given)["kind"].get<std::string>();
    traced_.nodes[static_cast<std::size_t>(id)].tag = number;
    if (!count_bytes(traced_.nodes[static_cast<std::size_t>(id)], at)) return;
    if (annotation && !is_reshard) {  // an annotation is the identity after the operator, as in XLA
      id = ir::add_reshard(traced_, id, *annotation, o.at);
      count_bytes(traced_.nodes[static_cast<std::size_t>(id)], at);
      traced_.nodes[static_cast<std::size_t>(id)].tag = number;
    }
    id = join_group(at, number, id, annotation.has_value());
    keep(number, id);
  }

  /// False where it is no list that an operator could take.
  bool read_operands(const json& j, const path& at, int own_number, operation& o) {
    if (!j.is_array() || j.size() > static_cast<std::size_t>(ir::max_map_arity)) {
      errors_.add(at.str(), j.is_array() ? "has " + std::to_string(j.size()) + " entries; no operator takes so many"
                                         : "is " + found(j) + ", not a list of names");
      return false;
    }
    for (std::size_t k = 0; k < j.size(); ++k) {
      o.operands.push_back(-1);
      if (j[k].is_string()) o.operands.back() = operand_named(j[k].get_ref<const std::string&>(), path(at, k), own_number);
      else errors_.add(path(at, k).str(), "is " + found(j[k]) + ", not the name of a value");
    }
    return true;
  }
  int operand_named(const std::string& name, const path& at, int own_number) {
    const auto it = numbers_.find(name);
    const auto later = later_.find(name);
    if (it != numbers_.end() && it->second != own_number) return nodes_[static_cast<std::size_t>(it->second)];
    if (it != numbers_.end()) errors_.add(at.str(), "is the result of the op itself");
    else if (later != later_.end())
      errors_.add(at.str(), in_quotes(name) + " is defined later, by ops[" + std::to_string(later->second) +
                                "]; an op comes after its operands");
    else errors_.add(at.str(), "no value is called " + in_quotes(name));
    return -1;
  }

  void read_outputs(const json& j, const path& at) {
    if (j.empty()) errors_.add(at.str(), "is empty; nothing would be computed");
    std::vector<bool> seen(built_.values.size(), false);
    for (std::size_t i = 0; i < j.size(); ++i) {
      const path at_output(at, i);
      if (!j[i].is_string()) {
        errors_.add(at_output.str(), "is " + found(j[i]) + ", not the name of a value");
        continue;
      }
      const auto& name = j[i].get_ref<const std::string&>();
      const auto it = numbers_.find(name);
      if (it == numbers_.end()) {
        errors_.add(at_output.str(), "no value is called " + in_quotes(name));
        continue;
      }
      const auto number = static_cast<std::size_t>(it->second);
      if (seen[number]) {
        errors_.add(at_output.str(), in_quotes(name) + " is an output already");
        continue;
      }
      seen[number] = true;
      if (nodes_[number] < 0) continue;  // what is wrong with it has been said
      built_.outputs.push_back(it->second);
      traced_.outputs.push_back(nodes_[number]);
    }
  }

  /// Adds up bounds on what moving the values can take under any sharding, so that the planner's sums stay in 64 bits: a value
  /// with padding is at most `bytes * growth`.
  bool count_bytes(const ir::node& n, const path& at) {
    auto bytes = static_cast<long double>(ir::bytes_of(n.type));
    auto growth = 1.0L;
    for (const auto e : n.shape) {
      bytes *= static_cast<long double>(e == 0 ? 1 : e);
      growth *= 1.0L + static_cast<long double>(device_count_ - 1) / static_cast<long double>(e == 0 ? 1 : e);
    }
    if (bytes > 0x1p60L) {
      errors_.add(at.str(), "the result " + std::string(ir::shape_text(n.shape).view()) + " has more than 2^60 bytes");
      return false;
    }
    bound_.resize(traced_.nodes.size(), 0);
    bound_.back() = bytes * std::min(growth, static_cast<long double>(device_count_));
    counted_bytes_ += 4 * bound_.back();
    for (const int o : n.operands) counted_bytes_ += 4 * bound_[static_cast<std::size_t>(o)];
    return true;
  }

  const json& document_;
  devices on_;
  error_list& errors_;
  std::optional<gspmd::dynamic::mesh> annotated_mesh_;  // of the document, also when planning for one device
  const path root_;
  built_program built_;
  ir::graph traced_;
  std::vector<int> nodes_;  // by value: its node as traced; -1: refused
  std::unordered_map<std::string, int> numbers_;
  std::unordered_map<std::string, std::size_t> later_;  // by name: the op that defines it
  std::int64_t device_count_ = 1;
  std::int64_t listed_devices_ = 0;
  std::optional<shard_group> group_;  // of the annotation read last
  std::map<shard_group, std::vector<group_member>> groups_;
  std::vector<long double> bound_;  // by traced node
  long double counted_bytes_ = 0;
};

}  // namespace plan_tool
