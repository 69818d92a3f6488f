// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 3 4
// group: run
// Pipelines over MPI, through shared memory and by messages, give the same bits as on threads: values and gradients.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/comm/threads.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/mpi.hpp"
#include "gspmd/nn/pipeline.hpp"

namespace {

using namespace gspmd;

/// Loss, and gradients by weights [stages, 3, 3] and data [microbatches, 4, 3]. The mesh has one device for each rank.
template <class Step>
void check_over_mpi(Step step, std::int64_t rows_of_weights, std::int64_t microbatches, const dynamic::mesh& m) {
  const std::string data = m.axes().size() > 1 ? "data" : "";
  const auto p = dynamic::compile(step, m, dynamic::input<double>({rows_of_weights, 3, 3}, {"stage", "", ""}),
                                  dynamic::input<double>({microbatches, 4, 3}, {"", data, ""}));
  std::vector<double> w, x;
  for (std::int64_t i = 0; i < rows_of_weights * 9; ++i) w.push_back(0.2 * static_cast<double>(i * 7 % 11 - 5));
  for (std::int64_t i = 0; i < microbatches * 12; ++i) x.push_back(0.3 * static_cast<double>(i * 5 % 13 - 6));
  const std::vector<const void*> inputs{w.data(), x.data()};
  const auto want = p.run(threads{}, inputs);
  for (const bool shares_memory : {true, false}) {
    mpi backend;
    backend.options.shared_memory = shares_memory;
    const auto got = p.run(backend, inputs);
    REQUIRE(got.size() == want.size());
    for (std::size_t k = 0; k < got.size(); ++k) {
      CAPTURE(k);
      CHECK(got[k].bytes == want[k].bytes);
    }
  }
}

const auto layer = [](value w, value x) { return tanh(einsum<"bd,df->bf">(x, w)); };
const auto squares = [](value y, value t) { return mean((y - t) * (y - t)); };

}  // namespace

TEST_CASE("pipelines over MPI, with their gradients, also beside data parallelism and with several stages on a rank") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::int64_t n = ranks;
  std::vector<dynamic::mesh> meshes{dynamic::mesh({{"stage", ranks}})};
  if (ranks == 4) meshes.push_back(dynamic::mesh({{"stage", 2}, {"data", 2}}));
  for (const auto& m : meshes) {
    const std::int64_t devices = m.axes()[0].size;
    for (const std::int64_t stages : {devices, 2 * devices}) {
      CAPTURE(stages);
      check_over_mpi(
          [=](value w, value x) {
            const value loss = squares(pipeline<"stage">(layer, gpipe{stages, n + 1})(w, x), stop_gradient(x));
            return std::tuple{loss, grad(loss, w), grad(loss, x)};
          },
          stages, n + 1, m);
      check_over_mpi(
          [=](value w, value x) {
            return pipeline_step<"stage">(layer, squares, eager_one_forward_one_backward{stages, n + 1})(w, x, x);
          },
          stages, n + 1, m);
    }
    // Each rank takes its own branch.
    check_over_mpi(
        [=](value w, value x) {
          return pipeline_step<"stage">(layer, squares, one_forward_one_backward{devices, n + 1})(w, x, x);
        },
        devices, n + 1, m);
    check_over_mpi(
        [=](value w, value x) {
          const interleaved schedule{devices, 2 * devices, 2};
          const auto [loss, dw, dx] =
              pipeline_step<"stage">(stage_of(layer), squares, schedule)(stage_weights(w, schedule), x, x);
          return std::tuple{loss, dw, dx};
        },
        2 * devices, 2 * devices, m);
    check_over_mpi(
        [=](value w, value x) {
          const circular schedule{devices, n + 1, 2};
          const value y = pipeline<"stage">(stage_of(layer, 2 * devices), schedule)(stage_weights(w, schedule), x);
          const value loss = squares(y, stop_gradient(x));
          return std::tuple{loss, grad(loss, w), grad(loss, x)};
        },
        2 * devices, n + 1, m);
  }
}
