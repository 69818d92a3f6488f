// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

/// Generates a document from bytes: valid or, if spoiled, with a few mistakes.
/// Kind: 'G' valid, 'H' spoiled, 'E' explicit, 'M' manual. In explicit and manual documents, many ops are refused.
nlohmann::json generated_document(const std::uint8_t* data, std::size_t size, char kind);

inline bool is_generated(char kind) { return kind == 'G' || kind == 'H' || kind == 'E' || kind == 'M'; }

/// The operators of gspmd-plan, separated by spaces, for mutations of a document.
const std::string& operator_names();
