// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

#include <gspmd/index/value_monoid.hpp>
#include <gspmd/layouts/xla_sharding.hpp>
#include <gspmd/report/inspect.hpp>
#include <gspmd/transform/reproducible.hpp>
#include <gspmd/transform/weight_update.hpp>

#include "mesh.hpp"
#include "scopes.hpp"

/// Builds the program of a document, on its mesh or on one device.
namespace plan_tool {

/// A value with its name in the document.
struct named_value {
  std::string name;
  std::string op;    // `input` for an input
  std::string kind;  // reduce: its monoid; compare: its direction
  dtype type = dtype::f32;
  integer_list shape;
  bool is_input = false;
};

/// A document in the form that the planner takes. A value's number is its label.
struct built_program {
  std::optional<gspmd::dynamic::builder> program;
  std::deque<named_value> values;  // a deque: the program points to the names
  std::vector<int> inputs;         // values
  std::vector<int> outputs;        // values
  std::optional<gspmd::network> network;
  std::deque<std::string> names;  // of a strict program, which points to them
  bool devices_part = false;      // a predicate differs between devices, so they may take different branches
};

/// The deepest nesting of bodies.
inline constexpr int most_depth = 16;
/// The most values that a loop carries or a conditional returns.
inline constexpr std::size_t most_carried = 64;

enum class devices { of_mesh, one };

/// 60,000 values are planned in about a second. Registers of a fused loop have 16-bit numbers; the loop fuser divides
/// longer loops.
inline constexpr std::size_t most_values = 60000;

class program_builder {
 public:
  program_builder(const json& document, devices on, error_list& errors) : document_(document), on_(on), errors_(errors) {}

  /// Returns nullopt if there is a mistake. `errors` has all mistakes that one pass can find.
  std::optional<built_program> build() {
    object_reader top(document_, root_, errors_);
    if (!top.is_object()) return {};
    if (const auto* j = top.require("mesh", "an object with `axes`")) read_mesh(*j, path(root_, "mesh"));
    const auto* inputs = list(top, "inputs", true);
    const auto* ops = list(top, "ops", false);
    const auto* outputs = list(top, "outputs", true);
    const auto* next = top.find("next");
    const auto* update = list(top, "shard_weight_update", false);
    const auto* reproducible = top.find("reproducible");
    if (const auto* mode = top.find("mode"); mode != nullptr && *mode != "automatic")
      errors_.add("mode", "is " + found(*mode) + "; it is \"automatic\", \"explicit\" or \"manual\"");
    if (reproducible != nullptr && !reproducible->is_boolean())
      errors_.add("reproducible", "is " + found(*reproducible) + ", not true or false");
    top.find("$schema");  // for editors
    top.refuse_unknown();
    if (!built_.program) return {};  // annotations cannot be read without the mesh
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
    if (next != nullptr) read_next(*next, path(root_, "next"));
    if (outputs != nullptr) read_outputs(*outputs, path(root_, "outputs"));
    if (update != nullptr && errors_.empty()) ask_updates(*update, path(root_, "shard_weight_update"));
    if (errors_.empty()) share_annotations();
    if (errors_.empty() && counted_bytes_ > 0x1p61L)
      errors_.add("", "the values of the program are too large to count what moving them takes in 64 bits");
    if (errors_.empty() && !groups_.empty()) check_shard_as();
    if (!errors_.empty()) return {};
    if (reproducible != nullptr && reproducible->get<bool>()) gspmd::make_reproducible(*built_.program);
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
    mesh_reader reader(errors_);
    mesh_ = reader.read(j, at);
    if (!mesh_) return;
    device_count_ = mesh_->device_count();
    built_.network = reader.network;
    try {
      if (reader.memory > 0 && on_ != devices::one) mesh_ = mesh_->with({.memory = reader.memory});
      mesh_ = mesh_->with_parts(named_axes());
      built_.program.emplace(on_ == devices::one ? mesh_->with_one_device() : *mesh_);
      built_.program->allow_replication();
    } catch (const gspmd::error& e) {
      errors_.add(at.str(), e.text());
    }
  }

  /// Returns the axes that annotations name. Sub-axes among them become axes of the mesh. Mistakes are reported where
  /// an annotation is read.
  [[nodiscard]] std::vector<std::string> named_axes() const {
    std::vector<std::string> names;
    add_named_axes(document_, names);
    return names;
  }
  static void add_named_axes(const json& region, std::vector<std::string>& names) {
    if (!region.is_object()) return;
    for (const char* list : {"inputs", "ops"}) {
      const auto found = region.find(list);
      if (found == region.end() || !found->is_array()) continue;
      for (const auto& item : *found) {
        if (!item.is_object()) continue;
        if (const auto s = item.find("sharding"); s != item.end() && s->is_array())
          for (const auto& dim : *s)
            if (dim.is_array())
              for (const auto& axis : dim)
                if (axis.is_string()) names.push_back(axis.get_ref<const std::string&>());
        if (const auto p = item.find("partial"); p != item.end() && p->is_object())
          for (const auto& [name, value] : p->items()) names.push_back(name);
        for (const char* inner : {"body", "while"})
          if (const auto b = item.find(inner); b != item.end()) add_named_axes(*b, names);
        if (const auto b = item.find("branches"); b != item.end() && b->is_array())
          for (const auto& branch : *b) add_named_axes(branch, names);
      }
    }
  }

  // ---- annotations ----

  /// The words under `sharding`, `open` and `partial`, in the library's form.
  struct annotation {
    std::vector<std::string> dims;  // "data,model", with "?" at the end of an open dim
    std::string partial_axes;
    monoid partial_kind = monoid::add;
  };
  using axis_set = std::set<std::size_t>;  // of the mesh's axes

