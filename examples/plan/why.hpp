// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "table.hpp"

/// Where a sharding came from: for every axis the way back to an annotation.
namespace plan_tool {

class sharding_reasons {
 public:
  explicit sharding_reasons(const planned_program& p) : p_(p) {}

  [[nodiscard]] std::vector<std::string> of(int v) const {
    const auto& value = p_.value(v);
    if (value.node < 0) return {value.name + " has no sharding: no output needs it"};
    const auto s = p_.sharding_of(v);
    const auto& completed = p_.completed[static_cast<std::size_t>(value.node)];
    std::vector<std::string> lines{value.name + " is " + layout_text(p_, s, value.shape.count)};
    for (int a = 0; a < p_.mesh().shape.axis_count(); ++a) {
      const auto axis = std::string(p_.mesh().name(a));
      const int dim = dim_of(s, a);
      const int wished = dim_of(completed, a);
      std::string line = "  " + axis + ": ";
      if (p_.mesh().shape.sizes[a] == 1) {
        line += "has one device and cuts nothing";
      } else if ((s.partial & ir::axis_bit(a)) != 0) {
        line += partial_reason(v, a);
      } else if (dim < 0 && wished < 0) {
        line += replicated_reason(v, a);
      } else if (dim < 0) {
        line += "replicated; completion found dim " + std::to_string(wished) + " (" + way(value.node, a) +
                "), but this sends fewer bytes";
      } else {
        line += "splits dim " + std::to_string(dim);
        line += wished == dim
                    ? ", " + way(value.node, a)
                    : ", chosen because it sends the fewest bytes" +
                          (wished < 0 ? std::string()
                                      : "; completion found dim " + std::to_string(wished) + " (" + way(value.node, a) + ")");
      }
      lines.push_back(line);
    }
    return lines;
  }

 private:
  static int dim_of(const ir::sharding& s, int axis) {
    for (const auto& use : s.splits)
      if (use.axis == axis) return use.dim;
    return -1;
  }
  [[nodiscard]] const std::string& name_of(int node) const { return p_.value(p_.tag_of(node)).name; }

  /// `annotated on a, through einsum c, through relu d`
  [[nodiscard]] std::string way(int node, int axis) const {
    std::vector<std::string> hops;
    while (true) {
      const ir::split_origin* origin = nullptr;
      for (const auto& o : p_.origins)
        if (o.node == node && o.use.axis == axis) {
          origin = &o;
          break;
        }
      if (origin == nullptr) break;
      const auto& via = p_.built.graph.nodes[static_cast<std::size_t>(origin->via)];
      // An annotation on an op's result is an identity after it; that hop says nothing.
      if (p_.tag_of(origin->from) != p_.tag_of(node)) {
        const auto direction = origin->from == origin->via   ? "back through "
                               : origin->node == origin->via ? "through "
                                                             : "across ";
        hops.push_back(direction + std::string(name_in_document(via.op)) + ' ' + name_of(origin->via));
      }
      node = origin->from;
    }
    std::string t = "annotated on " + name_of(node);
    for (std::size_t i = hops.size(); i-- > 0;) t += ", " + hops[i];
    return t;
  }

  [[nodiscard]] std::string replicated_reason(int v, int axis) const {
    for (const auto& i : p_.instructions)
      if (i.value == v && i.communicates && (i.axes & ir::axis_bit(axis)) != 0 && (i.from.partial & ir::axis_bit(axis)) != 0 &&
          (i.to.partial & ir::axis_bit(axis)) == 0)
        return "replicated; a reduced dim was split by it, and " + i.kind + " combines the parts (" + ir::name_of(i.from.kind) +
               ')';
    const auto& n = p_.built.graph.nodes[static_cast<std::size_t>(p_.value(v).node)];
    if (n.annotated && n.annotation.open == 0) return "replicated, as annotated on " + p_.value(v).name;
    return "replicated; no annotation reaches it";
  }

  [[nodiscard]] std::string partial_reason(int v, int axis) const {
    const auto& value = p_.value(v);
    const auto kind = std::string(ir::name_of(p_.sharding_of(v).kind));
    const auto& n = p_.built.graph.nodes[static_cast<std::size_t>(value.node)];
    if (value.is_input) return "partial (" + kind + "), as annotated";
    for (const auto& i : p_.instructions) {
      if (i.result < 0 || i.result != p_.local.results[static_cast<std::size_t>(value.node)]) continue;
      for (std::size_t k = 0; k < i.operands.size(); ++k) {
        const auto& operand = p_.local.value(i.operands[k]);
        if ((operand.layout.partial & ir::axis_bit(axis)) != 0)
          return "partial (" + kind + "), passed on from " + p_.value(p_.tag_of(operand.node)).name + ", in which " +
                 name_in_document(n.op) + " is linear";
        if (const int dim = dim_of(operand.layout, axis); dim >= 0)
          return "partial (" + kind + "): it splits dim " + std::to_string(dim) + " of " +
                 p_.value(p_.tag_of(operand.node)).name + ", which is reduced; whoever needs the result whole pays for that";
      }
    }
    return "partial (" + kind + ')';
  }

  const planned_program& p_;
};

}  // namespace plan_tool
