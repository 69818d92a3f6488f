// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "../command_line.hpp"
#include "model.hpp"

namespace digits {

using command_line::report_errors, command_line::report_usage_errors, command_line::usage_error;

struct options {
  std::string devices;  // DxM; empty: the program chooses
  std::string backend;  // empty: the program chooses
  int epochs = 40;
  int expected_percent = 0;
  bool compares = false;
  bool asks_for_help = false;
};

inline std::string mesh_name(int data, int model) { return std::to_string(data) + 'x' + std::to_string(model); }
template <class Mesh>
std::string name_of_mesh() {
  return mesh_name(Mesh::info.shape.sizes[0], Mesh::info.shape.sizes[1]);
}

/// Calls f(std::type_identity<Mesh>) for every compiled mesh.
template <class F>
void for_each_mesh(F&& f) {
  [&]<class... Meshes>(std::type_identity<std::tuple<Meshes...>>) {
    (f(std::type_identity<Meshes>{}), ...);
  }(std::type_identity<pods>{});
}

inline std::string all_meshes() {
  std::string list;
  for_each_mesh([&]<class Mesh>(std::type_identity<Mesh>) { list += (list.empty() ? "" : ", ") + name_of_mesh<Mesh>(); });
  return list;
}

/// Calls f(std::type_identity<Mesh>) for the mesh with this name.
template <class F>
int with_mesh(std::string_view name, F&& f) {
  int result = 0;
  bool found = false;
  for_each_mesh([&]<class Mesh>(std::type_identity<Mesh> mesh) {
    if (name_of_mesh<Mesh>() != name) return;
    found = true;
    result = f(mesh);
  });
  if (!found) throw usage_error("--devices " + std::string(name) + ": not compiled in; there are " + all_meshes());
  return result;
}

inline options parse(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto next = [&]() -> std::string {
      if (i + 1 == argc) throw usage_error(option + " needs a value");
      return argv[++i];
    };
    if (option == "--devices") {
      o.devices = next();
    } else if (option == "--backend") {
      o.backend = next();
    } else if (option == "--epochs") {
      o.epochs = command_line::number(option, next(), 1, 100000);
    } else if (option == "--expect") {
      o.expected_percent = command_line::number(option, next(), 0, 100);
    } else if (option == "--compare") {
      o.compares = true;
    } else if (option == "--help" || option == "-h") {
      o.asks_for_help = true;
    } else {
      throw usage_error("unknown option " + option);
    }
  }
  return o;
}

inline int help(const char* usage) {
  std::printf("%smeshes: %s\n", usage, all_meshes().c_str());
  return 0;
}

}  // namespace digits
