// Reads Nsight Compute's .ncu-rep without Nsight Compute:
//
//   "NVR\0" | u32 n | FileHeader (n bytes) | to the end of the file: u32 h | BlockHeader (h bytes) | payload
//   payload = BlockHeader.payload_bytes of (u32 size | message): sources, kernel results, range, command list and graph results
//
// all u32 little-endian, messages as in ncu_report.proto. Sources (cubins) are stepped over; the string table is an increment per
// block, and a result may use names that only a later block brings. Checked with reports of ncu 2022.3, 2023.3 and 2025.3, file version 7 in all.
//
// Trap: a report has no closing mark and no count of its results. One that is cut exactly between two blocks reads as a shorter report
// without any fault; a cut anywhere else is seen.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "profiler/ingest/foreign_report.h"

namespace profiler {

bool looks_like_ncu_report(std::span<const std::byte> bytes);

// Throws stepscope::InputError "SOURCE: at byte N: …" when the file is damaged before its first result, or holds none. Damage behind the
// first result ends the reading: what came before is returned, with a MissingRecord "report_damaged".
ForeignReport read_ncu_report(std::span<const std::byte> bytes, const std::string& source);

}  // namespace profiler
