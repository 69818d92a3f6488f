// SPDX-License-Identifier: Apache-2.0
// labels: once
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/gspmd.hpp"
#include "support/count_allocations.hpp"
#include "support/equal_plans.hpp"

// The same callable compiled and planned at run time: one plan, one result to the bit, nothing allocated in a step.

namespace {

using namespace gspmd;
template <class T>
struct weights {
  T w1, b1, w2, b2;
};

constexpr auto train = [](auto x, auto labels, auto w) {
  auto h = relu(einsum<"bd,df->bf">(x, w.w1) + w.b1);
  auto z = einsum<"bf,fd->bd">(h, w.w2) + w.b2;
  auto loss = -1.0 * mean(sum(one_hot<float>(labels, 10) * log_softmax(z, 1), {1}));
  auto g = grad(loss, w);
  return std::tuple{loss, weights<value>{w.w1 - 0.1 * g.w1, w.b1 - 0.1 * g.b1, w.w2 - 0.1 * g.w2, w.b2 - 0.1 * g.b2}};
};
constexpr auto mixed = [](auto x, auto y) {
  auto a = map([](auto p, auto q) { return p * q + p; }, x, y);
  auto b = reduce(a, monoid::max, {1});
  auto c = einsum<"ab,cb->ca">(a, y);
  auto d = allow_replication(reshape(transpose(c, {1, 0}), {49}));
  auto e = where(x > 0.25, tanh(x), exp(y)) - iota<double>(x, {7, 5}, 0);
  // Loops with reductions: long rows in parts, several short rows together.
  auto f = sum(iota<double>(x, {3, 5, 1100}, 2) * 0.37 - iota<double>(x, {3, 5, 1100}, 1), {0, 2});
  auto g = min(iota<std::int32_t>(x, {70, 5, 3}, 2), iota<std::int32_t>(x, {70, 5, 3}, 0));
  return std::tuple{b, d, e, cast<std::int32_t>(sum(e) * 100), f, sum(g, {0, 2}), reduce(g, monoid::max, {0, 2})};
};

template <class M>
using train_step = compile<train, M, input<float, shape<15, 64>, split<"data", _>>, input<std::int32_t, shape<15>>,
                           record<weights, input<float, shape<64, 30>, split<_, "model">>, input<float, shape<30>>,
                                  input<float, shape<30, 10>, split<"model", _>>, input<float, shape<10>>>>;
template <class M>
using mixed_step =
    compile<mixed, M, input<double, shape<7, 5>, split<"data", "model?">>, input<double, shape<7, 5>, split<_, "data">>>;

using square = mesh<axis<"data", 2>, axis<"model", 2>>;
using wide = mesh<axis<"data", 2>, axis<"model", 4>, device_order<7, 6, 5, 4, 3, 2, 1, 0>>;
using huge = mesh<axis<"data", 32>, axis<"model", 32>>;
using single = mesh<axis<"data", 1>, axis<"model", 1>>;

/// Runs a step by both executors on simulated devices from the same shards and compares every byte of the outputs.
template <class Step, class Graph>
void compare(const Graph& graph) {
  const auto planned = detail::plan_at_run_time(graph, Step::mesh_type::info.shape, Step::mesh_type::info.request);
  const detail::plan_view view(planned);
  CHECK(reference::difference(Step::view, view) == "");

  simulated_communicator comm(Step::device_count);
  const auto devices = static_cast<std::size_t>(Step::device_count);
  std::vector<detail::aligned_bytes> memory;
  std::vector<const void*> inputs;
  std::vector<void*> outputs[2];
  const auto bytes = [](const detail::planned_value& v) { return detail::elements(v.local) * detail::bytes_of(v.type); };
  for (std::size_t d = 0; d < devices; ++d) {
    for (const int i : view.inputs) {
      memory.emplace_back(bytes(view.value(i)));
      detail::with_real_type(view.value(i).type, [&](auto element) {
        auto* p = reinterpret_cast<decltype(element)*>(memory.back().get());
        for (std::int64_t e = 0; e < detail::elements(view.value(i).local); ++e)
          p[e] = static_cast<decltype(element)>(3 * std::sin(static_cast<double>(e * 7 + i)));
      });
      inputs.push_back(memory.back().get());
    }
    for (auto& list : outputs)
      for (const int o : view.outputs) {
        memory.emplace_back(bytes(view.value(o)));
        list.push_back(memory.back().get());
      }
  }
  Step step;
  step.run(comm, inputs.data(), outputs[0].data());
  const std::size_t before = allocations;
  step.run(comm, inputs.data(), outputs[0].data());
  const std::size_t after = allocations;
  CHECK(after == before);
  CHECK((before > 0) == counts_allocations);

  std::vector<detail::aligned_bytes> arenas;
  std::vector<detail::device_memory> states;
  for (std::size_t d = 0; d < devices; ++d) {
    arenas.emplace_back(view.arena_bytes);
    states.push_back({inputs.data() + d * view.inputs.size(), outputs[1].data() + d * view.outputs.size(), arenas.back().get(),
                      view.mesh->coordinates_of(static_cast<std::int64_t>(d))});
  }
  std::vector<const void*> from(devices);
  std::vector<void*> to(devices);
  detail::interpreter steps(view);
  steps.run(comm, states.data(), from.data(), to.data());
  for (std::size_t d = 0; d < devices; ++d)
    for (std::size_t k = 0; k < view.outputs.size(); ++k) {
      const auto& v = view.value(view.outputs[k]);
      const auto at = view.mesh->coordinates_of(static_cast<std::int64_t>(d));
      const auto place = d * view.outputs.size() + k;
      const auto width = static_cast<std::size_t>(detail::bytes_of(v.type));
      const auto* one = static_cast<const std::byte*>(outputs[0][place]);
      const auto* other = static_cast<const std::byte*>(outputs[1][place]);
      int different = 0;
      for (std::int64_t e = 0; e < detail::elements(v.local); ++e) {
        bool is_padding = false;  // which holds anything
        std::int64_t rest = e;
        for (int i = v.local.count - 1; i >= 0; --i) {
          is_padding = is_padding || rest % v.local[i] >= detail::dim_range(*view.mesh, v.global, v.layout, i, at).size();
          rest /= v.local[i];
        }
        const auto offset = static_cast<std::size_t>(e) * width;
        different += !is_padding && std::memcmp(one + offset, other + offset, width) != 0 ? 1 : 0;
      }
      CHECK(different == 0);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("static and run-time planning give the same plan and the same bits", Mesh, single, square, wide) {
  using weights_in = record<weights, input<float, shape<64, 30>, split<_, "model">>, input<float, shape<30>>,
                            input<float, shape<30, 10>, split<"model", _>>, input<float, shape<10>>>;
  compare<train_step<Mesh>>(detail::trace_program<train, Mesh, input<float, shape<15, 64>, split<"data", _>>,
                                                  input<std::int32_t, shape<15>>, weights_in>());
  compare<mixed_step<Mesh>>(detail::trace_program<mixed, Mesh, input<double, shape<7, 5>, split<"data", "model?">>,
                                                  input<double, shape<7, 5>, split<_, "data">>>());
}

TEST_CASE_TEMPLATE("a session has one function for a collective of all element types", Comm, simulated_communicator,
                   threads_communicator) {
  using namespace detail;
  plan_step step;
  const auto function_for = [&](dtype type) {
    step.type = type;
    return joint_function_of<Comm>(step);
  };
  for (const kernel_id kernel : {id_of<kernels::move>, id_of<kernels::start_move>, id_of<kernels::finish_move>,
                                 id_of<kernels::combine>, id_of<kernels::combine_together>, id_of<kernels::start_combine>}) {
    step.kernel = kernel;
    CHECK((function_for(dtype::f32) != nullptr));
    for (const dtype type : {dtype::f64, dtype::pred, dtype::bf16, dtype::s8, dtype::u64, dtype::c128})
      CHECK((function_for(type) == function_for(dtype::f32)));
  }
}

TEST_CASE("explain calls inputs by the names of their struct's members") {
  const auto text = explain<train_step<single>>();
  CHECK(text.find("input 1  ") != std::string::npos);
  CHECK(text.find("input 2 (w1)") != std::string::npos);
  CHECK(text.find("input 5 (b2)") != std::string::npos);
}

TEST_CASE("1024 simulated devices, most of them without data") {
  compare<mixed_step<huge>>(detail::trace_program<mixed, huge, input<double, shape<7, 5>, split<"data", "model?">>,
                                                  input<double, shape<7, 5>, split<_, "data">>>());
}

TEST_CASE("a step on threads allocates nothing after the first call") {
  using step_type = train_step<square>;
  std::atomic<bool> allocated = false;
  launch(threads{}, step_type::device_count, [&](auto& comm) {
    auto x = distribute<step_type, 0>(comm, array<float>({15, 64}));
    auto labels = distribute<step_type, 1>(comm, array<std::int32_t>({15}));
    auto w = distribute<step_type, 2>(
        comm, weights<array<float>>{array<float>({64, 30}), array<float>({30}), array<float>({30, 10}), array<float>({10})});
    auto loss = make_result<step_type, 0>(comm);
    auto next = make_result<step_type, 1>(comm);
    step_type step;
    for (int i = 0; i < 3; ++i) {
      comm.barrier();
      const std::size_t before = allocations;
      comm.barrier();
      step(comm, x, labels, w, loss, next);
      comm.barrier();
      if (i > 0 && allocations != before) allocated = true;
      comm.barrier();
    }
  });
  CHECK_FALSE(allocated);
}
