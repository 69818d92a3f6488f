// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../common/command_line.hpp"
#include "model.hpp"

namespace digits {

struct options {
  std::string devices;  // DxM; empty: the program chooses
  std::string backend = "threads";
  std::filesystem::path out = "digits.png";
  int epochs = 40;
  int expected_percent = 50;
  bool compares = false;
  bool prints_plan = false;
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

inline std::vector<std::string> all_meshes() {
  std::vector<std::string> names;
  for_each_mesh([&]<class Mesh>(std::type_identity<Mesh>) { names.push_back(name_of_mesh<Mesh>()); });
  return names;
}

/// Calls f(std::type_identity<Mesh>) for the mesh with this name, one of all_meshes().
template <class F>
int with_mesh(std::string_view name, F&& f) {
  int result = 0;
  for_each_mesh([&]<class Mesh>(std::type_identity<Mesh> mesh) {
    if (name_of_mesh<Mesh>() == name) result = f(mesh);
  });
  return result;
}

inline options parse(int argc, char** argv, const char* program, bool is_over_mpi) {
  options o;
  examples::command_line line(program,
                              "Trains a network to read handwritten digits, and tests it on digits that it has not seen.");
  line.word("--devices", o.devices, all_meshes(),
            is_over_mpi ? "DxM: D ranks share the batch, M the hidden layer (default: the first mesh of all ranks)"
                        : "DxM: D devices share the batch, M the hidden layer (default: 2x2, or 1x1 with --backend serial)");
  if (!is_over_mpi)
    line.word("--backend", o.backend, {"threads", "simulated", "serial"},
              "one thread per device, or all devices in one thread, or one device");
  line.option("--epochs", o.epochs, 1, 100000, "how often the training uses each digit")
      .option("--expect", o.expected_percent, 0, 100, "fail if fewer percent of the test digits are recognised")
      .path("--out", o.out, "picture of test digits, a PNG file")
      .flag("--compare", o.compares, "then compare the backends with one device after 50 steps")
      .flag("--plan", o.prints_plan, "print the plan of a training step")
      .parse(argc, argv);
  return o;
}

}  // namespace digits