  /// Returns nullopt if there is no `sharding`.
  std::optional<annotation> read_annotation(object_reader& from, int rank, bool is_input, dtype type) {
    const auto* given = from.find("sharding");
    const auto* open = from.find("open");
    const auto* partial = from.find("partial");
    const path at(from.at(), "sharding");
    annotation s;
    axis_set used;
    group_.reset();
    if (given != nullptr) {
      if (given->is_string()) {
        if (!read_xla(given->get_ref<const std::string&>(), at, rank, is_input, type, given, s, used)) return {};
      } else if (!given->is_array()) return refuse(at, "is " + found(*given) + ", not a list with the axes of each dim");
      else if (rank >= 0 && given->size() != static_cast<std::size_t>(rank))
        return refuse(at, "names " + std::to_string(given->size()) + (given->size() == 1 ? " dim" : " dims") +
                              " and the tensor has " + std::to_string(rank) +
                              "; write one list for each dim, [] for a dim that is not split");
      else if (given->size() > static_cast<std::size_t>(gspmd::max_rank)) return refuse(at, "a tensor has at most 32 dims");
      for (std::size_t d = 0; given != nullptr && given->is_array() && d < given->size(); ++d) {
        const path at_dim(at, d);
        if (!(*given)[d].is_array()) return refuse(at_dim, "is " + found((*given)[d]) + ", not a list of axes; [] is not split");
        s.dims.emplace_back();
        for (std::size_t i = 0; i < (*given)[d].size(); ++i) {
          const auto name = read_axis_name((*given)[d][i], path(at_dim, i), used);
          if (!name) return {};
          s.dims.back() += (i > 0 ? "," : "") + parts_of(*name);
        }
      }
    }
    if (open != nullptr) {
      const path at_open(from.at(), "open");
      if (!open->is_array() || (rank >= 0 && open->size() != static_cast<std::size_t>(rank)) ||
          open->size() > static_cast<std::size_t>(gspmd::max_rank))
        return refuse(at_open, "is no list with true or false for each of the " + std::to_string(rank) + " dims");
      for (std::size_t d = 0; d < open->size(); ++d) {
        if (!(*open)[d].is_boolean()) return refuse(path(at_open, d), "is " + found((*open)[d]) + ", not true or false");
        if (!(*open)[d].get<bool>() && given == nullptr)
          return refuse(path(at_open, d), "is false without a `sharding` that could be closed");
        if ((*open)[d].get<bool>() && d < s.dims.size()) s.dims[d] += '?';
      }
    }
    if (partial != nullptr && !(partial->is_object() && partial->empty())) {
      const path at_partial(from.at(), "partial");
      if (!is_input)
        return refuse(at_partial,
                      "`partial` is allowed only on an input; the planner makes other values partial if that is faster");
      if (given == nullptr) return refuse(at_partial, "needs a `sharding` next to it; [] for every dim that is not split");
      if (!read_partial(*partial, at_partial, type, used, s)) return {};
    }
    if (given == nullptr) return {};
    return s;
  }

  std::optional<annotation> refuse(const path& at, const std::string& what) {
    errors_.add(at.str(), what);
    return {};
  }

  /// Reads XLA's textual sharding. After `{unknown}`, `given` is null.
  bool read_xla(const std::string& words, const path& at, int rank, bool is_input, dtype type, const json*& given, annotation& s,
                axis_set& used) {
    try {
      const auto parsed = gspmd::xla_sharding::parse(words);
      if (!count_listed(parsed, at)) return false;
      const auto on = parsed.on_named(mesh_->info(), rank);
      if (!on.manual_axes.empty())
        refuse(at, "is manual along " + on.manual_axes + "; a value of a program in the global view is not");
      else if (!on.partial_axes.empty() && !is_input)
        refuse(at, "is unreduced, which is allowed only on an input; the planner makes other values partial if that is faster");
      else if (!on.partial_axes.empty() && !gspmd::is_defined(monoid::add, type))
        refuse(at, std::string("is unreduced, and add is not defined for ") + gspmd::name_of(type));
      else {
        for (const auto& list : on.dims) s.dims.push_back(parts_of(list));
        s.partial_axes = parts_of(on.partial_axes);
        for (const auto& list : on.dims) note_used(list, used);
        note_used(on.partial_axes, used);
        if (!on.annotated) given = nullptr;
        if (const auto& tiles = parsed.tiles(); tiles.shard_group >= 0) group_ = {tiles.is_shard_like, tiles.shard_group};
        return true;
      }
    } catch (const gspmd::error& e) {
      errors_.add(at.str(), e.text());
    }
    return false;
  }
  void note_used(const std::string& list, axis_set& used) const {
    for (const auto& name : names_in(list))
      for (const auto axis : mesh_->find(name)) used.insert(axis);
  }
  /// Returns the axes of a list with names that exist on a mesh of one device too, where the size of a part has no
  /// meaning.
  [[nodiscard]] std::string parts_of(const std::string& list) const {
    std::string parts;
    for (const auto& name : names_in(list))
      for (const auto axis : mesh_->find(name)) parts += (parts.empty() ? "" : ",") + mesh_->axes()[axis].name;
    return parts;
  }

  /// Counts the devices in lists that must be read one by one. A short text can describe a long list.
  bool count_listed(const gspmd::xla_sharding& x, const path& at) {
    constexpr std::int64_t most = std::int64_t{1} << 22;
    listed_devices_ += x.listed_devices(mesh_->info());
    if (listed_devices_ <= most) return true;
    errors_.add(at.str(), "the device lists up to here name more than 2^22 devices, other than as a product of axes");
    return false;
  }

  // ---- shard groups ----

