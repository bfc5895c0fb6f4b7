// Proof, for machines without a GPU, that exactly these sources of a step (source_scan.h) passed the gate on a real
// device. CI compares the hashes in receipts/TRAINER.json with the tree: editing a kernel, or a header that a step
// includes, without running the gate again turns `gate --check-receipts` and a host test red.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/gate/report.h"

namespace gate {

struct DeviceFacts {
  std::string name;  // "NVIDIA H200"
  std::string uuid;
  std::string driver;        // "580.65.06"; the CUDA version that it supports where nothing tells
  std::string cuda_runtime;  // "13.0"
  std::string cublas;
  std::string cudnn{};  // "" for a trainer without it
};

// The hashes of the sources that a receipt of this trainer names. Throws stepscope::InputError where `source_root`, the tree that this
// program was built from, has none: asked before a gate that takes minutes, so that its receipt is not lost.
std::map<std::string, std::string> receipt_sources(const std::filesystem::path& source_root, const std::string& trainer);

// One receipt of all `reports` (op checks, whole model per matmul mode and variant); of each check the worst
// error and its budget. Throws std::logic_error unless every report passed and `device` names one: nothing
// else may ever write a receipt.
nlohmann::ordered_json make_receipt(const std::string& trainer, const std::vector<GateReport>& reports, const DeviceFacts& device,
                                    const std::filesystem::path& source_root, const std::filesystem::path& binary,
                                    const std::string& git_revision);

// Atomic; returns the path, `folder`/TRAINER.json.
std::filesystem::path write_receipt(const std::filesystem::path& folder, const nlohmann::ordered_json& receipt);

// What is wrong with a receipt, one sentence each. `changed`: the sources under `root` are not those that it was made
// from ("fp32/kernels/gelu.cu differs from receipt fp32.json"), or there is none. `damaged`: it is no receipt, one of
// another trainer, or no passing gate wrote it; what changed is then not asked.
struct ReceiptProblems {
  std::vector<std::string> changed, damaged;
  bool none() const { return changed.empty() && damaged.empty(); }
};
ReceiptProblems receipt_problems(const std::filesystem::path& receipt_file, const std::filesystem::path& root, const std::string& trainer);

}  // namespace gate
