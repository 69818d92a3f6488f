// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

/// A document generated out of bytes, valid or, if spoiled, with a few mistakes.
/// Kind: 'G' valid, 'H' spoiled, 'E' explicit, 'M' manual; of the last two many an op is refused.
nlohmann::json generated_document(const std::uint8_t* data, std::size_t size, char kind);

inline bool is_generated(char kind) { return kind == 'G' || kind == 'H' || kind == 'E' || kind == 'M'; }

/// The operators that gspmd-plan knows, with spaces between them: for mutations of a document.
const std::string& operator_names();
