// SPDX-License-Identifier: Apache-2.0
// The target test_headers needs a source file. Its precompiled header is what test programs use.
