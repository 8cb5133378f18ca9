#pragma once

#include <ccl/comm/unique_id.hpp>

#include <cstdint>
#include <string>

#include "nccl/abi/abi.hpp"

namespace ccl::detail::nccl {

// Parts that ranks of NCCL's communicators gather, and their rules. Each rule returns what does not
// fit, or an empty text.

/// Presence of a rank's tuner plug-in, or its answer: the place of an entry of its table, or -1.
using TunerPart = std::int32_t;

/// Knowledge of a rank about a call of ncclCommGrow.
struct GrowPart {
  int ranks = 0;
  int has_id = 0;
  UniqueId id;
};

/// Settings of a rank that decide what runs.
struct SettingsPart {
  std::int16_t one_order = 0;  // 2: the setting cannot be
  std::int16_t fallback = 0;
  std::int16_t zero_blocks = 0;
};

/// Message of a rank to the others before they create a communicator of the real NCCL.
struct FallbackPart {
  int version = 0;
  ncclUniqueId id{};  // of rank 0
};

std::string wrong_tuner_presence(TunerPart part);
/// A table has `entries`.
std::string wrong_tuner_answer(TunerPart part, int entries);
/// The communicator has `ranks` before it grows.
std::string wrong_grow_part(const GrowPart& part, int ranks);
std::string wrong_settings_part(const SettingsPart& part);
std::string wrong_fallback_part(const FallbackPart& part);

}  // namespace ccl::detail::nccl