  /// `shard_as 1` and `shard_like 1` are two groups, as in XLA (ProcessShardingInstruction in
  /// xla/service/sharding_propagation.cc keeps a map of each). A group becomes shard_alikes between its first value and
  /// each other value, so completion propagates the sharding of one value to all. Values of shard_as must have one
  /// sharding, or the document is refused. Values of shard_like keep their own annotations, so their shard_alike
  /// repeats the annotation.
  struct shard_group {
    bool is_like = false;
    std::int64_t id = -1;
    friend auto operator<=>(const shard_group&, const shard_group&) = default;
    [[nodiscard]] std::string text() const { return (is_like ? "shard_like " : "shard_as ") + std::to_string(id); }
  };
  struct group_member {
    std::string at;                  // the path of its sharding
    int number = -1;                 // its value in the document
    value own;                       // before the tie to the first value of the group
    value tied;                      // after it
    std::optional<annotation> said;  // nullopt: it is `{unknown shard_as 1}`
  };

  /// Ties a value to the first value of its group. Returns the value that the document's name now denotes.
  value join_group(const path& up, int number, value own, const std::optional<annotation>& said, gspmd::location at) {
    if (!group_) return own;
    auto& members = groups_[*group_];
    group_member m{path(up, "sharding").str(), number, own, own, said};
    if (!members.empty()) {
      const auto& first = members.front();
      if (shape_of(own) != shape_of(first.own)) {
        errors_.add(m.at, "is of " + group_->text() + " and the tensor is " + shape_text(shape_of(own)) +
                              "; the first of the group, " +
                              in_quotes(built_.values[static_cast<std::size_t>(first.number)].name) + ", is " +
                              shape_text(shape_of(first.own)) + ", and all of a group have one shape");
        return own;
      }
      m.tied = gspmd::shard_alike(own, first.tied, at);
      if (said) built_.program->annotate(m.tied, said->dims, at);  // otherwise it would get the group's sharding
      count_bytes(m.tied, {own, first.tied}, up);
    }
    members.push_back(m);
    return m.tied;
  }
  /// Copies the annotation of one value of shard_as to the members of its group without an annotation: `{replicated}`
  /// has no split that completion could propagate.
  void share_annotations() {
    for (const auto& [group, members] : groups_) {
      if (group.is_like) continue;
      const auto speaker = std::find_if(members.begin(), members.end(), [](const auto& m) { return m.said.has_value(); });
      if (speaker == members.end()) continue;
      for (const auto& m : members) {
        if (m.said) continue;
        built_.program->annotate(m.own, speaker->said->dims);
        built_.program->annotate(m.tied, speaker->said->dims);
      }
    }
  }
  /// Refuses values of shard_as with different annotations. An input that no output needs gets the sharding of its
  /// group.
  void check_shard_as() {
    const gspmd::dynamic::completion_of completed(*built_.program);
    for (const auto& [group, members] : groups_) {
      if (group.is_like) continue;
      const bool any_said = std::any_of(members.begin(), members.end(), [](const auto& m) { return m.said.has_value(); });
      const group_member* first = nullptr;
      std::optional<gspmd::dynamic::placed_tensor> other;
      for (const auto& m : members) {
        const auto own = completed.of(m.own);
        if (!own) continue;  // no output needs it
        if (first == nullptr) {
          first = &m;
          other = own;
          continue;
        }
        if (own->sharding() == other->sharding()) continue;
        if (built_.values[static_cast<std::size_t>(m.number)].is_input && !any_said) {
          auto open = other->sharding();
          for (auto& dim : open) dim += '?';
          built_.program->annotate(m.own, open);
          continue;
        }
        errors_.add(m.at, "is of " + group.text() + " and becomes " + own->text() + "; the first of the group, " +
                              in_quotes(built_.values[static_cast<std::size_t>(first->number)].name) + ", becomes " +
                              other->text() + ". All values of shard_as have one sharding: write it at one value and `{unknown " +
                              group.text() + "}` at the others, or use shard_like");
      }
    }
  }

  /// Returns the name. Marks the axes that it denotes as used.
  std::optional<std::string> read_axis_name(const json& j, const path& at, axis_set& used) {
    if (j.is_string() && is_axis(j.get_ref<const std::string&>(), at, used)) return j.get<std::string>();
    if (!j.is_string()) errors_.add(at.str(), "is " + found(j) + ", not the name of an axis");
    return {};
  }
  bool is_axis(const std::string& name, const path& at, axis_set& used) {
    const auto axes = mesh_->find(name);
    const auto part = gspmd::sub_axis::of(name);
    if (axes.empty() && part.size > 0 && mesh_->size_of(part.base) > 0) {
      const auto size = mesh_->size_of(part.base);
      const bool divides =
          part.before >= 1 && part.before <= size && part.size <= size / part.before && size % (part.before * part.size) == 0;
      errors_.add(at.str(), divides
                                ? "the sub-axis " + in_quotes(name) +
                                      " overlaps another one of its axis, is one of too many, or "
                                      "its axis has too long a name"
                                : "the axis " + in_quotes(std::string(part.base)) + " has " + std::to_string(size) +
                                      " devices and no part " + in_quotes(name) + "; in NAME:(m)n, m times n divides the size");
    } else if (axes.empty()) {
      errors_.add(at.str(), in_quotes(name) + " is not an axis of the mesh; its axes are: " + mesh_->names());
    } else if (std::any_of(axes.begin(), axes.end(), [&used](std::size_t a) { return used.count(a) > 0; })) {
      errors_.add(at.str(), "the axis " + in_quotes(name) + " is used twice; a mesh axis splits one dim at most");
    } else {
      used.insert(axes.begin(), axes.end());
      return true;
    }
    return false;
  }

