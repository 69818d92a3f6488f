// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

/// Counts the allocations of the program's own code: operator new, malloc, aligned_alloc and related functions.
/// Allocations inside linked libraries, such as OpenBLAS in a product of small matrices, are not counted. Include it in
/// one translation unit of a program. Sanitizers replace the same functions. Then nothing is counted, and
/// `counts_allocations` is false.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GSPMD_TEST_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GSPMD_TEST_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef GSPMD_TEST_COUNTS_ALLOCATIONS
#define GSPMD_TEST_COUNTS_ALLOCATIONS 1
#endif

inline constexpr bool counts_allocations = GSPMD_TEST_COUNTS_ALLOCATIONS == 1;
inline std::atomic<std::size_t> allocations{0};

#if GSPMD_TEST_COUNTS_ALLOCATIONS
extern "C" {
// The begin and the end of the program's own code, defined by the linker.
extern const char __executable_start;  // NOLINT
extern const char etext;
// glibc's own names of the functions that this file replaces.
void* __libc_malloc(std::size_t);                 // NOLINT
void* __libc_calloc(std::size_t, std::size_t);    // NOLINT
void* __libc_realloc(void*, std::size_t);         // NOLINT
void* __libc_memalign(std::size_t, std::size_t);  // NOLINT
}

inline void count_allocation(const void* caller) {
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  if (at >= reinterpret_cast<std::uintptr_t>(&__executable_start) && at < reinterpret_cast<std::uintptr_t>(&etext)) ++allocations;
}

extern "C" {
[[gnu::noinline]] void* malloc(std::size_t bytes) noexcept {
  count_allocation(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
[[gnu::noinline]] void* calloc(std::size_t count, std::size_t bytes) noexcept {
  count_allocation(__builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
[[gnu::noinline]] void* realloc(void* block, std::size_t bytes) noexcept {
  count_allocation(__builtin_return_address(0));
  return __libc_realloc(block, bytes);
}
[[gnu::noinline]] void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count_allocation(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
[[gnu::noinline]] void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count_allocation(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
[[gnu::noinline]] int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) noexcept {
  count_allocation(__builtin_return_address(0));
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
}

// The standard library's operator new would call malloc from its own code, whichever code calls it.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* block = __libc_malloc(bytes)) return block;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  if (void* block = __libc_memalign(static_cast<std::size_t>(alignment), bytes)) return block;
  throw std::bad_alloc();
}
#endif
