// Reads the SQLite file of `nsys export --type sqlite`: kernels, copies and memsets with their times, the NVTX ranges that were open when
// each was launched, no counters. Launches of graphs that nsys traced as a whole are missing: the export does not hold their kernels.
// Tables and columns as https://docs.nvidia.com/nsight-systems documents its exporter's schema (2022 to 2025); columns that a version
// lacks are done without.
//
// A launch belongs to the ranges open on the thread of its API call at the time of that call, found by correlation id: never by where
// the kernel ran on the timeline.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

#include "profiler/ingest/foreign_report.h"

namespace profiler {

// Whether this program was built with SQLite.
bool reads_nsys_exports();

bool looks_like_sqlite(std::span<const std::byte> bytes);

// `step_range`: each range of this name is one training step. Throws stepscope::InputError naming the file and what it lacks (no SQLite, no
// kernel table, no kernel), also when this program was built without SQLite.
ForeignReport read_nsys_export(const std::filesystem::path& path, const std::string& step_range);

}  // namespace profiler