  bool read_partial(const json& j, const path& at, dtype type, axis_set& used, annotation& s) {
    if (!j.is_object()) {
      errors_.add(at.str(), "is " + found(j) + ", not an object from axis to monoid");
      return false;
    }
    for (const auto& [name, words] : j.items()) {
      const path at_axis(at, name);
      const bool is_known = is_axis(name, at_axis, used);
      const auto kind = read_monoid(words, at_axis, errors_);
      if (!is_known || !kind) return false;
      if (!s.partial_axes.empty() && s.partial_kind != *kind) {
        errors_.add(at_axis.str(), "all axes over which a value is partial have one monoid");
        return false;
      }
      if (!gspmd::is_defined(*kind, type)) {
        errors_.add(at_axis.str(), std::string(gspmd::name_of(*kind)) + " is not defined for " + gspmd::name_of(type));
        return false;
      }
      s.partial_axes += (s.partial_axes.empty() ? "" : ",") + parts_of(name);
      s.partial_kind = *kind;
    }
    return true;
  }

  // ---- values ----

  /// Stores the position of each op, so that a use before the definition is distinguished from an undefined name.
  void note_names(const json& ops) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (ops[i].is_object() && ops[i].contains("name") && ops[i]["name"].is_string())
        later_.emplace(ops[i]["name"].get<std::string>(), i);
  }

  /// Returns the number of a new value, or -1 if its name is invalid.
  int define(const std::optional<std::string>& name, const path& at) {
    if (!name) return -1;
    const path at_name(at, "name");
    if (name->empty() || name->size() > 255 || gspmd::printable(*name) != *name) {
      errors_.add(at_name.str(), in_quotes(*name) + " cannot be a name: 1 to 255 bytes without control characters");
      return -1;
    }
    const auto number = static_cast<int>(built_.values.size());
    const auto shown = region_ + *name;
    if (arguments_.count(*name) > 0 || numbers_.count(*name) > 0 || !shown_.insert(shown).second) {
      errors_.add(at_name.str(), "a second value is called " + in_quotes(*name));
      return -1;
    }
    numbers_.emplace(*name, number);
    built_.values.push_back({});
    built_.values.back().name = shown;
    made_.emplace_back();
    return number;
  }

  /// Stores a value that was built without a mistake.
  void keep(int number, value v) {
    auto& named = built_.values[static_cast<std::size_t>(number)];
    named.type = v.type();
    named.shape = shape_of(v);
    made_[static_cast<std::size_t>(number)] = v;
    built_.program->label_up_to(v, number);
  }

  void read_input(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    if (!reader.is_object()) return;
    const auto name = reader.text("name", "the name of the input");
    const int number = define(name, at);
    const auto type = read_dtype(reader);
    const auto shape = read_shape(reader, type.value_or(dtype::f32));
    const auto before = errors_.count();
    const auto said = read_annotation(reader, shape ? static_cast<int>(shape->size()) : -1, true, type.value_or(dtype::f32));
    reader.refuse_unknown();
    if (number < 0 || !type || !shape || errors_.count() != before) return;
    auto& named = built_.values[static_cast<std::size_t>(number)];
    named.op = "input";
    named.is_input = true;
    gspmd::dynamic::input_spec given{*type, *shape, {}, said.has_value(), {}, monoid::add};
    if (said) {
      given.sharding = said->dims;
      given.partial_axes = said->partial_axes;
      given.partial_kind = said->partial_kind;
    }
    const auto v = built_.program->input(given);
    built_.program->name(v, named.name);
    built_.inputs.push_back(number);
    count_bytes(v, {}, at);
    keep(number, join_group(at, number, v, said, {named.name.c_str(), 0}));
  }

  void read_op(const json& j, const path& at) {
    const op_scope inside(*built_.program, j, at, errors_);
    if (j.is_object()) {
      const auto kind = j.find("op");
      if (kind != j.end() && (*kind == "loop" || *kind == "cond")) return read_region_op(j, at);
      if (kind != j.end() && (*kind == "reduce_by" || *kind == "scan_by")) return read_fold(j, at);
    }
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
    operation o{*built_.program, {}, attrs, {label, 0}, op.value_or("")};
    const auto* operands = reader.find("operands");
    if (operands != nullptr && !read_operands(*operands, path(at, "operands"), number, o)) return;
    if (!op || !attrs.is_object()) return;

    const bool is_reshard = *op == "reshard";
    const int rank_known = is_reshard && o.operands.size() == 1 && o.is_sound() ? o.operands[0].rank() : -1;
    std::optional<annotation> said;
    if (is_reshard) {
      const auto count = errors_.count();
      said = read_annotation(reader, rank_known, false, dtype::f32);
      if (said) o.annotation = said->dims;
      else if (errors_.count() == count) errors_.add(path(at, "sharding").str(), "is missing; a reshard needs a sharding");
    }
    std::vector<std::pair<std::string, value>> further;
    o.further = &further;
    auto v = build_operator(o, at);
    if (const auto mistake = built_.program->take_mistake(); !mistake.empty()) {
      errors_.add(at.str(), mistake);
      v = {};
    }
    if (!is_reshard) said = read_annotation(reader, v.is_valid() ? v.rank() : -1, false, dtype::f32);
    reader.find("scope");
    reader.refuse_unknown();
    if (number < 0 || !v.is_valid() || errors_.count() != before) return;

    auto& named = built_.values[static_cast<std::size_t>(number)];
    named.op = *op;
    if (*op == "compare") named.kind = (*given)["direction"].get<std::string>();
    if (*op == "reduce") named.kind = (*given)["kind"].get<std::string>();
    if (!count_bytes(v, o.operands, at)) return;
    if (said && !is_reshard) {  // an annotation is the identity after the operator, as in XLA
      const auto computed = std::exchange(v, built_.program->reshard(v, said->dims, o.at));
      count_bytes(v, {computed}, at);
    }
    keep(number, join_group(at, number, v, said, o.at));
    for (const auto& [suffix, v_also] : further) {
      const int also = define(*name + suffix, at);
      if (also < 0) return;
      built_.values.back().op = *op;
      count_bytes(v_also, {}, at);
      auto& result = built_.values.back();
      result.type = v_also.type();
      result.shape = shape_of(v_also);
      made_.back() = v_also;
      built_.program->label(v_also, also);
    }
  }

