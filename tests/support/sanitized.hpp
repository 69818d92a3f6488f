// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace reference {

/// True under a sanitizer. Programs take about ten times as long then, so exhaustive tests try fewer cases.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
inline constexpr bool is_sanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool is_sanitized = false;
#endif

}  // namespace reference
