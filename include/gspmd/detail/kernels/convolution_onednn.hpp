// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/contraction_plan.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/support/tuning.hpp"

#if defined(GSPMD_HAS_ONEDNN) && __has_include(<oneapi/dnnl/dnnl.hpp>)

#include <dlfcn.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "gspmd/detail/kernels/blas_threads.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

inline constexpr bool has_convolution_library = true;

/// If devices are threads, an object of this class limits the oneDNN calls of the current thread to this thread. oneDNN
/// brings its own OpenMP, if it was built with one, so the program need not be linked to OpenMP.
class lone_omp_thread {
 public:
  lone_omp_thread() {
    if (openmp().set == nullptr || openmp().get == nullptr || !single_threaded_blas::is_held()) return;
    before_ = openmp().get();
    openmp().set(1);
  }
  lone_omp_thread(const lone_omp_thread&) = delete;
  lone_omp_thread& operator=(const lone_omp_thread&) = delete;
  ~lone_omp_thread() {
    if (before_ > 0) openmp().set(before_);
  }

 private:
  struct functions {
    void (*set)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    int (*get)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  };
  static const functions& openmp() {
    static const functions found;
    return found;
  }
  int before_ = 0;
};

/// A convolution of floats prepared by oneDNN, which reorders the window for its kernel. Only the first call allocates
/// memory.
class onednn_convolution {
 public:
  explicit onednn_convolution(const direct_convolution& what)
      : what_(what), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dims = dnnl::memory::dims;
    using dnnl::memory;
    dims in{what.batch, what.in_features}, out{what.batch, what.out_features}, window{what.out_features, what.in_features};
    dims in_strides{what.batch_in_stride, 1}, out_strides{what.batch_out_stride, 1}, steps, gaps;
    if (what.batch == 1) {  // the stride of a batch of 1 is arbitrary; oneDNN's kernels look for the stride of a tensor
                            // without gaps
      in_strides[0] = what.windows[0].in_stride * what.windows[0].in;
      out_strides[0] = what.windows[0].out_stride * what.windows[0].out;
    }
    for (const auto& w : what.windows) {
      in.push_back(w.in);
      in_strides.push_back(w.in_stride);
      out.push_back(w.out);
      out_strides.push_back(w.out_stride);
      window.push_back(w.window);
      steps.push_back(w.step);
      gaps.push_back(w.dilation - 1);
    }
    const dims none(steps.size(), 0);
    // Features are innermost, then window positions, last dim first: the layout of a window without gaps in memory.
    dims window_strides(window.size());
    window_strides[0] = 1;
    window_strides[1] = what.out_features;
    for (std::size_t d = window.size(), elems = static_cast<std::size_t>(what.in_features * what.out_features); d-- > 2;) {
      window_strides[d] = static_cast<std::int64_t>(elems);
      elems *= static_cast<std::size_t>(window[d]);
    }
    constexpr auto type = memory::data_type::f32;
    const memory::desc source(in, type, in_strides), dense(window, type, window_strides), result(out, type, out_strides);
    const memory::desc any(window, type, memory::format_tag::any);
    const dnnl::convolution_forward::desc forward(dnnl::prop_kind::forward, dnnl::algorithm::convolution_direct, source, any,
                                                  result, steps, gaps, none, none);
    const dnnl::convolution_forward::primitive_desc found(forward, engine_, true);
    // A loop without vector instructions is not faster than gspmd's own loop.
    const auto is_slow = [](const auto& made) { return !made || std::strstr(made.impl_info_str(), "ref") != nullptr; };
    if (is_slow(found)) return;
    if (what.makes_window) {
      const dnnl::convolution_backward_weights::desc backward(dnnl::algorithm::convolution_direct, source, any, result, steps,
                                                              gaps, none, none);
      const dnnl::convolution_backward_weights::primitive_desc back(backward, engine_, found, true);
      if (is_slow(back)) return;
      run_ = dnnl::convolution_backward_weights(back);
      ordered_ = memory(back.diff_weights_desc(), engine_);
    } else {
      run_ = dnnl::convolution_forward(found);
      ordered_ = memory(found.weights_desc(), engine_);
    }
    source_ = memory(source, engine_, nullptr);
    result_ = memory(result, engine_, nullptr);
    dense_ = memory(dense, engine_, nullptr);
    order_ = what.makes_window ? dnnl::reorder(ordered_, dense_) : dnnl::reorder(dense_, ordered_);
    is_dense_ = what.window_first == 0 && what.window_out_stride == 1 && what.window_in_stride == what.out_features;
    for (std::size_t d = 0; d < steps.size(); ++d)
      is_dense_ = is_dense_ && (window[d + 2] == 1 || what.windows[static_cast<int>(d)].window_stride == window_strides[d + 2]);
    if (!is_dense_) copied_.resize(static_cast<std::size_t>(elements_of(window)));
    is_ready_ = true;
  }

  [[nodiscard]] const direct_convolution& what() const { return what_; }

  bool run(const float* a, const float* b, float* c) {
    if (!is_ready_) return false;
    const auto writable = [](const float* data) { return const_cast<float*>(data); };
    float* const window = what_.makes_window ? c : writable(b);
    source_.set_data_handle(writable(a + what_.lhs_first));
    result_.set_data_handle(what_.makes_window ? writable(b) : c);
    dense_.set_data_handle(is_dense_ ? window : copied_.data());
    if (what_.makes_window) {
      run_.execute(stream_, {{DNNL_ARG_SRC, source_}, {DNNL_ARG_DIFF_WEIGHTS, ordered_}, {DNNL_ARG_DIFF_DST, result_}});
      order_.execute(stream_, ordered_, dense_);
      stream_.wait();
      if (!is_dense_)
        for_each_element(window + what_.window_first, copied_.data(), 0, [](float& own, const float& dense) { own = dense; });
    } else {
      if (!is_dense_)
        for_each_element(window + what_.window_first, copied_.data(), 0, [](const float& own, float& dense) { dense = own; });
      order_.execute(stream_, dense_, ordered_);
      run_.execute(stream_, {{DNNL_ARG_SRC, source_}, {DNNL_ARG_WEIGHTS, ordered_}, {DNNL_ARG_DST, result_}});
      stream_.wait();
    }
    return true;
  }

 private:
  static std::int64_t elements_of(const dnnl::memory::dims& extents) {
    std::int64_t n = 1;
    for (const auto e : extents) n *= e;
    return n;
  }
  /// Calls assign(element of the window, same element of `dense`). `dense` is [positions of all dims, in_features,
  /// out_features].
  template <class Assign>
  float* for_each_element(float* window, float* dense, int dim, Assign assign) const {
    if (dim < what_.windows.count && dim < max_direct_dims) {  // GCC 12 follows the recursion to a fourth dim and warns
      const auto& w = what_.windows[dim];
      for (std::int64_t i = 0; i < w.window; ++i) dense = for_each_element(window + i * w.window_stride, dense, dim + 1, assign);
      return dense;
    }
    for (std::int64_t i = 0; i < what_.in_features; ++i)
      for (std::int64_t o = 0; o < what_.out_features; ++o)
        assign(window[i * what_.window_in_stride + o * what_.window_out_stride], *dense++);
    return dense;
  }

  direct_convolution what_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive run_;
  dnnl::reorder order_;
  dnnl::memory source_, result_, dense_, ordered_;
  std::vector<float> copied_;
  bool is_dense_ = false, is_ready_ = false;
};

/// Convolves with oneDNN. Returns false if the convolution is too small for a call, or if oneDNN has no fast kernel for
/// it.
inline bool convolve(const direct_convolution& what, const float* a, const float* b, float* c) {
  auto products = what.batch * what.in_features * what.out_features;
  for (const auto& w : what.windows) products *= w.out * w.window;
  if (products < worth_a_convolution_call) return false;
  const lone_omp_thread alone;
  thread_local std::vector<std::unique_ptr<onednn_convolution>> ready;
  auto found = std::find_if(ready.begin(), ready.end(), [&](const auto& known) { return known->what() == what; });
  if (found == ready.end()) found = ready.insert(ready.end(), std::make_unique<onednn_convolution>(what));
  return (*found)->run(a, b, c);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#else

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

inline constexpr bool has_convolution_library = false;
inline bool convolve(const direct_convolution&, const float*, const float*, float*) { return false; }

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#endif