  // ---- loops and conditionals ----

  static std::string result_name(const std::string& name, std::size_t k, std::size_t count) {
    return count == 1 ? name : name + '.' + std::to_string(k);
  }
  /// {"op": "loop", "operands": [carried values], "attrs": {"trips": 4 or a name}, "body": {...}}, or "while": {...}
  /// instead of trips; {"op": "cond", "operands": [predicate, ...], "branches": [{...}, {...}]}.
  void read_region_op(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    const auto before = errors_.count();
    const auto name = reader.text("name", "the name of the result");
    const bool is_loop = reader.text("op", "the operator") == "loop";
    static const json nothing = json::object();
    const auto* given = reader.find("attrs");
    const path at_attrs(at, "attrs");
    object_reader attrs(given != nullptr ? *given : nothing, at_attrs, errors_);
    operation o{*built_.program, {}, attrs, {"?", 0}, is_loop ? "loop" : "cond"};
    const auto* operands = reader.require("operands", is_loop ? "a list of names of the carried values" : "a list of names");
    if (!name || !attrs.is_object() || operands == nullptr ||
        !read_operands(*operands, path(at, "operands"), -1, o, most_carried))
      return;
    const json *body = nullptr, *condition = nullptr, *branches = nullptr;
    if (is_loop) {
      body = reader.require("body", "a region");
      condition = reader.find("while");
    } else {
      branches = reader.require("branches", "a list of regions");
    }
    const auto* trips = is_loop && condition == nullptr ? attrs.require("trips", "a number, or the name of one") : nullptr;
    attrs.refuse_unknown();
    reader.find("scope");
    reader.refuse_unknown();
    std::size_t count = o.operands.size();
    if (is_loop && count == 0) errors_.add(path(at, "operands").str(), "is empty; a loop carries something");
    if (!is_loop && count == 0) errors_.add(path(at, "operands").str(), "is empty; the first operand selects the branch");
    if (!is_loop && branches != nullptr) count = count_results(*branches, path(at, "branches"));
    if (depth_ == most_depth)
      errors_.add(at.str(), "is in " + std::to_string(most_depth) + " bodies, and no deeper one is planned");
    std::vector<int> numbers;
    for (std::size_t k = 0; k < count; ++k) {
      numbers.push_back(define(result_name(*name, k, count), at));
      if (numbers.back() >= 0) built_.values.back().op = o.name;
    }
    if (errors_.count() != before) return;
    if (!o.is_sound()) return;  // the results are refused, because an operand is refused
    o.at = {built_.values[static_cast<std::size_t>(numbers[0])].name.c_str(), 0};
    built_.program->label(numbers[0]);  // the remaining nodes of the previous operator
    const auto results =
        is_loop ? build_loop(*name, o, numbers[0], trips, condition, *body, at) : build_cond(*name, o, numbers[0], *branches, at);
    const auto mistake = built_.program->take_mistake();
    if (!mistake.empty() && errors_.count() == before) errors_.add(at.str(), mistake);  // else caused by a refused body
    if (errors_.count() != before || results.size() != count) return;
    keep_all(numbers, results, at);
  }
  /// Stores the results of one operator.
  void keep_all(const std::vector<int>& numbers, const std::vector<value>& results, const path& at) {
    built_.program->label(numbers[0]);
    for (std::size_t k = 0; k < results.size(); ++k) {
      auto& named = built_.values[static_cast<std::size_t>(numbers[k])];
      named.type = results[k].type();
      named.shape = shape_of(results[k]);
      made_[static_cast<std::size_t>(numbers[k])] = results[k];
      built_.program->label(results[k], numbers[k]);
      if (!count_bytes(results[k], {results[k]}, at)) return;
    }
  }

  // ---- monoids ----

