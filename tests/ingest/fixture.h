// The test reports: kernels of our own trainers, collected on an H200 with ncu 2025.3.1 on 2026-11-21 (fp32_basic: --set basic; the
// others --nvtx and the metrics that we read), cut down by data/strip_report.py.
#pragma once
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "profiler/ingest/ncu_csv.h"
#include "profiler/ingest/ncu_report.h"

inline std::string file_text(const std::string& name) {
  std::ifstream in(std::string(INGEST_DATA) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline profiler::ForeignReport ncu_report(const std::string& name) {
  const std::string text = file_text(name);
  return profiler::read_ncu_report(as_bytes(text), name);
}
inline profiler::ForeignReport ncu_csv(const std::string& name) { return profiler::read_ncu_csv(file_text(name), name); }
