// Proof, for machines without a GPU, that exactly these device sources passed the gate on a real device. CI
// compares the hashes in receipts/TRAINER.json with the tree; editing a kernel without running the gate again
// turns a host test red.
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
  std::string driver;        // "580.65.06" or the CUDA version that the driver supports
  std::string cuda_runtime;  // "13.0"
  std::string cublas;
};

// Every file under the trainer's folder and gpt2/cuda/ (headers and build files too: a flag changes the arithmetic), by path
// relative to `root` with '/' separators -> SHA-256 in hex. Empty when there are no such files.
std::map<std::string, std::string> hash_device_sources(const std::filesystem::path& root,
                                                       const std::string& trainer);

// One receipt of all `reports` (op checks, whole model per matmul mode and variant); of each check the worst
// error and its budget. Throws std::logic_error unless every report passed and `device` names one: nothing
// else may ever write a receipt.
nlohmann::ordered_json make_receipt(const std::string& trainer, const std::vector<GateReport>& reports,
                                    const DeviceFacts& device, const std::filesystem::path& source_root,
                                    const std::filesystem::path& binary, const std::string& git_revision);

// Atomic; returns the path, `folder`/TRAINER.json.
std::filesystem::path write_receipt(const std::filesystem::path& folder,
                                    const nlohmann::ordered_json& receipt);

// What differs between the receipt and the sources under `root`, one sentence per file ("fp32/kernels/gelu.cu
// differs from the receipt"); empty when the receipt holds for them. A receipt that cannot be read, or that
// no passing gate wrote, is such a sentence too; so is a missing one when there are device sources.
std::vector<std::string> receipt_problems(const std::filesystem::path& receipt_file,
                                          const std::filesystem::path& root, const std::string& trainer);

}  // namespace gate