  /// {"op": "reduce_by", "operands": [...], "attrs": {"dim": 0, "identity": [...]}, "combine": {...}}: the inputs of
  /// combine are the elements of the left value, then those of the right value. scan_by also has `exclusive` and
  /// `flip`.
  void read_fold(const json& j, const path& at) {
    object_reader reader(j, at, errors_);
    const auto before = errors_.count();
    const auto name = reader.text("name", "the name of the result");
    const auto op = reader.text("op", "the operator");
    static const json nothing = json::object();
    const auto* given = reader.find("attrs");
    const path at_attrs(at, "attrs");
    object_reader attrs(given != nullptr ? *given : nothing, at_attrs, errors_);
    operation o{*built_.program, {}, attrs, {"?", 0}, *op};
    const auto* operands = reader.require("operands", "a list of names, one for each element of the monoid");
    const auto* combine = reader.require("combine", "a region, of two values to one");
    reader.find("scope");
    reader.refuse_unknown();
    if (!name || !attrs.is_object() || operands == nullptr || combine == nullptr ||
        !read_operands(*operands, path(at, "operands"), -1, o))
      return;
    const auto count = o.operands.size();
    if (count < 1 || count > 4)
      errors_.add(path(at, "operands").str(), "has " + std::to_string(count) + " entries; a monoid has one to four elements");
    const auto dim = read_dim(o, "the dim that is reduced");
    gspmd::scan_options how;
    if (*op == "scan_by") how = {.exclusive = read_flag(o, "exclusive"), .reverse = read_flag(o, "reverse")};
    const auto* identity = attrs.require("identity", "a list with a number for each element, which changes nothing");
    const auto* samples = attrs.find("samples");
    attrs.refuse_unknown();
    const auto element = [&](const json& list, const path& where) {
      std::vector<gspmd::dynamic::monoid_number> numbers;
      if (!list.is_array() || list.size() != count) {
        errors_.add(where.str(), "is no list with a number for each of the " + std::to_string(count) + " elements");
        return numbers;
      }
      for (std::size_t k = 0; k < count; ++k)
        if (const auto n = o.operands[k].is_valid() ? read_number(list[k], o.operands[k].type(), o, "identity") : std::nullopt)
          numbers.push_back({n->number().real, n->number().integer});
      return numbers;
    };
    std::vector<gspmd::dynamic::monoid_number> changes_nothing;
    std::vector<std::vector<gspmd::dynamic::monoid_number>> tried;
    if (identity != nullptr) changes_nothing = element(*identity, path(at_attrs, "identity"));
    const path at_samples(at_attrs, "samples");
    if (samples != nullptr && (!samples->is_array() || samples->size() > 16))
      errors_.add(at_samples.str(), "is " + found(*samples) + ", not a list of at most 16 lists of numbers");
    else if (samples != nullptr)
      for (std::size_t i = 0; i < samples->size(); ++i) tried.push_back(element((*samples)[i], path(at_samples, i)));
    std::vector<int> numbers;
    for (std::size_t k = 0; k < count; ++k) {
      numbers.push_back(define(result_name(*name, k, count), at));
      if (numbers.back() >= 0) built_.values.back().op = *op;
    }
    if (errors_.count() != before || !o.is_sound()) return;
    o.at = {built_.values[static_cast<std::size_t>(numbers[0])].name.c_str(), 0};
    std::vector<value> results;
    try {
      const auto program = read_combine(*combine, o.operands, *name + '/', path(at, "combine"));
      if (errors_.count() != before) return;
      const gspmd::dynamic::value_monoid by(*program, changes_nothing, tried);
      results = *op == "scan_by" ? gspmd::scan_by(by, o.operands, *dim, how, o.at) : gspmd::reduce_by(by, o.operands, *dim, o.at);
    } catch (const gspmd::error& e) {
      errors_.add(path(at, "combine").str(), e.text());
    }
    if (const auto mistake = built_.program->take_mistake(); !mistake.empty()) errors_.add(at.str(), mistake);
    if (errors_.count() == before) keep_all(numbers, results, at);
  }
  /// Builds the region as a separate program. It cannot use names from outside.
  std::optional<gspmd::dynamic::builder> read_combine(const json& region, const std::vector<value>& tensors,
                                                      const std::string& called, const path& at) {
    std::optional<gspmd::dynamic::builder> program(std::in_place, built_.program->mesh());
    std::vector<value> arguments;
    for (int side = 0; side < 2; ++side)
      for (const value t : tensors) arguments.push_back(program->input({t.type(), {}, {}, false, {}, monoid::add}));
    const auto known = built_.values.size();
    auto bounds = std::exchange(bound_, {});
    auto groups = std::exchange(groups_, {});
    auto names = std::exchange(numbers_, {});
    auto outer = std::exchange(arguments_, {});
    auto later = std::exchange(later_, {});
    std::swap(program, built_.program);
    const auto results = read_region(region, arguments, called, -1, at);
    for (const value v : results) built_.program->output(v);
    const auto mistake = built_.program->take_mistake();
    std::swap(program, built_.program);
    if (!mistake.empty()) errors_.add(at.str(), mistake);
    bound_ = std::move(bounds);
    groups_ = std::move(groups);
    numbers_ = std::move(names);
    arguments_ = std::move(outer);
    later_ = std::move(later);
    built_.values.resize(known);
    made_.resize(known);
    return program;
  }

  /// Returns the number of results of a conditional.
  std::size_t count_results(const json& branches, const path& at) {
    if (!branches.is_array() || branches.empty() || branches.size() > 64) {
      errors_.add(at.str(), branches.is_array()
                                ? "has " + std::to_string(branches.size()) + " entries; a conditional has 1 to 64 regions"
                                : "is " + found(branches) + ", not a list of regions");
      return 0;
    }
    const auto& first = branches[0];
    if (first.is_object())
      if (const auto outputs = first.find("outputs");
          outputs != first.end() && outputs->is_array() && !outputs->empty() && outputs->size() <= most_carried)
        return outputs->size();
    errors_.add(path(at, std::size_t{0}).str(), "is no region with 1 to " + std::to_string(most_carried) + " outputs");
    return 0;
  }

  std::vector<value> build_loop(const std::string& name, const operation& o, int number, const json* trips, const json* condition,
                                const json& body, const path& at) {
    const auto run = [&](const std::vector<value>& now) { return read_region(body, now, name + '/', number, path(at, "body")); };
    if (condition != nullptr)
      return gspmd::while_loop(
          [&](const std::vector<value>& now) {
            const auto asked = read_region(*condition, now, name + "/while/", number, path(at, "while"));
            if (asked.size() == 1) return asked[0];
            errors_.add(path(at, "while").str(), "has " + std::to_string(asked.size()) + " outputs; a condition is one");
            return now[0];
          },
          run, o.operands, o.at);
    const auto counted = [&](value, const std::vector<value>& now) { return run(now); };
    const path at_trips(o.attrs.at(), "trips");
    if (trips->is_string()) {
      const value n = operand_named(trips->get_ref<const std::string&>(), at_trips, -1);
      if (!n.is_valid()) return {};
      if (n.rank() != 0 || !is_integer(n.type()))
        return errors_.add(at_trips.str(), "is " + std::string(gspmd::name_of(n.type())) + shape_text(shape_of(n)) +
                                               "; a number of trips is one integer"),
               std::vector<value>();
      return gspmd::fori_loop({n, o.at}, counted, o.operands);
    }
    const auto n = read_integer(*trips, at_trips, errors_, 0, std::numeric_limits<std::int32_t>::max());
    if (!n) return {};
    const auto outside = times_;
    times_ *= static_cast<long double>(std::max<std::int64_t>(*n, 1));
    auto results = gspmd::fori_loop({*n, o.at}, counted, o.operands);
    times_ = outside;
    return results;
  }

