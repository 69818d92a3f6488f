// SPDX-License-Identifier: Apache-2.0
// The time of planning at run time, the time that the interpreter adds to an operator, and the speed of the local
// kernels. bench/report compares the benchmark ROW/gspmd with ROW/OTHER.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "gspmd/detail/kernels/blas_threads.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "gspmd/gspmd.hpp"

namespace {

using namespace gspmd;
using detail::graph;
using detail::mesh_info;

// ---- planning ----

/// An MLP with its gradient and update, in about `operators` nodes: the batch is split over axis 0, the weights
/// alternately over axis 1.
graph mlp(const mesh_info& mesh, std::int64_t operators) {
  graph g;
  g.mesh = &mesh;
  const auto input = [&](std::initializer_list<std::int64_t> shape, std::initializer_list<std::pair<int, int>> splits) {
    const int id = detail::add_parameter(g, dtype::f32, detail::extents_of(shape), {});
    auto& n = g.nodes.back();
    n.annotated = true;
    for (const auto& [axis, dim] : splits) n.annotation.layout.add_split(axis, dim);
    return value(&g, id);
  };
  value h = input({65536, 1024}, {{0, 0}});
  const value y = input({65536, 1024}, {{0, 0}});
  std::vector<value> weights;
  for (std::int64_t layer = 0; layer < std::max<std::int64_t>(1, operators / 20); ++layer) {
    weights.push_back(input({1024, 1024}, {{1, layer % 2 == 0 ? 1 : 0}}));
    weights.push_back(input({1024}, {}));
    h = relu(einsum<"bd,df->bf">(h, weights[weights.size() - 2]) + weights.back());
  }
  const value error = h - y;
  const value loss = mean(error * error);
  detail::differentiator gradients(g, loss.id(), weights.front().id());
  g.outputs.push_back(loss.id());
  for (const value w : weights) g.outputs.push_back((w - 0.1 * value(&g, gradients.by(w.id()))).id());
  return detail::canonical_order(g);
}

mesh_info mesh_of(int a, int b) {
  mesh_info m;
  m.add_axis("data", a);
  m.add_axis("model", b);
  return m;
}

void report_per_operator(benchmark::State& state, const graph& g) {
  const auto count = static_cast<double>(g.nodes.size());
  state.counters["operators"] = count;
  state.counters["per_operator"] =
      benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

template <int A, int B>
void trace(benchmark::State& state) {
  const auto mesh = mesh_of(A, B);
  for (auto _ : state) benchmark::DoNotOptimize(mlp(mesh, state.range(0)).nodes.data());
  report_per_operator(state, mlp(mesh, state.range(0)));
}
template <int A, int B>
void complete(benchmark::State& state) {
  const auto mesh = mesh_of(A, B);
  const graph g = mlp(mesh, state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(detail::complete_graph(g, mesh.shape, mesh.request).data());
  report_per_operator(state, g);
}
template <int A, int B>
void partition(benchmark::State& state) {
  const auto mesh = mesh_of(A, B);
  const graph g = mlp(mesh, state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(detail::pass_results(g, mesh.shape).of<detail::emit_pass>().ops.data());
  report_per_operator(state, g);
}
template <int A, int B>
void schedule(benchmark::State& state) {
  const auto mesh = mesh_of(A, B);
  const graph g = mlp(mesh, state.range(0));
  const auto local = detail::pass_results(g, mesh.shape).take<detail::emit_pass>();
  for (auto _ : state) {
    detail::step_state made(g, mesh.shape, mesh.request, local);
    detail::scheduler(made).run();
    benchmark::DoNotOptimize(made.out.steps.data());
  }
  report_per_operator(state, g);
}
template <int A, int B>
void plan_all(benchmark::State& state) {
  const auto mesh = mesh_of(A, B);
  const graph g = mlp(mesh, state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(detail::make_plan(g, mesh.shape).steps.data());
  report_per_operator(state, g);
}

#define GSPMD_SIZES ->ArgName("operators")->Arg(100)->Arg(1000)->Arg(10000)->Unit(benchmark::kMillisecond)
BENCHMARK(plan_all<2, 4>)->Name("plan of an MLP, 2 x 4 devices") GSPMD_SIZES;
BENCHMARK(plan_all<256, 256>)->Name("plan of an MLP, 256 x 256 devices") GSPMD_SIZES;
BENCHMARK(trace<2, 4>) GSPMD_SIZES;
BENCHMARK(complete<2, 4>) GSPMD_SIZES;
BENCHMARK(partition<2, 4>) GSPMD_SIZES;
BENCHMARK(schedule<2, 4>) GSPMD_SIZES;

// ---- interpreter ----

/// Runs a plan for one device repeatedly.
class runner {
 public:
  explicit runner(const graph& g)
      : plan_(detail::make_plan(detail::canonical_order(g), g.mesh->shape)), view_(plan_), steps_(view_) {
    for (const int i : view_.inputs) in_.push_back(buffer(view_.value(i)));
    for (const int o : view_.outputs) out_.push_back(buffer(view_.value(o)));
    arena_ = detail::aligned_bytes(view_.arena_bytes, "the arena");
    device_ = {in_.data(), out_.data(), arena_.get(), g.mesh->shape.coordinates_of(0)};
  }
  void operator()() {
    const void* from[1];
    void* to[1];
    steps_.run(comm_, &device_, from, to);
  }
  [[nodiscard]] std::size_t step_count() const { return plan_.steps.size(); }

 private:
  void* buffer(const detail::planned_value& v) {
    memory_.emplace_back(detail::elements(v.local) * detail::bytes_of(v.type));
    return memory_.back().get();
  }
  detail::plan plan_;
  detail::plan_view view_;
  detail::interpreter steps_;
  std::vector<detail::aligned_bytes> memory_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  detail::aligned_bytes arena_;
  detail::device_memory device_;
  simulated_communicator comm_{1};
};

template <class F>
void interpret(benchmark::State& state, F chain) {
  const auto mesh = mesh_of(1, 1);
  graph g;
  g.mesh = &mesh;
  value h(&g, detail::add_parameter(g, dtype::f32, detail::extents_of(std::initializer_list<std::int64_t>{2, 2}), {}));
  const value w(&g, detail::add_parameter(g, dtype::f32, detail::extents_of(std::initializer_list<std::int64_t>{2, 2}), {}));
  for (int k = 0; k < 500; ++k) h = chain(h, w);
  g.outputs.push_back(h.id());
  runner run(g);
  for (auto _ : state) run();
  state.counters["steps"] = static_cast<double>(run.step_count());
  state.counters["per_step"] = benchmark::Counter(static_cast<double>(run.step_count()),
                                                  benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(interpret, einsum_2x2, [](value h, value w) { return einsum<"ab,bc->ac">(h, w); });
BENCHMARK_CAPTURE(interpret, reduce_then_elementwise_2x2, [](value h, value) { return tanh(h - reshape(sum(h, {1}), {2, 1})); });
BENCHMARK_CAPTURE(interpret, reduce_then_transpose_2x2, [](value h, value w) { return transpose(w - sum(h, {0}), {1, 0}); });

// ---- kernels, one device, compiled ----

using single = mesh<axis<"one", 1>>;

template <class Step>
class compiled {
 public:
  compiled() {
    for (const int i : Step::view.inputs) in_.push_back(buffer(Step::view.value(i)));
    for (std::size_t k = 0; k < Step::view.outputs.size(); ++k) out_.push_back(buffer(Step::view.value(Step::view.outputs[k])));
  }
  void operator()() { step_.run(comm_, in_.data(), out_.data()); }

 private:
  void* buffer(const detail::planned_value& v) {
    const auto bytes = detail::elements(v.local) * detail::bytes_of(v.type);
    memory_.emplace_back(bytes);
    auto* p = reinterpret_cast<float*>(memory_.back().get());
    for (std::int64_t e = 0; e < bytes / 4; ++e) p[e] = 0.001f * static_cast<float>(e % 1000 + 1);
    return p;
  }
  Step step_;
  std::vector<detail::aligned_bytes> memory_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  simulated_communicator comm_{1};
};

void rate(benchmark::State& state, const char* unit, double per_run) {
  state.counters[unit] = benchmark::Counter(per_run * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

constexpr auto adam_update = [](auto w, auto m, auto v, auto g) {
  auto m1 = 0.9 * m + 0.1 * g;
  auto v1 = 0.999 * v + 0.001 * (g * g);
  return std::tuple{w - 0.01 * (m1 / 0.9) / (sqrt(v1 / 0.999) + 1e-8), m1, v1};
};
template <std::int64_t Elems>
void adam(benchmark::State& state) {
  using v = input<float, shape<Elems>>;
  compiled<compile<adam_update, single, v, v, v, v>> run;
  for (auto _ : state) run();
  rate(state, "GB", 7.0 * 4 * static_cast<double>(Elems));  // reads 4 arrays, writes 3
}
BENCHMARK(adam<1024>);
BENCHMARK(adam<65536>);
BENCHMARK(adam<4 * 1024 * 1024>)->Unit(benchmark::kMicrosecond);
BENCHMARK(adam<16 * 1024 * 1024>)->Name("Adam, 16 M floats/gspmd")->Unit(benchmark::kMicrosecond);
/// The same, hand-written, with streaming stores.
template <std::int64_t Elems>
GSPMD_LOOP_FUNCTION void adam_by_hand(const float* w, const float* m, const float* v, const float* g, float* const* out) {
  for (std::int64_t i = 0; i < Elems; i += 64) {
    alignas(64) float results[3][64];
    for (int j = 0; j < 64; ++j) {
      const float m1 = 0.9F * m[i + j] + 0.1F * g[i + j], v1 = 0.999F * v[i + j] + 0.001F * (g[i + j] * g[i + j]);
      results[0][j] = w[i + j] - 0.01F * (m1 / 0.9F) / (__builtin_sqrtf(v1 / 0.999F) + 1e-8F);
      results[1][j] = m1;
      results[2][j] = v1;
    }
    for (int k = 0; k < 3; ++k)
      for (int j = 0; j < 64; j += detail::simd_lanes<float>)
        detail::stream_simd(out[k] + i + j, detail::load_simd(results[k] + j));
  }
  detail::fence_streams();
}
template <std::int64_t Elems>
void adam_by_hand(benchmark::State& state) {
  std::vector<float> memory(7 * Elems + 16, 0.5F);
  float* const begin = memory.data() + detail::elements_to_alignment(memory.data());
  float* const out[] = {begin, begin + Elems, begin + 2 * Elems};
  for (auto _ : state) {
    adam_by_hand<Elems>(begin + 3 * Elems, begin + 4 * Elems, begin + 5 * Elems, begin + 6 * Elems, out);
    benchmark::ClobberMemory();
  }
  rate(state, "GB", 7.0 * 4 * static_cast<double>(Elems));
}
BENCHMARK(adam_by_hand<16 * 1024 * 1024>)->Name("Adam, 16 M floats/hand-written")->Unit(benchmark::kMicrosecond);

template <fixed_string Equation>
constexpr auto contraction = [](auto a, auto b) { return einsum<Equation>(a, b); };
template <fixed_string Equation, class A, class B>
void contract(benchmark::State& state, double multiplications) {
  compiled<compile<contraction<Equation>, single, input<float, A>, input<float, B>>> run;
  for (auto _ : state) run();
  rate(state, "GF", 2 * multiplications);
}
void gemm_512(benchmark::State& s) { contract<"ab,bc->ac", shape<512, 512>, shape<512, 512>>(s, 512.0 * 512 * 512); }
void gemm_64(benchmark::State& s) { contract<"ab,bc->ac", shape<64, 64>, shape<64, 64>>(s, 64.0 * 64 * 64); }
void gemm_8(benchmark::State& s) { contract<"ab,bc->ac", shape<8, 8>, shape<8, 8>>(s, 8.0 * 8 * 8); }
void gemm_transposed(benchmark::State& s) { contract<"ba,cb->ca", shape<512, 512>, shape<512, 512>>(s, 512.0 * 512 * 512); }
void batched(benchmark::State& s) { contract<"nab,nbc->nac", shape<64, 64, 64>, shape<64, 64, 64>>(s, 64.0 * 64 * 64 * 64); }
void attention_scores(benchmark::State& s) {
  contract<"bqhd,bkhd->bhqk", shape<4, 128, 8, 64>, shape<4, 128, 8, 64>>(s, 4.0 * 8 * 128 * 128 * 64);
}
void four_index(benchmark::State& s) {
  contract<"acik,cbkj->abij", shape<24, 24, 24, 24>, shape<24, 24, 24, 24>>(s, 24.0 * 24 * 24 * 24 * 24 * 24);
}
void matrix_vector(benchmark::State& s) { contract<"ab,b->a", shape<2048, 2048>, shape<2048>>(s, 2048.0 * 2048); }
BENCHMARK(gemm_512);
BENCHMARK(gemm_64);
BENCHMARK(gemm_8);
BENCHMARK(gemm_transposed);
BENCHMARK(batched);
BENCHMARK(attention_scores);
BENCHMARK(four_index);
BENCHMARK(matrix_vector);

// ---- reductions of computed values, and rows that are read once, compared with hand-written loops ----

/// Returns the sum of f of each element, with 64 partial sums.
template <class F>
GSPMD_LOOP_FUNCTION float sum_by_hand(const float* x, std::int64_t n, F f) {
  float sums[64] = {};
  for (std::int64_t i = 0; i < n; i += 64)
    for (int j = 0; j < 64; ++j) sums[j] += f(x[i + j]);
  float all = 0;
  for (const float s : sums) all += s;
  return all;
}
constexpr auto polynomial = [](auto x) { return sum(x * x - x); };
constexpr auto sum_and_largest = [](auto x) {
  const auto y = x * x - x;
  return std::tuple{sum(y), reduce(y, monoid::max)};
};
constexpr auto layer_norm = [](auto x) {
  const auto centred = x - expand_dims(mean(x, 1), 1);
  return centred * expand_dims(rsqrt(mean(centred * centred, 1) + 1e-5), 1);
};
constexpr auto softmax_of_rows = [](auto x) { return softmax(x, 1); };

void layer_norm_of_row(const float* x, float* y, std::int64_t n) {
  const auto size = static_cast<float>(n);
  const float middle = sum_by_hand(
                           x, n, [](float v) __attribute__((always_inline)) { return v; }) /
                       size;
  const float spread = sum_by_hand(
                           x, n, [middle](float v) __attribute__((always_inline)) { return (v - middle) * (v - middle); }) /
                       size;
  const float scale = 1 / std::sqrt(spread + 1e-5F);
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - middle) * scale;
}
GSPMD_LOOP_FUNCTION void softmax_of_row(const float* x, float* y, std::int64_t n) {
  float largest[64], sums[64] = {};
  for (int j = 0; j < 64; ++j) largest[j] = x[j];
  for (std::int64_t i = 64; i < n; i += 64)
    for (int j = 0; j < 64; ++j) largest[j] = ((largest[j] != largest[j]) | (largest[j] > x[i + j])) ? largest[j] : x[i + j];
  float most = largest[0], all = 0;
  for (const float v : largest) most = v > most ? v : most;
  for (std::int64_t i = 0; i < n; i += 64)
    for (int j = 0; j < 64; ++j) sums[j] += y[i + j] = detail::exponential(x[i + j] - most);
  for (const float s : sums) all += s;
  for (std::int64_t i = 0; i < n; ++i) y[i] = y[i] / all;
}

/// A program of one array, and the same hand-written.
template <auto Program, std::int64_t Rows, std::int64_t Columns>
void of_rows(benchmark::State& state) {
  compiled<compile<Program, single, input<float, shape<Rows, Columns>>>> run;
  for (auto _ : state) run();
  rate(state, "elements", static_cast<double>(Rows * Columns));
}
template <std::int64_t Rows, std::int64_t Columns, class F>
void by_hand(benchmark::State& state, F f) {
  std::vector<float> x(Rows * Columns), y(Rows * Columns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.001F * static_cast<float>(i % 1000 + 1);
  for (auto _ : state) {
    f(x.data(), y.data());
    benchmark::ClobberMemory();
  }
  rate(state, "elements", static_cast<double>(Rows * Columns));
}
template <std::int64_t Rows, std::int64_t Columns>
void sum_by_hand(benchmark::State& state) {
  by_hand<Rows, Columns>(state, [](const float* x, float* y) {
    *y = sum_by_hand(
        x, Rows * Columns, [](float v) __attribute__((always_inline)) { return v * v - v; });
  });
}
template <std::int64_t Rows, std::int64_t Columns>
void sum_and_largest_by_hand(benchmark::State& state) {
  by_hand<Rows, Columns>(state, [](const float* x, float* y) {
    float sums[64] = {}, most[64] = {};
    for (std::int64_t i = 0; i < Rows * Columns; i += 64)
      for (int j = 0; j < 64; ++j) {
        const float v = x[i + j] * x[i + j] - x[i + j];
        sums[j] += v;
        most[j] = ((most[j] != most[j]) | (most[j] > v)) ? most[j] : v;
      }
    y[0] = y[1] = 0;
    for (int j = 0; j < 64; ++j) {
      y[0] += sums[j];
      y[1] = most[j] > y[1] ? most[j] : y[1];
    }
  });
}
template <std::int64_t Rows, std::int64_t Columns, auto Row>
void rows_by_hand(benchmark::State& state) {
  by_hand<Rows, Columns>(state, [](const float* x, float* y) {
    for (std::int64_t r = 0; r < Rows; ++r) Row(x + r * Columns, y + r * Columns, Columns);
  });
}
#define GSPMD_PAIR(row, rows, columns, ours, theirs)              \
  BENCHMARK(ours)->Name(row ", [" #rows ", " #columns "]/gspmd"); \
  BENCHMARK(theirs)->Name(row ", [" #rows ", " #columns "]/hand-written")
#define GSPMD_AGAINST_LOOPS(rows, columns)                                                                         \
  GSPMD_PAIR("sum(x * x - x)", rows, columns, (of_rows<polynomial, rows, columns>), (sum_by_hand<rows, columns>)); \
  GSPMD_PAIR("sum and largest", rows, columns, (of_rows<sum_and_largest, rows, columns>),                          \
             (sum_and_largest_by_hand<rows, columns>));                                                            \
  GSPMD_PAIR("layer norm", rows, columns, (of_rows<layer_norm, rows, columns>),                                    \
             (rows_by_hand<rows, columns, layer_norm_of_row>));                                                    \
  GSPMD_PAIR("softmax", rows, columns, (of_rows<softmax_of_rows, rows, columns>), (rows_by_hand<rows, columns, softmax_of_row>))
GSPMD_AGAINST_LOOPS(64, 1024);
GSPMD_AGAINST_LOOPS(8192, 1024);

/// Products of c128, computed as products of real matrices of the parts, and the library's own product.
template <std::int64_t N>
void complex_gemm(benchmark::State& state) {
  using matrix = input<c128, shape<N, N>>;
  compiled<compile<contraction<"ab,bc->ac">, single, matrix, matrix>> run;
  for (auto _ : state) run();
  rate(state, "GF", 8.0 * N * N * N);
}
BENCHMARK(complex_gemm<512>)->Name("product of c128, n = 512/gspmd")->Unit(benchmark::kMillisecond);
BENCHMARK(complex_gemm<64>)->Name("product of c128, n = 64/gspmd");
#if defined(GSPMD_HAS_CBLAS)
template <int N>
void cblas_zgemm_by_hand(benchmark::State& state) {
  const std::vector<c128> a(static_cast<std::size_t>(N) * N, c128(0.5, 0.25)), b = a;
  std::vector<c128> c(a.size());
  const c128 one(1.0, 0.0), zero(0.0, 0.0);
  for (auto _ : state)
    cblas_zgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, &one, a.data(), N, b.data(), N, &zero, c.data(), N);
  benchmark::DoNotOptimize(c.data());
  rate(state, "GF", 8.0 * N * N * N);
}
BENCHMARK(cblas_zgemm_by_hand<512>)->Name("product of c128, n = 512/cblas_zgemm")->Unit(benchmark::kMillisecond);
BENCHMARK(cblas_zgemm_by_hand<64>)->Name("product of c128, n = 64/cblas_zgemm");
#endif

template <int... Order>
constexpr auto permuted = [](auto x) { return transpose(x, {Order...}); };
template <class Dims, int... Order>
void permute(benchmark::State& state) {
  compiled<compile<permuted<Order...>, single, input<float, Dims>>> run;
  for (auto _ : state) run();
  rate(state, "GB", 2.0 * 4 * static_cast<double>(detail::elements(Dims::value)));
}
BENCHMARK(permute<shape<64, 64>, 1, 0>);
BENCHMARK(permute<shape<1024, 1024>, 1, 0>);
BENCHMARK(permute<shape<32, 128, 8, 64>, 0, 2, 1, 3>);
BENCHMARK(permute<shape<64, 64, 256>, 2, 1, 0>);

}  // namespace

int main(int argc, char** argv) {
  const detail::single_threaded_blas one_thread;
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