  std::vector<value> build_cond(const std::string& name, const operation& o, int number, const json& branches, const path& at) {
    const value choice = o.operands[0];
    if (choice.rank() != 0 || (choice.type() != dtype::pred && !is_integer(choice.type()))) {
      errors_.add(path(path(at, "operands"), std::size_t{0}).str(),
                  "is " + std::string(gspmd::name_of(choice.type())) + shape_text(shape_of(choice)) +
                      "; a conditional takes one pred, or one integer, the number of the branch");
      return {};
    }
    if (choice.type() == dtype::pred && branches.size() != 2) {
      errors_.add(path(at, "branches").str(), "has " + std::to_string(branches.size()) + " regions; a pred chooses one of 2");
      return {};
    }
    const std::vector<value> arguments(o.operands.begin() + 1, o.operands.end());
    const path at_branches(at, "branches");
    using values = std::vector<value>;
    const auto branch = [&](std::size_t b, const values& given) {
      return read_region(branches[b], given, name + '/' + std::to_string(b) + '/', number, path(at_branches, b));
    };
    const auto one_of = [&](const auto& self, std::size_t b, const values& given) -> values {
      if (b + 1 == branches.size()) return branch(b, given);
      const auto own = static_cast<std::int32_t>(b);
      const value is_it =
          choice.type() == dtype::pred
              ? choice
              : gspmd::elementwise("compare_le", values{choice, built_.program->constant(choice.type(), {}, own, o.at)}, o.at);
      return gspmd::cond(
          {is_it, o.at}, [&](const values& g) { return branch(b, g); }, [&](const values& g) { return self(self, b + 1, g); },
          given);
    };
    auto results = one_of(one_of, 0, arguments);
    if (branches.size() == 1)  // it may return its operand; the result must be a separate value
      for (auto& v : results)
        if (v.is_valid()) v = built_.program->reshard(v, std::vector<std::string>(static_cast<std::size_t>(v.rank()), "?"), o.at);
    return results;
  }

  /// Returns the results of a region for these arguments, or an empty list if the region is refused. Its inputs are
  /// other names for the arguments. It can read values from around it. Its own values are called NAME/own, and only the
  /// region can read them.
  std::vector<value> read_region(const json& region, const std::vector<value>& arguments, const std::string& called, int number,
                                 const path& at) {
    object_reader reader(region, at, errors_);
    if (!reader.is_object()) return {};
    const auto* inputs = reader.require("inputs", "a list of names");
    const auto* ops = reader.find("ops");
    const auto* outputs = reader.require("outputs", "a list of names");
    reader.refuse_unknown();
    const auto is_list = [&](const json* list, const char* key) {
      if (list == nullptr || list->is_array()) return true;
      errors_.add(path(at, key).str(), "is " + found(*list) + ", not a list");
      return false;
    };
    if (inputs == nullptr || outputs == nullptr || !is_list(inputs, "inputs") || !is_list(ops, "ops") ||
        !is_list(outputs, "outputs"))
      return {};
    if (inputs->size() != arguments.size()) {
      errors_.add(path(at, "inputs").str(),
                  "has " + std::to_string(inputs->size()) + " names for " + std::to_string(arguments.size()) + " operands");
      return {};
    }
    if (built_.values.size() + (ops != nullptr ? ops->size() : 0) > most_values) {
      errors_.add(at.str(), "makes the program longer than " + std::to_string(most_values) + " values");
      return {};
    }
    built_.program->label(number);
    const auto outer_arguments = arguments_;
    const auto outer_numbers = numbers_;
    const auto outer_region = std::exchange(region_, region_ + called);
    ++depth_;
    const path at_inputs(at, "inputs");
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      const path at_input(at_inputs, k);
      const auto& word = (*inputs)[k];
      const std::string own = word.is_string() ? word.get<std::string>() : "";
      if (own.empty() || arguments_.count(own) > 0 || numbers_.count(own) > 0)
        errors_.add(at_input.str(),
                    own.empty() ? "is " + found(word) + ", not a name" : "a second value is called " + in_quotes(own));
      else arguments_.emplace(own, arguments[k]);
      bound_.emplace(arguments[k].id(), bound_of(arguments[k]));
    }
    const path at_ops(at, "ops"), at_outputs(at, "outputs");
    if (ops != nullptr)
      for (std::size_t i = 0; i < ops->size(); ++i) read_op((*ops)[i], path(at_ops, i));
    std::vector<value> results;
    for (std::size_t k = 0; k < outputs->size(); ++k) {
      const auto& word = (*outputs)[k];
      const path at_output(at_outputs, k);
      const value v = word.is_string() ? operand_named(word.get_ref<const std::string&>(), at_output, -1) : value{};
      if (!word.is_string()) errors_.add(at_output.str(), "is " + found(word) + ", not the name of a value");
      if (v.is_valid()) results.push_back(v);
    }
    --depth_;
    region_ = outer_region;
    numbers_ = outer_numbers;
    arguments_ = outer_arguments;
    built_.program->label(number);
    return results;
  }

  /// Returns false if the list cannot be the operands of an operator.
  bool read_operands(const json& j, const path& at, int own_number, operation& o, std::size_t most_operands = 8) {
    if (!j.is_array() || j.size() > most_operands) {
      errors_.add(at.str(), j.is_array() ? "has " + std::to_string(j.size()) + " entries, more than an operator takes"
                                         : "is " + found(j) + ", not a list of names");
      return false;
    }
    for (std::size_t k = 0; k < j.size(); ++k) {
      o.operands.emplace_back();
      if (j[k].is_string()) o.operands.back() = operand_named(j[k].get_ref<const std::string&>(), path(at, k), own_number);
      else errors_.add(path(at, k).str(), "is " + found(j[k]) + ", not the name of a value");
    }
    return true;
  }
  value operand_named(const std::string& name, const path& at, int own_number) {
    if (const auto given = arguments_.find(name); given != arguments_.end()) return given->second;
    const auto it = numbers_.find(name);
    const auto later = later_.find(name);
    if (it != numbers_.end() && it->second != own_number) return made_[static_cast<std::size_t>(it->second)];
    if (it != numbers_.end()) errors_.add(at.str(), "is the result of the op itself");
    else if (later != later_.end())
      errors_.add(at.str(), in_quotes(name) + " is defined later, by ops[" + std::to_string(later->second) +
                                "]; an op follows its operands");
    else errors_.add(at.str(), "no value is called " + in_quotes(name));
    return {};
  }

  void read_outputs(const json& j, const path& at) {
    if (j.empty()) errors_.add(at.str(), "is empty; nothing would be computed");
    std::vector<bool> listed(built_.values.size(), false);
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
      if (listed[number]) {
        errors_.add(at_output.str(), in_quotes(name) + " is an output already");
        continue;
      }
      listed[number] = true;
      if (!made_[number].is_valid()) continue;  // its mistake is already reported
      built_.outputs.push_back(it->second);
      value out = made_[number];
      if (const auto before = next_of_.find(name); before != next_of_.end()) {
        out = gspmd::update(made_[static_cast<std::size_t>(before->second)], out, {built_.values[number].name.c_str(), 0});
        built_.program->label(out, it->second);
        if (const auto mistake = built_.program->take_mistake(); !mistake.empty())
          errors_.add(path(path(root_, "next"), name).str(), mistake);
        next_of_.erase(before);
      }
      built_.program->output(out);
    }
    for (const auto& [name, input] : next_of_)
      errors_.add(path(path(root_, "next"), name).str(), in_quotes(name) + " is no output; a next value is one");
  }

  /// Outputs that are the next values of inputs, by name: {"w1": "w"}.
  void read_next(const json& j, const path& at) {
    if (!j.is_object()) return errors_.add(at.str(), "is " + found(j) + ", not an object from outputs to inputs");
    for (const auto& [name, word] : j.items()) {
      const auto input = word.is_string() ? numbers_.find(word.get_ref<const std::string&>()) : numbers_.end();
      if (input == numbers_.end() || !built_.values[static_cast<std::size_t>(input->second)].is_input)
        errors_.add(path(at, name).str(), (word.is_string() ? in_quotes(word.get<std::string>()) : found(word)) + " is no input");
      else next_of_.emplace(name, input->second);
    }
  }
  /// The axes that split the updates of weights.
  void ask_updates(const json& j, const path& at) {
    std::vector<std::string> axes;
    axis_set used;
    for (std::size_t k = 0; k < j.size(); ++k)
      if (auto name = read_axis_name(j[k], path(at, k), used)) axes.push_back(std::move(*name));
    if (!errors_.empty()) return;
    gspmd::shard_weight_update(*built_.program, axes);
    if (const auto mistake = built_.program->take_mistake(); !mistake.empty()) errors_.add(at.str(), mistake);
  }

  /// Sums bounds on the bytes of moving the values under any sharding, so that the planner's sums stay in 64 bits. A
  /// value with padding is at most `bytes * growth`.
  bool count_bytes(value v, const std::vector<value>& operands, const path& at) {
    auto bytes = static_cast<long double>(gspmd::bytes_of(v.type()));
    for (const auto e : v.shape()) bytes *= static_cast<long double>(e == 0 ? 1 : e);
    if (bytes > 0x1p60L) {
      errors_.add(at.str(), "the result " + shape_text(shape_of(v)) + " has more than 2^60 bytes");
      return false;
    }
    const auto bound = bound_of(v);
    bound_[v.id()] = bound;
    counted_bytes_ += 4 * bound * times_;
    for (const auto& o : operands) counted_bytes_ += 4 * bound_[o.id()] * times_;
    return true;
  }

  /// Returns the most bytes that a value takes, with padding.
  [[nodiscard]] long double bound_of(value v) const {
    auto bytes = static_cast<long double>(gspmd::bytes_of(v.type())), growth = 1.0L;
    for (const auto e : v.shape()) {
      bytes *= static_cast<long double>(e == 0 ? 1 : e);
      growth *= 1.0L + static_cast<long double>(device_count_ - 1) / static_cast<long double>(e == 0 ? 1 : e);
    }
    return bytes * std::min(growth, static_cast<long double>(device_count_));
  }

  const json& document_;
  devices on_;
  error_list& errors_;
  std::optional<gspmd::dynamic::mesh> mesh_;  // of the document, also when planning for one device
  const path root_;
  built_program built_;
  std::vector<value> made_;  // by value of the document; not valid: refused
  std::unordered_map<std::string, int> numbers_;
  std::unordered_map<std::string, std::size_t> later_;  // by name: the op that defines it
  std::int64_t device_count_ = 1;
  std::int64_t listed_devices_ = 0;
  std::optional<shard_group> group_;  // of the last annotation
  std::map<shard_group, std::vector<group_member>> groups_;
  std::map<std::string, int> next_of_;          // by output: the input whose next value it is
  std::unordered_map<int, long double> bound_;  // by the value's id
  long double counted_bytes_ = 0;
  long double times_ = 1;  // the number of executions of the current region
  // Of the current region:
  std::unordered_map<std::string, value> arguments_;  // its inputs, and those of the enclosing regions
  std::string region_;                                // the prefix of its values' names
  std::set<std::string> shown_;                       // names of all values
  int depth_ = 0;
};

}  // namespace plan_tool
